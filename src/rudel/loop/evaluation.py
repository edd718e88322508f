"""Evaluation and prediction with compiled loops, in which every example counts exactly once."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from rudel.backend import backend_name
from rudel.data.batch_source import BatchStream, Piece, is_source, pass_of, targets_twice
from rudel.data.dataset import Arrays, Examples
from rudel.data.hugging_face import dataset_of, inputs_of, is_hugging_face
from rudel.data.stream import Stream
from rudel.errors import DataError
from rudel.loop import model_state
from rudel.loop.batch_blocks import BatchBlocks, Run
from rudel.loop.batch_sizes import batch_size_of
from rudel.loop.blocks import Blocks, as_batch, is_small
from rudel.loop.compiled_loop import Batch, Program, after, compile_evaluation, compile_prediction
from rudel.loop.data_checks import as_examples, as_part, check_examples, check_inputs
from rudel.loop.metric_values import as_floats
from rudel.loop.model_names import names_of
from rudel.loop.model_state import ModelState
from rudel.loop.read_ahead import Ahead
from rudel.loop.schedule import check_whole_number
from rudel.loop.table_frames import as_taken

if TYPE_CHECKING:
    import keras


Step = tuple[Program, Batch, int, int]
"""A program, what it runs on, and from which of its batches to which."""


class Pass(Protocol):
    """A pass over the examples of an evaluation, to be taken again and again."""

    @property
    def programs(self) -> Collection[Program]:
        """Those compiled so far."""
        ...

    def steps(self, state: ModelState) -> Generator[Step, None, None]:
        """All examples, once, in their order.

        Args:
            state: of the model; only shapes and dtypes are looked at.
        """
        ...


class Evaluator:
    """Evaluates a model again and again on the same examples.

    Args:
        model: a built, compiled Keras model.
        examples: a pass over them.

    Attributes:
        non_trainable: such variables after the last run, as of layers that draw random numbers.
    """

    def __init__(self, model: "keras.Model", examples: Pass) -> None:
        self._model, self._pass = model, examples
        self.non_trainable: list[Any] = []

    @property
    def compile_seconds(self) -> float:
        """Seconds spent on tracing and compiling; those of forms that come late are added."""
        return sum(program.compile_seconds for program in self._pass.programs)

    def run(self, state: ModelState) -> dict[str, float]:
        """The metrics of a state, by Keras' names; the model's metric variables hold them afterwards.

        Of a model whose `test_step` logs something else, what it logged of the last batch.

        Raises:
            DataError: an example of a stream cannot be read, or is none that can be evaluated.
            ModelError: a form of batch comes late, and the model's `test_step` cannot be compiled for it.
        """
        self._model.reset_metrics()
        metrics, moved, logs = model_state.read(self._model).metrics, state.non_trainable, None
        with contextlib.closing(self._pass.steps(state)) as steps:
            for program, data, first, last in steps:
                before = metrics
                bounds = np.int32(first), np.int32(last)
                changed, metrics, logs = program.run(state.trainable, moved, metrics, data, *bounds)
                moved = after(moved, changed)
                jax.block_until_ready(before)  # so that no more than two blocks are on the device
        self.non_trainable = moved
        jax.tree.map(lambda variable, value: variable.assign(value), self._model.metrics_variables, metrics)
        return as_floats(self._model.get_metrics_result() if logs is None else logs)


class HeldPass:
    """A pass over what stays on the device.

    Args:
        steps: of the pass, each with a program of its own.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = list(steps)

    @property
    def programs(self) -> Collection[Program]:
        """See `Pass`."""
        return [program for program, *_ in self._steps]

    def steps(self, state: ModelState) -> Generator[Step, None, None]:
        """See `Pass`."""
        yield from self._steps


class ReadPass:
    """A pass that is read anew each time, ahead of its evaluation.

    Args:
        programs: of its steps.
        read: gives the steps; runs in the reader's thread.
    """

    def __init__(self, programs: Collection[Program], read: Callable[[], Iterator[Step]]) -> None:
        self.programs, self._read = programs, read

    def steps(self, state: ModelState) -> Generator[Step, None, None]:
        """See `Pass`."""
        with Ahead(self._read()) as steps:
            yield from steps


