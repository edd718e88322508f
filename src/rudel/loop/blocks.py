"""Blocks of a stream: some megabytes of examples, read, checked, and put on the device in arrays of one size.

Compiled programs take arrays of fixed shapes, so a block that is not full is filled up with zeros, which nobody reads.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from rudel.aliases import Tree
from rudel.array_types import Integer, Shaped
from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.errors import DataError
from rudel.loop.compiled_loop import Batch
from rudel.loop.data_checks import as_examples, check_examples

if TYPE_CHECKING:
    import keras

BLOCK_BYTES = 12e6
"""Aim for a block's size. Up to four are in memory at once: two on the device, one ready, one being read."""

MOST_STEPS = 512
"""Steps of a block of tiny examples, so that the first one does not have to be waited for."""


def as_batch(examples: Examples) -> Batch:
    """Puts examples on the device, in the form that the compiled loops take."""
    return jax.device_put((examples.x, examples.y, examples.sample_weight))


def batches_of(size: int, most: int) -> int:
    """The number of batches of so many bytes that a block should have, of at most so many at all."""
    return max(1, min(int(BLOCK_BYTES // max(1, size)), MOST_STEPS, most))


def evenly(count: int, most: int) -> int:
    """The number of batches of a block, at most so many, where blocks of about the same size hold all `count`.

    >>> evenly(1000, 512), evenly(100, 512)
    (500, 100)
    """
    return -(-count // -(-count // most))


class Blocks:
    """Reads blocks of a stream.

    Args:
        stream: the examples.
        model: a compiled Keras model, which the labels have to fit.
        what: the data set's part, for messages.
    """

    def __init__(self, stream: Stream, model: "keras.Model", what: str) -> None:
        self.stream, self._model, self._what = stream, model, what
        self._row = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), as_batch(self._read([0])))

    @property
    def row_bytes(self) -> int:
        """Bytes of one example on the device."""
        return sum(int(np.prod(row.shape)) * row.dtype.itemsize for row in jax.tree.leaves(self._row))

    def form(self, rows: int) -> Batch:
        """Shapes and dtypes of a block of so many examples."""
        return jax.tree.map(lambda row: jax.ShapeDtypeStruct((rows, *row.shape), row.dtype), self._row)

    def batches(self, batch_size: int, most: int) -> int:
        """The number of batches that a block should have."""
        return batches_of(self.row_bytes * batch_size, most)

    def read(self, indices: Integer[np.ndarray, "examples"], rows: int | None = None) -> Batch:
        """The examples at these indices, on the device; rows of an index of -1, and those up to `rows`, are zeros.

        Raises:
            DataError: one cannot be read, or is none that can be trained on.
        """
        return jax.device_put(self.arrays(indices, rows))

    def arrays(self, indices: Integer[np.ndarray, "examples"], rows: int | None = None) -> Batch:
        """The same in memory."""
        there = np.flatnonzero(indices >= 0)
        count = len(indices) if rows is None else rows
        if not len(there):
            return jax.tree.map(lambda row: np.zeros((count, *row.shape), row.dtype), self._row)
        examples = self._read(indices[there])
        batch: Tree = (examples.x, examples.y, examples.sample_weight)
        if len(there) < count:
            batch = jax.tree.map(lambda a: _spread(a, there, count), batch)
        return batch

    def examples(self, indices: Integer[np.ndarray, "examples"]) -> Examples:
        """The examples at these indices, in memory, checked; raises as `read` does."""
        return self._read(indices)

    def _read(self, indices: np.ndarray | Sequence[int]) -> Examples:
        indices = np.asarray(indices)
        examples = as_examples(self.stream.take(indices), self._what)
        if len(examples) != len(indices):
            raise DataError(
                f"The {self._what} stream {type(self.stream).__name__} gave {len(examples):,} examples where "
                f"{len(indices):,} were asked for: its `take` has to give one for each index."
            )
        self._check_form(examples)
        check_examples(examples, self._model, self._what, indices)
        return examples

    def _check_form(self, examples: Examples) -> None:
        row = getattr(self, "_row", None)
        if row is None:
            return
        batch = (examples.x, examples.y, examples.sample_weight)
        same = jax.tree.structure(batch) == jax.tree.structure(row)
        found = [a.shape[1:] for a in jax.tree.leaves(batch)]
        if not same or found != [r.shape for r in jax.tree.leaves(row)]:
            raise DataError(
                f"The {self._what} stream gives examples of shapes {found}, and gave "
                f"{[r.shape for r in jax.tree.leaves(row)]} before: all have to be alike."
            )


def _spread(
    array: Shaped[np.ndarray, "some *row"], places: Integer[np.ndarray, "some"], count: int
) -> Shaped[np.ndarray, "count *row"]:
    """An array of so many rows, with these rows at their places and zeros elsewhere."""
    spread = np.zeros((count, *array.shape[1:]), array.dtype)
    spread[slice(len(places)) if places[-1] == len(places) - 1 else places] = array  # a slice is quicker
    return spread


def is_small(blocks: Blocks) -> bool:
    """Whether all examples of a stream together are no more than what is in memory of a larger one."""
    return len(blocks.stream) * blocks.row_bytes <= 2 * BLOCK_BYTES
