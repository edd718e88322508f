"""Evaluation and prediction with compiled loops, in which every example counts exactly once."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rudel.data.dataset import Examples
from rudel.errors import DataError, ModelError
from rudel.train import state as model_state
from rudel.train.loop import Batch, Program, compile_evaluation, compile_prediction
from rudel.train.schedule import check_whole_number
from rudel.train.state import ModelState

DEFAULT_BATCH_SIZE = 256


def as_batch(examples: Examples) -> Batch:
    """Puts examples on the device, in the form that the compiled loops take."""
    return jax.device_put((examples.x, examples.y, examples.sample_weight))


class Evaluator:
    """Evaluates a model again and again on the same examples.

    Full batches run in one program; the examples that are left over are one batch of their own, in a second program, so
    that nothing is padded and batch-wise metrics stay right.

    Args:
        model: a built, compiled Keras model.
        state: its state; only shapes and dtypes are looked at.
        examples: what to evaluate on; they are put on the device.
        batch_size: examples a step.

    Raises:
        ModelError: the model's `test_step` cannot be compiled.
    """

    def __init__(self, model: Any, state: ModelState, examples: Examples, batch_size: int) -> None:
        self._model = model
        self._data = as_batch(examples)
        self._batches, rest = divmod(len(examples), batch_size)
        self._full: Program | None = None
        self._last: Program | None = None
        if self._batches:
            self._full = compile_evaluation(model, state, self._data, batch_size)
        if rest:
            self._rest = as_batch(examples.take(slice(-rest, None)))
            self._last = compile_evaluation(model, state, self._rest, rest)

    @property
    def compile_seconds(self) -> float:
        """Seconds spent on tracing and compiling."""
        return sum(program.compile_seconds for program in (self._full, self._last) if program)

    def run(self, state: ModelState) -> dict[str, float]:
        """The metrics of a state, by Keras' names; the model's metric variables hold them afterwards."""
        self._model.reset_metrics()
        metrics = model_state.read(self._model).metrics
        if self._full:
            metrics = self._full.run(
                state.trainable, state.non_trainable, metrics, self._data, np.int32(0), np.int32(self._batches)
            )
        if self._last:
            metrics = self._last.run(
                state.trainable, state.non_trainable, metrics, self._rest, np.int32(0), np.int32(1)
            )
        jax.tree.map(lambda variable, value: variable.assign(value), self._model.metrics_variables, metrics)
        return as_floats(self._model.get_metrics_result())


def evaluate(
    model: Any, x: Any, y: Any = None, *, sample_weight: Any = None, batch_size: int = DEFAULT_BATCH_SIZE
) -> dict[str, float]:
    """Evaluates a compiled Keras model, compiled into one loop.

    Args:
        model: a compiled Keras model.
        x: inputs (N, ...), a `rudel.data.Examples`, or a tuple `(x, y)` or `(x, y, sample_weight)`.
        y: targets (N, ...), if `x` holds inputs alone.
        sample_weight: weights (N,).
        batch_size: examples a step.

    Returns:
        Loss and metrics by Keras' names.

    Raises:
        DataError: the examples do not fit each other or the model.
        ModelError: the model is not compiled, or its `test_step` cannot be.
    """
    from rudel.train.checks import as_examples, check_examples

    check_whole_number("batch_size", batch_size)
    examples = as_examples(x if y is None and sample_weight is None else (x, y, sample_weight), "evaluation")
    first = examples.take(slice(0, batch_size))
    model_state.build(model, (first.x, first.y, first.sample_weight))
    check_examples(examples, model, "evaluation")
    state = model_state.read(model)
    return Evaluator(model, state, examples, batch_size).run(state)


def predict(model: Any, x: Any, *, batch_size: int = DEFAULT_BATCH_SIZE) -> Any:
    """Asks a Keras model about inputs, in one compiled program.

    The last batch is padded with copies of its last example, so that one program serves all.

    Args:
        model: a built Keras model, compiled or not.
        x: inputs (N, ...), or a dict, list or tuple of them.
        batch_size: examples a step.

    Returns:
        The outputs as NumPy arrays (N, ...), in the form in which the model gives them.

    Raises:
        ModelError: the model's `predict_step` cannot be compiled.
    """
    check_whole_number("batch_size", batch_size)
    count = len(jax.tree.leaves(x)[0])
    if not count:
        raise DataError("There is nothing to predict: the arrays have length 0.")
    batch_size = min(batch_size, count)
    state = model_state.read(model)
    program: Program | None = None
    outputs = []
    for start in range(0, count, batch_size):
        indices = np.minimum(np.arange(start, start + batch_size), count - 1)
        batch = jax.device_put(jax.tree.map(lambda array, chosen=indices: np.asarray(array)[chosen], x))
        program = program or compile_prediction(model, state, batch)
        outputs.append(jax.device_get(program.run(state.trainable, state.non_trainable, batch)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *outputs)


def as_floats(logs: Any) -> dict[str, float]:
    """Logs as Python floats, by name.

    Raises:
        ModelError: a log is no scalar.
    """
    flat: dict[str, float] = {}
    for name, value in logs.items() if isinstance(logs, Mapping) else ():
        if isinstance(value, Mapping):
            flat.update(as_floats(value))
            continue
        array = np.asarray(value)
        if array.size != 1:
            raise ModelError(f"The metric `{name}` has shape {array.shape}; a metric must be a single number.")
        flat[name] = float(array.reshape(()))
    return flat