def _pass_over(
    model: "keras.Model", state: ModelState, examples: Examples | Stream, batch_size: int, what: str
) -> HeldPass | ReadPass:
    """A pass whose full batches run in one program; what is left over is one batch of its own, in a second program.

    So nothing is padded, and batch-wise metrics stay right. A stream is read block by block each time, unless it is
    small: then it is read once.
    """
    count = len(examples)
    batches, rest = divmod(count, batch_size)
    if isinstance(examples, Stream):
        blocks = Blocks(examples, model, what)
        if not is_small(blocks):
            together = blocks.batches(batch_size, max(1, batches))
            rows, full = together * batch_size, batches * batch_size
            program = compile_evaluation(model, state, blocks.form(rows), batch_size) if batches else None
            remainder = compile_evaluation(model, state, blocks.form(rest), rest) if rest else None

            def read() -> Iterator[Step]:
                for first in range(0, full, rows):
                    indices = np.arange(first, min(first + rows, full))
                    assert program
                    yield program, blocks.read(indices, rows), 0, len(indices) // batch_size
                if remainder:
                    yield remainder, blocks.read(np.arange(full, count)), 0, 1

            return ReadPass([each for each in (program, remainder) if each], read)
        examples = blocks.examples(np.arange(count))
    steps: list[Step] = []
    if batches:
        data = as_batch(examples)
        steps.append((compile_evaluation(model, state, data, batch_size), data, 0, batches))
    if rest:
        data = as_batch(examples.take(slice(-rest, None)))
        steps.append((compile_evaluation(model, state, data, rest), data, 0, 1))
    return HeldPass(steps)


class SourcePass:
    """A pass over a source: a step sees a batch of it, whatever its shape, and each form of one has its programs.

    Args:
        model: a built, compiled Keras model.
        state: its state; only shapes and dtypes are looked at.
        stream: the source.
        what: what messages call its batches.

    Raises:
        DataError, ModelError: one cannot be read, or the model's `test_step` not be compiled.
    """

    def __init__(self, model: "keras.Model", state: ModelState, stream: BatchStream, what: str) -> None:
        self._model, self._stream = model, stream
        self._of_batches = BatchBlocks(stream, model, what, stream.length)
        self._programs: dict[Hashable, Program] = {}
        self._held: list[list[Run]] | None = None
        if stream.repeatable and not stream.knows_epochs:  # which may change it
            groups = list(itertools.islice(self._groups(), 3))
            self._held = groups if len(groups) < 3 else None  # no more than what is in memory of a larger one
        else:
            groups = self._of_batches.runs(iter([Piece(stream.first, (len(stream.first),), 0)]))
        for run in itertools.chain.from_iterable(groups):
            self._program(run, state)

    @property
    def programs(self) -> Collection[Program]:
        """See `Pass`."""
        return self._programs.values()

    def _groups(self) -> Iterator[list[Run]]:
        return self._of_batches.runs(self._stream.pieces(self._of_batches.together))

    def _program(self, run: Run, state: ModelState) -> Program:
        data, _, size, form = run.block
        if form not in self._programs:
            self._programs[form] = compile_evaluation(self._model, state, data, size)
        return self._programs[form]

    def steps(self, state: ModelState) -> Generator[Step, None, None]:
        """See `Pass`."""
        with contextlib.nullcontext(self._held) if self._held is not None else Ahead(self._groups()) as groups:
            for run in itertools.chain.from_iterable(groups):
                yield self._program(run, state), run.block.data, run.place, run.place + run.last - run.first


def make_evaluator(
    model: "keras.Model", state: ModelState, examples: Examples | Stream, batch_size: int, what: str = "evaluation"
) -> Any:
    """An `Evaluator`, or what does its work by Keras' own steps where Keras is not on JAX.

    Args:
        model: a built, compiled Keras model.
        state: its state; only shapes and dtypes are looked at.
        examples: what to evaluate on; they are put on the device.
        batch_size: examples a step; a source has batches of its own.
        what: what messages call the examples.

    Raises:
        DataError, ModelError: an example cannot be read, or the model's `test_step` not be compiled.
    """
    if backend_name() == "jax":
        if isinstance(examples, BatchStream):
            return Evaluator(model, SourcePass(model, state, examples, what))
        return Evaluator(model, _pass_over(model, state, examples, batch_size, what))
    from rudel.loop.keras_evaluation import OwnEvaluator

    return OwnEvaluator(model, examples, batch_size, what)


