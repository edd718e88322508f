"""The variables of a Keras model as a pytree that a compiled loop can carry, and the way back."""

import inspect
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from rudel.aliases import Tree
from rudel.backend import backend_name
from rudel.errors import ModelError
from rudel.loop.model_names import names_of
from rudel.shipping.user_code import is_installed

if TYPE_CHECKING:
    import keras

_NO_VALUES_YET = "Use keras.ops or jax.numpy on the arrays, and no Python branches on their values."

_TRAIN_STATE = "trainable_variables, non_trainable_variables, optimizer_variables, metrics_variables"
_TEST_STATE = "trainable_variables, non_trainable_variables, metrics_variables"
_TRACEBACK = "Traceback (most recent call last):"
_PREAMBLES = ("Exception encountered", "Unable to automatically build the model")


class ModelState(NamedTuple):
    """Values of a model's variables, in the order of Keras' own `train_step(state, batch)`.

    Args:
        trainable: weights the optimizer changes.
        non_trainable: other weights, moving statistics, and the states of seed generators.
        optimizer: slots, iteration count, learning rate, loss scale.
        metrics: running sums and counts of the metrics.
    """

    trainable: list[Any]
    non_trainable: list[Any]
    optimizer: list[Any]
    metrics: list[Any]


def check_model(model: object) -> None:
    """Refuses what is not a Keras model, such as the path of one.

    Raises:
        ModelError: says what is given.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise ModelError(f"The first argument must be a keras.Model, not {model!r:.100}.")


def build(model: "keras.Model", batch: tuple[Any, ...]) -> None:
    """Makes every variable that training needs: the model's, the optimizer's and the metrics'.

    Args:
        model: a compiled Keras model, built or not.
        batch: `(x, y, sample_weight)` of one batch; only shapes and dtypes are looked at.

    Raises:
        ModelError: the model is not compiled, is to run eagerly, or cannot take these shapes.
    """
    check_compiled(model)
    from rudel.internals.keras import build_symbolically

    if words := _why_not_of_outputs(model, batch[1]):
        raise ModelError(f"The model `{model.name}` cannot take these examples: {words}")
    try:
        build_symbolically(model, as_on_device(batch))
        if not model.optimizer.built:  # one that scales the loss would be built again
            model.optimizer.build(model.trainable_variables)
    except Exception as error:
        which = "" if batch[1] is not None else ", which have no targets"
        cannot = "be compiled" if _wanted_value(error) else f"take these examples{which}"
        raise ModelError(f"The model `{model.name}` cannot {cannot}: {why_not_traced(error)}") from error


def _why_not_of_outputs(model: "keras.Model", targets: Tree) -> str:
    """Why targets by name are not those of a model's outputs, which Keras may pair by their places; "" where they are.

    Steps of the user's own may take any names, and so does Keras for a single output.
    """
    outputs = names_of(model, "outputs")
    if not isinstance(targets, dict) or not outputs or not logs_its_metrics(model, "train_step", "compute_loss"):
        return ""
    losses = getattr(model, "loss", None)
    if isinstance(losses, list | tuple) and len(losses) == len(outputs):
        losses = dict(zip(outputs, losses, strict=True))
    wanted = [name for name in outputs if not isinstance(losses, dict) or losses.get(name) is not None]
    if set(wanted) <= targets.keys() <= set(outputs):
        return ""
    given, named, learned = (" and ".join(f"`{name}`" for name in names) for names in (targets, outputs, wanted))
    of_learned = "" if wanted == outputs else f", with a loss for {learned or 'none of them'}"
    return f"the targets are called {given}, and the outputs {named}{of_learned}: give targets by the outputs' names."


def check_compiled(model: "keras.Model") -> None:
    """Refuses a model that is not compiled, or is to run eagerly.

    Raises:
        ModelError: says which.
    """
    if not getattr(model, "compiled", False) or model.optimizer is None:
        raise ModelError(
            f"The model `{model.name}` is not compiled: call model.compile(optimizer=..., loss=...) first."
        )
    if model.run_eagerly and backend_name() == "jax":
        raise ModelError(
            f"The model `{model.name}` is compiled with run_eagerly=True, and Rudel compiles many steps into one "
            "program: leave run_eagerly out, or train with model.fit."
        )
    check_jit()
    check_steps(model)


def check_jit() -> None:
    """Refuses a JAX that does not compile, or that hangs, where Keras runs on it.

    Raises:
        ModelError: says how that is undone.
    """
    if jax.config.jax_disable_jit and backend_name() == "jax":  # type: ignore[attr-defined]
        raise ModelError(
            "JAX compiles nothing here, and Rudel compiles many steps into one program: unset JAX_DISABLE_JIT, "
            "leave `jax.disable_jit()` out, or debug with Keras' model.fit."
        )
    check_not_forked()


def check_not_forked() -> None:
    """Refuses a process that was forked after JAX had started, where Keras runs on it: JAX hangs there.

    Raises:
        ModelError: says how to start the process.
    """
    from rudel.internals.jax import was_forked_after_start

    if was_forked_after_start() and backend_name() == "jax":
        raise ModelError(
            "This process was forked from one in which JAX had started, and JAX hangs in such a process: start it by "
            'ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")), with functions of a module, or fork '
            "before the first model is made or loaded."
        )


def logs_its_metrics(model: "keras.Model", *steps: str) -> bool:
    """Whether what these steps, as `train_step`, return are the metrics after the step, as of Keras' own."""
    return has_keras_own(model, *steps, "compute_metrics")


