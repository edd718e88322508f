"""Training examples on their way into the compiled loop: all on the device at once, or block by block from a stream.

Either way a step sees the examples that the schedule says, so the weights are the same bits. Of a stream, blocks of
steps are read and put on the device while earlier ones are being computed. A block may reach over the end of an epoch.
Of a source of batches, a step sees a whole batch, whatever its shape.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np

from rudel.array_types import Int32
from rudel.data.batch_source import READ_SECONDS, BatchStream
from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.batch_blocks import BatchBlock, BatchBlocks, Run
from rudel.loop.blocks import Blocks, as_batch, evenly
from rudel.loop.compiled_loop import Batch
from rudel.loop.read_ahead import Ahead
from rudel.loop.schedule import Schedule

if TYPE_CHECKING:
    import keras


_FIRST_SECONDS = 0.015  # like READ_SECONDS, where nothing is computed meanwhile


class StepBlock(NamedTuple):
    """Steps of an epoch whose examples are on the device; see `rudel.loop.compiled_loop.compile_training`.

    `form` is what a program is compiled for: blocks of the same form have arrays of the same shapes and dtypes, and
    `size` examples in each batch. Blocks that were read together have the same number `read`.
    """

    data: Batch
    order: Int32[jax.Array, "steps *batch"]
    size: int
    form: Hashable
    first: np.int32 = np.int32(0)
    last: np.int32 = np.int32(0)
    offset: np.int32 = np.int32(0)
    read: int = 0


class Feed(Protocol):
    """Brings the examples of steps to the device."""

    @property
    def wait_seconds(self) -> float:
        """Seconds in which there was nothing to compute with."""
        ...

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Begins to read, from this step on."""
        ...

    def forms(self) -> list[StepBlock]:
        """Blocks of the forms that are known when the training begins, the most frequent one first.

        They have no steps; in the place of arrays there may be shapes and dtypes.
        """
        ...

    def step_blocks(self, epoch: int, first: int, last: int, synchronise: Callable[[], Any]) -> Iterator[StepBlock]:
        """The steps `first` (inclusive) to `last` (exclusive) of a training, which lie in one epoch.

        Fewer come where the wait for them is interrupted.

        Args:
            epoch: its number, from 0.
            first, last: numbers of steps since the beginning of the training.
            synchronise: waits until the device has nothing left to do.
        """
        ...

    def end_epoch(self, step: int) -> None:
        """Calls the hook of a source for the end of an epoch, if one has ended with this step."""
        ...

    def close(self) -> None:
        """Ends reading."""
        ...


class Resident:
    """A `Feed` of examples that are all on the device.

    Args:
        examples: to train on.
        schedule: which of them every step sees.
    """

    wait_seconds = 0.0

    def __init__(self, examples: Examples, schedule: Schedule) -> None:
        self._schedule = schedule
        self.data = as_batch(examples)
        self.order: jax.Array = self._ordered(0)
        self._epoch = 0

    def forms(self) -> list[StepBlock]:
        """See `Feed`."""
        return [StepBlock(self.data, self.order, size, size) for size in self._schedule.sizes]

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """See `Feed`; there is nothing to read."""

    def step_blocks(self, epoch: int, first: int, last: int, synchronise: Callable[[], Any]) -> Iterator[StepBlock]:
        """See `Feed`; one block."""
        if epoch != self._epoch:
            self._epoch, self.order = epoch, self._ordered(epoch)
        start, size = self._schedule.first_step(epoch), self._schedule.size(first)
        yield StepBlock(self.data, self.order, size, size, np.int32(first - start), np.int32(last - start))

    def end_epoch(self, step: int) -> None:
        """See `Feed`; arrays have no hook."""

    def close(self) -> None:
        """See `Feed`."""

    def _ordered(self, epoch: int) -> Any:
        """The order of an epoch, on the device."""
        return jax.device_put(self._schedule.order(epoch, self._schedule.sizes[0]))


class _Block(NamedTuple):
    first: int
    last: int
    data: Batch


class _Read:
    """What feeds have in common that are read ahead."""

    def __init__(self) -> None:
        self._ahead: Ahead[Any] | None = None
        self._waited = 0.0

    @property
    def wait_seconds(self) -> float:
        """See `Feed`."""
        return self._waited

    def end_epoch(self, step: int) -> None:
        """See `Feed`; most sources have no hook."""

    def close(self) -> None:
        """See `Feed`."""
        if self._ahead:
            self._ahead.close()
        self._ahead = None

    def _next(self, synchronise: Callable[[], Any]) -> Any:
        """What is read next, or None; only time in which the device has nothing to do counts as waiting."""
        assert self._ahead
        if not self._ahead.ready:
            synchronise()
        before = self._ahead.wait_seconds
        read = next(self._ahead, None)
        self._waited += self._ahead.wait_seconds - before
        return read


