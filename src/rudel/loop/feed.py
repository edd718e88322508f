"""Training examples on their way into the compiled loop: all on the device at once, or block by block from a stream.

Either way a step sees the examples that the schedule says, so the weights are the same bits. Of a stream, blocks of
steps are read and put on the device while earlier ones are being computed. A block may reach over the end of an epoch.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np

from rudel.array_types import Int32
from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.blocks import Blocks, as_batch
from rudel.loop.compiled_loop import Batch
from rudel.loop.read_ahead import Ahead
from rudel.loop.schedule import Schedule

if TYPE_CHECKING:
    import keras


class StepBlock(NamedTuple):
    """Steps of an epoch whose examples are on the device; see `rudel.loop.compiled_loop.compile_training`."""

    data: Batch
    order: Int32[jax.Array, "steps *batch"]
    first: np.int32
    last: np.int32
    offset: np.int32


class Feed(Protocol):
    """Brings the examples of steps to the device.

    Attributes:
        data, order: what the loop is compiled for; arrays, or their shapes and dtypes.
    """

    data: Batch
    order: jax.Array

    @property
    def wait_seconds(self) -> float:
        """Seconds in which there was nothing to compute with."""
        ...

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Begins to read, from this step on."""
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

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """See `Feed`; there is nothing to read."""

    def step_blocks(self, epoch: int, first: int, last: int, synchronise: Callable[[], Any]) -> Iterator[StepBlock]:
        """See `Feed`; one block."""
        if epoch != self._epoch:
            self._epoch, self.order = epoch, self._ordered(epoch)
        start = self._schedule.first_step(epoch)
        yield StepBlock(self.data, self.order, np.int32(first - start), np.int32(last - start), np.int32(0))

    def close(self) -> None:
        """See `Feed`."""

    def _ordered(self, epoch: int) -> Any:
        """The order of an epoch, on the device."""
        return jax.device_put(self._schedule.order(epoch))


class _Block(NamedTuple):
    first: int
    last: int
    data: Batch


class Streamed:
    """A `Feed` of examples that are read block by block, from the first requested step on.

    Args:
        stream: the examples to train on.
        schedule: which of them every step sees.
        model: a compiled Keras model, which they have to fit.
    """

    def __init__(self, stream: Stream, schedule: Schedule, model: "keras.Model") -> None:
        self._schedule = schedule
        self._blocks = Blocks(stream, model, "training")
        self._steps = self._blocks.batches(schedule.batch_size, schedule.total_steps)
        self._ends_with_epochs = schedule.steps_per_epoch > self._steps
        """Whether no block has steps of two epochs, where there are several blocks in one: of about the same size."""
        if self._ends_with_epochs:
            self._steps = -(-schedule.steps_per_epoch // -(-schedule.steps_per_epoch // self._steps))
        self._rows = self._steps * schedule.batch_size
        self.data = self._blocks.form(self._rows)
        self.order: jax.Array = jax.device_put(np.arange(self._rows, dtype=np.int32).reshape(self._steps, -1))
        self._ahead: Ahead[_Block] | None = None
        self._block = _Block(0, 0, ())
        self._waited = 0.0

    @property
    def wait_seconds(self) -> float:
        """See `Feed`."""
        return self._waited

    def start(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """See `Feed`."""
        self.close()
        self._block = _Block(step, step, ())
        self._ahead = Ahead(self._read(step), interrupted)

    def step_blocks(self, epoch: int, first: int, last: int, synchronise: Callable[[], Any]) -> Iterator[StepBlock]:
        """See `Feed`."""
        start = self._schedule.first_step(epoch)
        while first < last:
            if first >= self._block.last and not self._advance(synchronise):
                return
            block = self._block
            stop = min(last, block.last)
            yield StepBlock(block.data, self.order, *map(np.int32, (first - start, stop - start, block.first - start)))
            first = stop

    def close(self) -> None:
        """See `Feed`."""
        if self._ahead:
            self._ahead.close()
        self._ahead = None

    def _advance(self, synchronise: Callable[[], Any]) -> bool:
        """Goes on to the next block; only time in which the device has nothing to do counts as waiting."""
        assert self._ahead
        if not self._ahead.ready:
            synchronise()
        before = self._ahead.wait_seconds
        block = next(self._ahead, None)
        self._waited += self._ahead.wait_seconds - before
        self._block = block or self._block
        return block is not None

    def _read(self, step: int) -> Iterator[_Block]:
        """Blocks from a step on, to the end of the training; runs in the reader's thread."""
        schedule = self._schedule
        epoch, order = -1, np.empty((0, schedule.batch_size), np.int32)
        while step < schedule.total_steps:
            last = min(step + self._steps, schedule.total_steps)
            if self._ends_with_epochs:
                last = min(last, schedule.last_step(step // schedule.steps_per_epoch))
            rows = []
            for number in range(step // schedule.steps_per_epoch, (last - 1) // schedule.steps_per_epoch + 1):
                if number != epoch:
                    epoch, order = number, schedule.order(number)
                start = schedule.first_step(number)
                rows.append(order[max(step - start, 0) : last - start])
            yield _Block(step, last, self._load(np.concatenate(rows)))
            step = last

    def _load(self, order: Int32[np.ndarray, "steps batch"]) -> Batch:
        """A block on the device, of the examples at these indices (steps, batch_size)."""
        return self._blocks.read(order.reshape(-1), self._rows)


def feed_of(examples: Examples | Stream, schedule: Schedule, model: "keras.Model") -> Feed:
    """The way of these examples into the loop."""
    return Streamed(examples, schedule, model) if isinstance(examples, Stream) else Resident(examples, schedule)
