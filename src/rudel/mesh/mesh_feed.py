"""Training examples on their way to a mesh, sharded along the batch; see `rudel.loop.feed`.

Examples in memory are on every device, and each takes its rows of a step from them, as one device does. On processors
that costs nothing, as all devices read the same memory. Where accelerators have not enough of it, and of streams,
blocks of steps are read ahead, and each process reads only the rows of its devices.
"""

from typing import TYPE_CHECKING

import jax
import numpy as np

from rudel.array_types import Int32
from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.compiled_loop import Batch
from rudel.loop.feed import Feed, Resident, Streamed
from rudel.loop.schedule import Schedule
from rudel.mesh.placement import Placement

if TYPE_CHECKING:
    import keras


LARGEST_SHARE = 0.25
"""Of an accelerator's memory, for examples."""


class MeshResident(Resident):
    """Examples that are on every device."""

    def __init__(self, examples: Examples, schedule: Schedule, placement: Placement) -> None:
        self._schedule, self._placement, self._epoch = schedule, placement, 0
        self.data = placement.share((examples.x, examples.y, examples.sample_weight))
        self.order = self._ordered(0)

    def _ordered(self, epoch: int) -> jax.Array:
        order, columns = self._schedule.order(epoch), self._placement.columns(self._schedule.batch_size)
        return self._placement.put_batches(order[:, columns], self._schedule.batch_size)


class MeshStreamed(Streamed):
    """Examples that are read block by block, (steps, batch, ...) each."""

    def __init__(self, stream: Stream, schedule: Schedule, model: "keras.Model", placement: Placement) -> None:
        self._placement, self._columns = placement, placement.columns(schedule.batch_size)
        super().__init__(stream, schedule, model, schedule.batch_size)
        rows, sharding = schedule.batch_size, placement.batches(schedule.batch_size)
        self.data = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((self._steps, rows, *a.shape[1:]), a.dtype, sharding=sharding), self.data
        )
        self.order = placement.put(np.arange(self._steps, dtype=np.int32), placement.replicated)

    def _load(self, order: Int32[np.ndarray, "steps batch"]) -> Batch:
        columns = self._columns
        batch = self._blocks.arrays(order[:, columns].reshape(-1), self._steps * len(columns))
        batch = jax.tree.map(lambda a: a.reshape(self._steps, len(columns), *a.shape[1:]), batch)
        return self._placement.put_batches(batch, self._schedule.batch_size)


class Held(Stream):
    """Examples in memory, read as a stream is."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def take(self, indices: np.ndarray | slice) -> Examples:
        """The examples at these indices."""
        return self._examples.take(indices)

    def fingerprint(self) -> str:
        """Nothing: those of examples are taken before."""
        return ""


def feed_of(examples: Examples | Stream, schedule: Schedule, model: "keras.Model", placement: Placement) -> Feed:
    """The way of these examples to a mesh."""
    if isinstance(examples, Examples) and _fit(examples, placement):
        return MeshResident(examples, schedule, placement)
    stream = Held(examples) if isinstance(examples, Examples) else examples
    return MeshStreamed(stream, schedule, model, placement)


def _fit(examples: Examples, placement: Placement) -> bool:
    """Whether examples can be on every device."""
    device = placement.mesh.local_devices[0]
    if device.platform == "cpu":
        return True
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return not limit or sum(array.nbytes for _, array in examples.named_arrays()) <= LARGEST_SHARE * limit