def evaluate(
    model: "keras.Model",
    x: Arrays,
    y: Arrays = None,
    *,
    sample_weight: Arrays = None,
    batch_size: int | None = None,
) -> dict[str, float]:
    """Evaluates a compiled Keras model, compiled into one loop.

    Args:
        model: a compiled Keras model.
        x: inputs (N, ...) of any dtype, or, with `y`, a frame for a model of a table; a `rudel.Examples`, a stream such
            as `rudel.Records`, a source of batches or a Hugging Face `Dataset` (see `rudel.fit`), or a tuple `(x, y)`
            or `(x, y, sample_weight)`.
        y: targets (N, ...), classes by number, if `x` holds inputs alone. Of a Hugging Face data set, the name of a
            column.
        sample_weight: weights (N,).
        batch_size: examples a step; None for 256, or, where the loss or code of your own may compare the examples of a
            batch, for Keras' 32. A source has batches of its own.

    Returns:
        Loss and metrics by Keras' names, as Python floats.

    Raises:
        DataError: the examples do not fit each other or the model.
        OptionError: `y` or `sample_weight` is given beside a stream or a source.
        ModelError: it is not a model, is not compiled, or its `test_step` cannot be.
    """
    model_state.check_model(model)
    if batch_size is not None:
        check_whole_number("batch_size", batch_size)
    if is_hugging_face(x):
        x, y, sample_weight = dataset_of(x, y, names_of(model, "inputs"), None, sample_weight).train, None, None
    given, x = x, as_taken(model, x)
    if x is not given and y is None:
        raise DataError("Which column of the frame has the targets? Give it as `y`, such as frame['COLUMN'].")
    if (is_source(x) or isinstance(x, Stream)) and (y is not None or sample_weight is not None):
        kind = "stream" if isinstance(x, Stream) else type(x).__name__
        raise targets_twice(kind)
    x = pass_of(x, "evaluation") if is_source(x) else x
    examples = as_part(x if y is None and sample_weight is None else (x, y, sample_weight), "evaluation")
    if not examples:
        raise DataError("There is nothing to evaluate on: the stream has no examples.")
    batch_size = batch_size_of(model, batch_size)
    first = examples.first if isinstance(examples, BatchStream) else examples.take(slice(0, batch_size))
    if isinstance(examples, Examples):
        check_examples(examples, model, "evaluation")
    model_state.build(model, (first.x, first.y, first.sample_weight))
    state = model_state.read(model)
    evaluator = make_evaluator(model, state, examples, batch_size)
    metrics = evaluator.run(state)
    if isinstance(evaluator, Evaluator):
        _leave(model, state.non_trainable, evaluator.non_trainable)
    return metrics


def _leave(model: "keras.Model", before: Iterable[Any], now: Iterable[Any]) -> None:
    """Gives the model the non-trainable variables that its steps have changed, as Keras does."""
    for variable, old, new in zip(model.non_trainable_variables, before, now, strict=True):
        if new is not old:
            variable.assign(new)


def predict(model: "keras.Model", x: Arrays, *, batch_size: int | None = None) -> Arrays:
    """Asks a Keras model about inputs, in compiled programs: one for full batches, one for a smaller last one.

    So a model that computes across the batch gives what `model.predict` gives. A model that is made for batches of one
    size gets a smaller one padded with copies of its last example.

    Args:
        model: a built Keras model, compiled or not.
        x: inputs (N, ...) of any dtype, or a dict, list or tuple of them, or a frame for a model of a table; or a
            stream such as `rudel.Records`, a source of batches or a Hugging Face `Dataset` (see `rudel.fit`).
        batch_size: examples a step; None for 256, or, where code of your own may compare the examples of a batch, for
            Keras' 32. A source has batches of its own.

    Returns:
        The outputs as NumPy arrays (N, ...), in the form and the dtype in which the model gives them: float32 for most.

    Raises:
        DataError: there are no inputs, those of a stream cannot be read, a whole number needs more than 32 bits, an
            index is in no table of the model, inputs have other names than the model's, an output is one number for a
            batch, or inputs of several shapes have outputs of several shapes.
        ModelError: it is not a model, its `predict_step` cannot be compiled, or JAX compiles nothing.
    """
    model_state.check_model(model)
    if batch_size is not None:
        check_whole_number("batch_size", batch_size)
    x = inputs_of(x, names_of(model, "inputs")) if is_hugging_face(x) else x
    x = as_taken(model, x)
    x = pass_of(x, "prediction") if is_source(x) else x
    x = x.x if isinstance(x, Examples) else x
    if isinstance(x, Stream):
        outputs = [out for _, out in predictions(model, x, batch_size)]
    else:
        batch_size = batch_size_of(model, batch_size)
        x = as_examples((x,), "prediction").x
        count = len(jax.tree.leaves(x)[0])
        check_inputs(x, model, "prediction")
        inputs = (
            jax.tree.map(lambda array, rows=slice(start, start + batch_size): np.asarray(array)[rows], x)
            for start in range(0, count, batch_size)
        )
        outputs = list(_predicted(model, inputs))
    if not outputs:
        raise DataError("There is nothing to predict: the arrays have length 0.")
    return jax.tree.map(_concatenated, *outputs)