def has_keras_own(model: "keras.Model", *methods: str) -> bool:
    """Whether a model has these methods, as `train_step`, from Keras itself, and not in an override."""
    from keras import Model

    return all(getattr(type(model), name) is getattr(Model, name) for name in methods)


def check_steps(model: "keras.Model") -> None:
    """Refuses steps of a model's own that are written for another backend than JAX, where Keras runs on that.

    Raises:
        ModelError: says how they are written for JAX.
    """
    if backend_name() != "jax":
        return
    for name, parts in (("train_step", _TRAIN_STATE), ("test_step", _TEST_STATE)):
        taken = inspect.signature(getattr(model, name)).parameters.values()
        needed = [each.name for each in taken if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        if len(needed) == 1 and not any(each.kind is each.VAR_POSITIONAL for each in taken):
            raise ModelError(
                f"`{name}(self, {needed[0]})` of the model `{model.name}` is written for TensorFlow or PyTorch; on JAX "
                f"it is `{name}(self, state, data)`, where `state` is ({parts}), and returns `logs, state` without "
                "assigning to variables: see keras.io/guides/custom_train_step_in_jax."
            )


def variables(model: "keras.Model") -> ModelState:
    """The model's Keras variables, in the form of its state; a model that is not compiled has no optimizer."""
    optimizer = getattr(model, "optimizer", None)
    slots = [] if optimizer is None else optimizer.variables
    return ModelState(model.trainable_variables, model.non_trainable_variables, slots, model.metrics_variables)


def form_of(model: "keras.Model") -> tuple[Any, list[int]]:
    """What programs of a model and its optimizer depend on: another object after `compile`, and what is trained."""
    from rudel.internals.keras import compile_stamp

    return compile_stamp(model), list(map(id, model.trainable_variables))


def read(model: "keras.Model") -> ModelState:
    """The current values of a built model, on the device; where Keras is not on JAX, in NumPy arrays.

    The loop consumes them (donates their buffers): until `write`, the variables of the model then have no values.
    Variables that share an array, as after `a.assign(b)`, get one each.
    """
    if backend_name() != "jax":
        return values(model)
    seen: set[int] = set()

    def own(variable: "keras.Variable") -> jax.Array:
        value = variable.value
        if id(value) in seen:
            return jax.numpy.copy(value)
        seen.add(id(value))
        return value

    return jax.tree.map(own, variables(model))


def values(model: "keras.Model") -> ModelState:
    """Copies the current values of a built model into NumPy arrays."""
    return ModelState(*(on_host(part) for part in variables(model)))


def write(model: "keras.Model", state: ModelState) -> None:
    """Puts values, on the device or the host, back into the model's variables."""
    jax.tree.map(lambda variable, value: variable.assign(value), variables(model), state)


def as_on_device(tree: Tree) -> Tree:
    """Arrays in the dtypes in which the backend computes with them."""
    return jax.tree.map(lambda a: np.asarray(a, computed_in(np.asarray(a).dtype)), tree)


def computed_in(dtype: Any) -> np.dtype[Any]:
    """The dtype in which the backend computes with such numbers: on JAX, int32 for int64."""
    return jax.dtypes.canonicalize_dtype(dtype) if backend_name() == "jax" else np.dtype(dtype)


def on_host(variables: Iterable[Any]) -> list[np.ndarray]:
    """Copies the values of Keras variables into NumPy arrays."""
    from keras import ops

    return [np.array(ops.convert_to_numpy(variable.value)) for variable in variables]


def to_host(state: ModelState) -> ModelState:
    """Copies a state into NumPy arrays."""
    return jax.tree.map(lambda value: np.array(value, copy=True), state)


def as_arrays(state: ModelState) -> dict[str, Any]:
    """A state as arrays by name, as checkpoints hold it."""
    return {f"{part}/{i}": array for part in ModelState._fields for i, array in enumerate(getattr(state, part))}


def why_not_traced(error: BaseException) -> str:
    """Why a program could not be made; where a model wants values while it is made, with what to do about that."""
    if (crop := _random_crop(error)) is not None:
        return (
            f"its layer `{crop.name}` (RandomCrop) does not run in compiled programs. Use RandomTranslation in its "
            "place, or crop the data beforehand."
        )
    wanted = _wanted_value(error)
    message = first_line(wanted or error).rstrip()
    if isinstance(wanted or error, KeyError):  # whose message is the key alone
        message = f"KeyError: {message}"
    if wanted is not None:
        if (layer := _layer_without_jax(wanted)) is not None:
            return (
                f"its layer `{layer.name}` ({type(layer).__name__}) does not run on JAX. Leave it out of the model, "
                "and call it on the data beforehand, as in `x = np.asarray(layer(x))`."
            )
        if place := _own_place(wanted):
            message = f"{place} calls TensorFlow" if _in_tensorflow(wanted) else f"{message.rstrip('.')} in {place}"
    message = message if message.endswith((".", "!", "?", ":")) else f"{message}."
    return message if wanted is None else f"{message} {_NO_VALUES_YET}"


def _wanted_value(error: BaseException) -> BaseException | None:
    """The error by which JAX refuses to give a value while a program is made; None for an error of another kind."""
    chain: list[BaseException | None] = [error]
    while chain[-1] is not None and len(chain) < 20:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    own = next((each for each in chain if isinstance(each, jax.errors.JAXTypeError)), None)  # Keras may raise another
    return own or (error if "traced array" in str(error) else None)


def _own_place(error: BaseException) -> str:
    """The innermost function of the user's own code in a traceback, with file and line; "" where there is none."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        if not is_installed(frame.f_globals.get("__name__", ""), file):
            name = frame.f_code.co_qualname.rpartition("<locals>.")[2]
            return f"`{name}` ({file.name}:{line})"
    return ""


def _layer_without_jax(error: BaseException) -> "keras.Layer | None":
    """The layer of Keras in the traceback of an error that computes by TensorFlow or NumPy on every backend."""
    from keras import layers

    kinds = (layers.Hashing, layers.HashedCrossing, layers.IntegerLookup, layers.StringLookup, layers.TextVectorization)
    called = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((layer for layer in called if isinstance(layer, kinds)), None)


def _random_crop(error: BaseException) -> "keras.Layer | None":
    """A RandomCrop in a model of the traceback; where it crops, a slice has a size that is not known beforehand."""
    from keras import Model, layers

    from rudel.internals.keras import layers_of

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(frame.f_code.co_name in ("compute_loss", "compute_metrics") for frame in frames):
        return None  # all layers have run
    called = (frame.f_locals.get("self") for frame in frames)
    held = (layer for model in called if isinstance(model, Model) for layer in layers_of(model))
    return next((layer for layer in held if isinstance(layer, layers.RandomCrop)), None)


def _in_tensorflow(error: BaseException) -> bool:
    return any(_package(frame) == "tensorflow" for frame, _ in traceback.walk_tb(error.__traceback__))


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def first_line(error: BaseException) -> str:
    """The line of an exception's message that says what is wrong, for one-sentence messages.

    Keras puts a line before it that says where it happened, and terminal colours around it; JAX, for an error in a
    function that it has called back, a traceback.
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    if _TRACEBACK in text.partition("\n")[0]:
        text = re.sub(r"^\s.*\n?", "", text.rpartition(_TRACEBACK)[2], flags=re.MULTILINE) or text
    lines = [line for line in map(_unquoted, text.splitlines()) if line.strip("'")]
    own = [line for line in lines if not line.startswith(_PREAMBLES)]
    return (own or lines or [type(error).__name__])[0]


def _unquoted(line: str) -> str:
    """A line without the quotation marks that Keras puts around a message of several lines; others stay.

    >>> _unquoted("''it has no `a`.''"), _unquoted("'str' has no 'a'"), _unquoted("'Exception:")
    ('it has no `a`.', "'str' has no 'a'", 'Exception:')
    """
    line = line.strip().removeprefix("''").removesuffix("''")
    if line.count("'") % 2:
        return line[1:] if line.startswith("'") else line.removesuffix("'")
    return line
