"""Evaluation over a mesh: each device has its rows of every batch, and every example counts exactly once.

What a model measures may depend on the batches, as a sum or a loss within a batch does, so these are the batches of one
device; of the default size alone, they are made a little smaller for a number of devices that does not divide it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import numpy as np

from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.batch_sizes import DEFAULT_BATCH_SIZE
from rudel.loop.blocks import Blocks, is_small
from rudel.loop.compiled_loop import Batch, Program
from rudel.loop.evaluation import Evaluator, HeldPass, ReadPass, Step
from rudel.loop.model_state import ModelState
from rudel.mesh.mesh_feed import Held
from rudel.mesh.mesh_loop import compile_evaluation
from rudel.mesh.placement import Placement
from rudel.session.job import Job

if TYPE_CHECKING:
    import keras


def mesh_validation_batch_size(job: Job, shards: int) -> int:
    """Examples a step of a validation, as on one device; of the default, a little fewer where it cannot be sharded."""
    size = job.validation_batch_size
    own = job.options.validation_batch_size is None and size == DEFAULT_BATCH_SIZE < len(job.validation or ())
    return size - size % shards if own else size


def make_mesh_evaluator(
    model: "keras.Model",
    placement: Placement,
    state: ModelState,
    examples: Examples | Stream,
    batch_size: int,
    what: str = "evaluation",
) -> Evaluator:
    """An `Evaluator` over batches of a given size; one that cannot be sharded is computed by every device.

    Args:
        model: a built, compiled Keras model.
        placement: where the model is.
        state: its state; only shapes and dtypes are looked at.
        examples: what to evaluate on.
        batch_size: examples a step.
        what: what messages call the examples.

    Raises:
        DataError, ModelError: an example cannot be read, or the model's `test_step` not be compiled.
    """
    count = len(examples)
    batches, rest = divmod(count, batch_size)
    blocks = Blocks(Held(examples) if isinstance(examples, Examples) else examples, model, what)
    resident = isinstance(examples, Examples) or is_small(blocks)
    together = max(1, batches) if resident else blocks.batches(batch_size, max(1, batches))

    def compiled(batches: int, rows: int) -> Program:
        sharding = placement.batches(rows)
        form = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((batches, rows, *a.shape[1:]), a.dtype, sharding=sharding),
            blocks.form(rows),
        )
        return compile_evaluation(model, placement, state, form, rows)

    full = compiled(together, batch_size) if batches else None
    remainder = compiled(1, rest) if rest else None

    def read() -> Iterator[Step]:
        for first in range(0, batches * batch_size, together * batch_size):
            indices = np.arange(first, min(first + together * batch_size, batches * batch_size)).reshape(-1, batch_size)
            assert full
            yield full, _load(blocks, placement, indices, together), 0, len(indices)
        if remainder:
            yield remainder, _load(blocks, placement, np.arange(batches * batch_size, count)[None], 1), 0, 1

    programs = [each for each in (full, remainder) if each]
    return Evaluator(model, HeldPass(read()) if resident else ReadPass(programs, read))


def _load(blocks: Blocks, placement: Placement, indices: np.ndarray, batches: int) -> Batch:
    """Batches of rows: int (B, rows) of the stream, filled up to so many; each process reads those of its devices."""
    rows = indices.shape[1]
    columns = placement.columns(rows)
    batch = blocks.arrays(indices[:, columns].reshape(-1), batches * len(columns))
    batch = jax.tree.map(lambda a: a.reshape(batches, len(columns), *a.shape[1:]), batch)
    return placement.put_batches(batch, rows)