class Streamed(_Read):
    """A `Feed` of examples that are read block by block, from the first requested step on.

    Args:
        stream: the examples to train on.
        schedule: which of them every step sees.
        model: a compiled Keras model, which they have to fit.
        width: room for each batch; None for the largest, which may be smaller than `schedule.batch_size`.
    """

    def __init__(self, stream: Stream, schedule: Schedule, model: "keras.Model", width: int | None = None) -> None:
        super().__init__()
        self._schedule, self._width = schedule, width or schedule.sizes[0]
        self._blocks = Blocks(stream, model, "training")
        self._steps = self._blocks.batches(self._width, schedule.total_steps)
        self._ends_with_epochs = schedule.steps_per_epoch > self._steps
        """Whether no block has steps of two epochs, where there are several blocks in one: of about the same size."""
        if self._ends_with_epochs:
            self._steps = evenly(schedule.steps_per_epoch, self._steps)
        self._rows = self._steps * self._width
        self.data = self._blocks.form(self._rows)
        self.order: jax.Array = jax.device_put(np.arange(self._rows, dtype=np.int32).reshape(self._steps, -1))
        self._block = _Block(0, 0, ())

    def forms(self) -> list[StepBlock]:
        """See `Feed`."""
        return [StepBlock(self.data, self.order, size, size) for size in self._schedule.sizes]

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """See `Feed`."""
        self.close()
        self._block = _Block(step, step, ())
        self._ahead = Ahead(self._read(step), interrupted)

    def step_blocks(self, epoch: int, first: int, last: int, synchronise: Callable[[], Any]) -> Iterator[StepBlock]:
        """See `Feed`."""
        start = self._schedule.first_step(epoch)
        while first < last:
            if first >= self._block.last:
                read = self._next(synchronise)
                if read is None:
                    return
                self._block = read
            block, size = self._block, self._schedule.size(first)
            stop = min(last, block.last)
            bounds = map(np.int32, (first - start, stop - start, block.first - start))
            yield StepBlock(block.data, self.order, size, size, *bounds, read=block.first)
            first = stop

    def _read(self, step: int) -> Iterator[_Block]:
        """Blocks from a step on, to the end of the training; runs in the reader's thread."""
        schedule = self._schedule
        epoch, order = -1, np.empty((0, self._width), np.int32)
        while step < schedule.total_steps:
            last = min(step + self._steps, schedule.total_steps)
            if self._ends_with_epochs:
                last = min(last, schedule.last_step(step // schedule.steps_per_epoch))
            rows = []
            for number in range(step // schedule.steps_per_epoch, (last - 1) // schedule.steps_per_epoch + 1):
                if number != epoch:
                    epoch, order = number, schedule.order(number, self._width)
                start = schedule.first_step(number)
                rows.append(order[max(step - start, 0) : last - start])
            yield _Block(step, last, self._load(np.concatenate(rows)))
            step = last

    def _load(self, order: Int32[np.ndarray, "steps batch"]) -> Batch:
        """A block on the device, of the examples at these indices (steps, width)."""
        return self._blocks.read(order.reshape(-1), self._rows)


class Batched(_Read):
    """A `Feed` of the batches of a source, from the first requested step on.

    What is ready is given away after a moment, so that a slow source holds up no step that has its batch. A source that
    may change at the end of an epoch is not read beyond it before.

    Args:
        stream: the source.
        schedule: of its steps, of which each sees a batch.
        model: a compiled Keras model, which they have to fit.
    """

    def __init__(self, stream: BatchStream, schedule: Schedule, model: "keras.Model") -> None:
        super().__init__()
        self._stream, self._schedule = stream, schedule
        self._blocks = BatchBlocks(stream, model, "training", schedule.total_steps)
        self._runs: list[Run] = []
        self._ended = -1
        """The step with which the last epoch has ended for the source."""

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """See `Feed`."""
        self._interrupted = interrupted
        self._stream.pass_epochs(step)
        self._ended = step
        self._begin(step, READ_SECONDS)

    def end_epoch(self, step: int) -> None:
        """See `Feed`."""
        if self._stream.epoch and not step % self._stream.epoch and step != self._ended:
            self._ended = step
            self._stream.end_epoch()

    def _begin(self, step: int, seconds: float) -> None:
        """Reads from a step on; the first batches are given away after so many seconds."""
        self.close()
        schedule, stream, blocks = self._schedule, self._stream, self._blocks
        self._end = schedule.total_steps
        if stream.knows_epochs and stream.epoch:
            self._end = min(self._end, step - step % stream.epoch + stream.epoch)
            stream.begin_epoch()
        pieces = stream.steps(step, self._end, schedule.order_of_batches, blocks.together)
        self._runs, self._ahead = [], Ahead(blocks.runs(pieces, step, seconds, READ_SECONDS), self._interrupted)

    def forms(self) -> list[StepBlock]:
        """See `Feed`; the two most frequent ones of those that are read together first."""
        self._runs = self._runs or self._next(lambda: None) or []
        steps: dict[Hashable, int] = {}
        for run in self._runs:
            steps[run.block.form] = steps.get(run.block.form, 0) + run.last - run.first
        blocks: dict[Hashable, BatchBlock] = {run.block.form: run.block for run in self._runs}
        return [StepBlock(*blocks[form]) for form in sorted(blocks, key=lambda form: -steps[form])[:2]]

    def step_blocks(self, epoch: int, first: int, last: int, synchronise: Callable[[], Any]) -> Iterator[StepBlock]:
        """See `Feed`."""
        start = self._schedule.first_step(epoch)
        if first == self._end:
            self.end_epoch(first)  # of which the loop hears at the ends of spans alone
            self._begin(first, _FIRST_SECONDS)
        while first < last:
            while self._runs and self._runs[0].last <= first:
                self._runs.pop(0)
            self._runs = self._runs or self._next(synchronise)
            if not self._runs:
                self._runs = []
                return
            run, read = self._runs[0], self._runs[-1].last
            stop = min(last, run.last)
            bounds = map(np.int32, (first - start, stop - start, run.first - run.place - start))
            yield StepBlock(*run.block, *bounds, read=read)
            first = stop


def feed_of(examples: Examples | Stream, schedule: Schedule, model: "keras.Model") -> Feed:
    """The way of these examples into the loop."""
    if isinstance(examples, BatchStream):
        return Batched(examples, schedule, model)
    return Streamed(examples, schedule, model) if isinstance(examples, Stream) else Resident(examples, schedule)
