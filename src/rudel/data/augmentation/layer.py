"""A Keras layer that changes images at random while a model is trained, and passes them on when it is used."""

import inspect
from typing import Any

import keras

from rudel.aliases import Shape, Tensor
from rudel.data.augmentation.changes import CHANGES
from rudel.errors import OptionError


@keras.saving.register_keras_serializable("rudel")
class Augmentation(keras.layers.Layer):
    """One of the changes of `rudel.data.augmentation`, as a layer of a model.

    Its random numbers come from Keras' own generator: they are saved with the model's state, so a resumed training goes
    on with those that would have come. What trains the model has to run on JAX; evaluation, prediction and export run
    wherever Keras does. A saved model that has the layer is read back after `import rudel.data.augmentation.layer`.

    Args:
        change: name of a function, such as `random_rotation` or `cloud_tpu_guide`.
        settings: of that function; None for its defaults.
        seed: of the random numbers; None for one of Keras' global seed.
        arguments: of any layer: `name`, and `dtype`, which is that of what comes out.

    Raises:
        OptionError: there is no such change, or it has no such setting.

    >>> layer = Augmentation("random_brightness", {"delta": 0.1}, seed=3)
    >>> Augmentation.from_config(layer.get_config()).change
    'random_brightness'
    """

    def __init__(
        self, change: str, settings: dict[str, Any] | None = None, seed: int | None = None, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.change = change
        self.settings = dict(settings or {})
        self._function = _function(change, self.settings)
        self.seed_generator = keras.random.SeedGenerator(seed)
        self._seed = seed
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Any:
        """The images, changed where `training` is true."""
        x = inputs
        if training:
            if keras.config.backend() != "jax":
                raise OptionError("The layer Augmentation trains on JAX alone: set KERAS_BACKEND=jax.")
            x = self._function(self.seed_generator.next(), x, **self.settings)
        return keras.ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Images keep their shape."""
        return input_shape

    def compute_output_spec(self, inputs: Tensor, training: bool | None = False) -> Any:
        """Images keep their shape."""
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the layer from again."""
        return {**super().get_config(), "change": self.change, "settings": self.settings, "seed": self._seed}


def _function(name: str, settings: dict[str, Any]) -> Any:
    if name not in CHANGES:
        raise OptionError(f"There is no augmentation {name!r}: there are {', '.join(sorted(CHANGES))}.")
    function = CHANGES[name]
    unknown = set(settings) - set(inspect.signature(function).parameters) | set(settings) & {"key", "x"}
    if unknown:
        raise OptionError(f"`{name}` has no setting {', '.join(map(repr, sorted(unknown)))}.")
    return function
