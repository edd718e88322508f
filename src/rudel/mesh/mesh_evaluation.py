"""Evaluation over a mesh: each device has its rows of every batch, and every example counts exactly once."""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import jax
import numpy as np

from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.blocks import Blocks, is_small
from rudel.loop.compiled_loop import Batch, Program
from rudel.loop.evaluation import Evaluator
from rudel.loop.model_state import ModelState
from rudel.mesh.mesh_feed import Held
from rudel.mesh.mesh_loop import compile_evaluation
from rudel.mesh.placement import Placement

if TYPE_CHECKING:
    import keras


class MeshEvaluator(Evaluator):
    """See `Evaluator`; what is left over from full batches, and cannot be sharded, is computed by every device.

    Args:
        placement: where the model is.
        batch_size: examples a step, made a little smaller where it cannot be sharded.
    """

    def __init__(
        self,
        model: "keras.Model",
        placement: Placement,
        state: ModelState,
        examples: Examples | Stream,
        batch_size: int,
        what: str = "evaluation",
    ) -> None:
        self._model, self._placement = model, placement
        shards = placement.shards
        self._count, self._batch_size = len(examples), max(batch_size - batch_size % shards, min(shards, batch_size))
        batches, rest = divmod(self._count, self._batch_size)
        self._blocks = Blocks(Held(examples) if isinstance(examples, Examples) else examples, model, what)
        resident = isinstance(examples, Examples) or is_small(self._blocks)
        self._batches = max(1, batches) if resident else self._blocks.batches(self._batch_size, max(1, batches))
        self._full = self._compiled(state, self._batches, self._batch_size) if batches else None
        self._last = self._compiled(state, 1, rest) if rest else None
        self._held = list(self._read(self._blocks)) if resident else None

    def _batch_blocks(self, state: ModelState) -> Generator[tuple[Program, Batch, int, int], None, None]:
        """See `Evaluator`."""
        if self._held is None:
            yield from super()._batch_blocks(state)
            return
        yield from self._held

    def _read(self, blocks: Blocks) -> Iterator[tuple[Program, Batch, int, int]]:
        """See `Evaluator`; each process reads the rows of its devices."""
        size = self._batch_size
        full = self._count - self._count % size
        for first in range(0, full, self._batches * size):
            indices = np.arange(first, min(first + self._batches * size, full)).reshape(-1, size)
            assert self._full
            yield self._full, self._load(blocks, indices, self._batches), 0, len(indices)
        if self._last:
            yield self._last, self._load(blocks, np.arange(full, self._count)[None], 1), 0, 1

    def _load(self, blocks: Blocks, indices: np.ndarray, batches: int) -> Batch:
        rows = indices.shape[1]
        columns = self._placement.columns(rows)
        batch = blocks.arrays(indices[:, columns].reshape(-1), batches * len(columns))
        batch = jax.tree.map(lambda a: a.reshape(batches, len(columns), *a.shape[1:]), batch)
        return self._placement.put_batches(batch, rows)

    def _compiled(self, state: ModelState, batches: int, rows: int) -> Program:
        blocks, sharding = self._blocks, self._placement.batches(rows)
        assert blocks
        form = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((batches, rows, *a.shape[1:]), a.dtype, sharding=sharding),
            blocks.form(rows),
        )
        return compile_evaluation(self._model, self._placement, state, form, rows)