def _concatenated(*batches: np.ndarray) -> np.ndarray:
    if not batches[0].shape:
        raise DataError(
            "The model gives one number for a whole batch, and predictions are made of examples: leave that output out."
        )
    shapes = sorted({batch.shape[1:] for batch in batches})
    if len(shapes) > 1:
        raise DataError(
            f"The model's outputs have the shapes {shapes[0]} and {shapes[1]}, which no array holds together: predict "
            "on inputs of one shape at a time."
        )
    return np.concatenate(batches)


def predictions(model: "keras.Model", stream: Stream, batch_size: int | None = None) -> Iterator[tuple[Examples, Any]]:
    """Asks a model about a stream, batch by batch: the examples, and its outputs as NumPy arrays."""
    batch_size = batch_size_of(model, batch_size)

    def read() -> Iterator[Examples]:
        start = 0
        for taken in _batches(stream, batch_size):
            examples, rows = as_examples(taken, "prediction"), np.arange(start, start + len(taken))
            check_inputs(examples.x, model, "prediction", rows)
            start += len(rows)
            yield examples

    with Ahead(read()) as ahead:
        consumed: list[Examples] = []

        def inputs() -> Iterator[Any]:
            for examples in ahead:
                consumed.append(examples)
                yield examples.x

        for outputs in _predicted(model, inputs()):
            yield consumed.pop(), outputs


def _batches(stream: Stream, batch_size: int) -> Iterator[Examples]:
    """The examples of a stream, in their order, at most so many at once; those of a source in its batches."""
    if not isinstance(stream, BatchStream):
        for start in range(0, len(stream), batch_size):
            yield stream.take(np.arange(start, min(start + batch_size, len(stream))))
        return
    for piece in stream.pieces():
        for last, size in zip(itertools.accumulate(piece.sizes), piece.sizes, strict=True):
            yield piece.examples.take(slice(last - size, last))


def _row_form(x: Arrays) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(x)
    return structure, tuple((array.shape[1:], array.dtype) for array in leaves)


def _without_padding(output: np.ndarray, rows: int, room: int) -> np.ndarray:
    """An output without what it gives for the copies behind `rows` examples, of `room`.

    One with several rows for each example loses those of the copies; one with another number of rows stays.
    """
    return output[: len(output) // room * rows] if output.ndim and len(output) % room == 0 else output


def _predicted(model: "keras.Model", inputs: Iterator[Any]) -> Iterator[Any]:
    """The outputs for each of some batches of inputs; those smaller than a model is made for are filled up."""
    if backend_name() != "jax":
        from rudel.loop.keras_evaluation import predicted

        yield from predicted(model, inputs)
        return
    model_state.check_jit()
    state = model_state.read(model)
    moved = state.non_trainable
    programs: dict[Any, Program] = {}
    least = batch_size_of(model, 0)
    for x in inputs:
        rows = len(jax.tree.leaves(x)[0])
        room = max(least, rows)
        indices = np.minimum(np.arange(room), rows - 1)
        batch = jax.device_put(x if rows == room else jax.tree.map(lambda array, i=indices: array[i], x))
        key = room, _row_form(x)
        if key not in programs:
            programs[key] = compile_prediction(model, state, batch)
        outputs, changed = programs[key].run(state.trainable, moved, batch)
        moved = after(moved, changed)
        yield jax.tree.map(partial(_without_padding, rows=rows, room=room), jax.device_get(outputs))
    _leave(model, state.non_trainable, moved)
