"""The local steps of a round by Keras' own training step: what a replica computes with where Keras is not on JAX.

`OwnSteps` takes the place of the program that `rudel.replicas.replica_program` compiles, and is called in the same
way. The model's variables keep their values between two calls. What a call returns holds them, as arrays that are read
when somebody asks; where somebody has put another array in such a place, the next call gives it to the variable.

Every step is a call of the function that Keras makes for `fit`, so whatever a model overrides keeps working, and costs
what it costs there.
"""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rudel.aliases import Tree
from rudel.backend import backend_name, keras_here
from rudel.errors import ModelError
from rudel.loop import model_state
from rudel.loop.model_state import ModelState, first_line
from rudel.replicas.moving_statistics import quicken
from rudel.replicas.replica_program import RoundProgram
from rudel.shipping.model_parcel import pack, unpack

if TYPE_CHECKING:
    import keras


SLOWER = "Keras runs on {}: its own training step takes every step, slower than Rudel's compiled loop on JAX does."
"""The note that users see about a backend."""


class Held:
    """The value of a variable, as an array.

    Args:
        variable: of Keras.
    """

    def __init__(self, variable: "keras.Variable") -> None:
        self.variable = variable
        self.dtype = model_state.on_host([variable])[0].dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = model_state.on_host([self.variable])[0]
        return value if dtype is None else value.astype(dtype, copy=False)


def pack_steps(
    model: "keras.Model", form: Tree, first: Tree, augment: Callable[[Tree, Tree], Tree] | None, replicas: int
) -> RoundProgram:
    """Makes the program that hosts need to take steps; tries a step out here, which leaves the model as it was.

    Args:
        model: a built, compiled Keras model, not on JAX.
        form: (x, y, sample_weight) of all examples; only shapes and dtypes are looked at.
        first: (x, y, sample_weight) of a batch, to try it out with.
        augment: changes the inputs of a batch at random, by JAX: `(key, x) -> x`.
        replicas: how many there are; see `rudel.replicas.moving_statistics`.

    Raises:
        ModelError: the model's `train_step` fails, or the model cannot be sent.
    """
    _check_metrics(model)
    leaves, structure = jax.tree.flatten(form)
    places = jax.tree.unflatten(structure, range(len(leaves)))
    before = model_state.read(model)
    shapes = [[np.shape(value) for value in part] for part in before]
    code = pack(model, {"places": places, "shapes": shapes, "augment": augment, "replicas": replicas})
    try:
        values, log_form = jax.tree.flatten(_step(model, first))
    except Exception as error:
        raise ModelError(f"`train_step` of the model `{model.name}` fails: {first_line(error)}") from error
    finally:
        model_state.write(model, before)
    logs = tuple((np.shape(value), str(value.dtype)) for value in map(_on_host, values))
    return RoundProgram(code, logs, log_form, backend_name())


def _check_metrics(model: "keras.Model") -> None:
    """Refuses a model with metrics that its compilation does not name: Keras does not take them away."""
    from rudel.internals.keras import compiled_metrics

    named: Any = model.get_compile_config() or {}
    if compiled_metrics(model) and not (named.get("metrics") or named.get("weighted_metrics")):
        raise ModelError(
            f"The model `{model.name}` was compiled again without metrics, and has those of the first time: name them "
            "again, or build the model again."
        )


class OwnSteps:
    """See the module.

    Args:
        backend: of Keras.
        code: from `pack_steps`.
        rows: a batch of the arrays of the data set; only shapes and dtypes are looked at.

    Raises:
        ModelError: Keras is there on another backend, or the model cannot be made here as it was sent.
    """

    def __init__(self, backend: str, code: bytes, rows: Sequence[np.ndarray]) -> None:
        if "keras" not in sys.modules:
            os.environ["KERAS_BACKEND"] = backend
        if backend_name() != backend:
            raise ModelError(
                f"Keras runs on {backend_name()} already in the worker on {platform.node()}, and the model needs "
                f"{backend}: restart that worker."
            )
        keras = keras_here(light=True)
        from rudel.internals.keras import give_learning_rate

        self._model, more = unpack(code)
        self._places, self._augment = more["places"], more["augment"]
        quicken(self._model, more["replicas"])
        self._rate = keras.Variable(0.0, trainable=False, dtype="float32", name="rate")
        give_learning_rate(self._model.optimizer, lambda: self._rate)
        model_state.build(self._model, self._batch(rows))
        self._model.reset_metrics()
        made = model_state.variables(self._model)
        if [[tuple(variable.shape) for variable in part] for part in made] != more["shapes"]:
            raise ModelError(
                f"The model `{self._model.name}` is made with other variables on {platform.node()} than where it comes "
                "from: let its `get_config` say all that it is made with."
            )
        self._held = ModelState(*([Held(variable) for variable in part] for part in made))
        self.weights: Sequence[Any] = model_state.on_host(made.trainable)

    def put(self, arrays: Tree) -> Any:
        """Arrays as `__call__` takes them."""
        return arrays

    def __call__(
        self, carried: Tree, data: Sequence[np.ndarray], order: np.ndarray, rates: np.ndarray, key: np.ndarray,
        first: int | np.integer, last: int | np.integer,
    ) -> tuple[Any, int]:  # fmt: skip
        """Takes steps, as the program of `rudel.replicas.replica_program.export_rounds` does."""
        for held, given in zip(self._held, carried[:4], strict=True):
            for own, value in zip(held, given, strict=True):
                if value is not own:
                    own.variable.assign(np.asarray(value))
        losses: list[Any] = []
        logs: Tree = None
        for i in range(int(first), int(last)):
            self._rate.assign(rates[i])
            x, *targets = self._batch([np.take(array, order[i], axis=0, mode="clip") for array in data])
            logs = _step(self._model, (self._changed(x, key, i), *targets))
            losses.append(logs.get("loss") if isinstance(logs, dict) else None)
        failed = (i for i, loss in enumerate(losses, int(first)) if not _is_finite(loss))
        logged = [_on_host(value) for value in jax.tree.leaves(logs)]
        return [*(list(part) for part in self._held), logged], next(failed, -1)

    def _batch(self, rows: Sequence[np.ndarray]) -> tuple[Any, Any, Any]:
        return jax.tree.map(lambda place: rows[place], self._places)

    def _changed(self, x: Tree, key: np.ndarray, i: int) -> Any:
        if self._augment is None:
            return x
        of_round = jax.random.wrap_key_data(jax.numpy.asarray(key), impl="threefry2x32")
        return jax.tree.map(np.asarray, self._augment(jax.random.fold_in(of_round, i), x))


def _step(model: "keras.Model", batch: Tree) -> Any:
    """A step on a batch by the function that Keras makes for `fit`; its logs, of which metrics add up over steps."""
    model.make_train_function()
    step: Any = model.train_function
    return step([batch])


def _is_finite(loss: Tree) -> bool:
    return loss is None or bool(np.isfinite(_on_host(loss)).all())


def _on_host(value: Tree) -> np.ndarray:
    from keras import ops

    return np.asarray(ops.convert_to_numpy(value))
