"""Blocks of a source's batches: those of the same shapes and dtypes lie in one block, in the order of their steps.

Compiled programs take arrays of fixed shapes. So each form of a batch has programs of its own, as in Keras; a block has
room for a number of batches that only grows, so that they are few. What is not filled is never read.
"""

import itertools
import math
import time
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from rudel.data.batch_source import BatchStream, Piece
from rudel.data.dataset import Examples, aligned_empty
from rudel.loop.blocks import BLOCK_BYTES, MOST_STEPS, batches_of, evenly
from rudel.loop.compiled_loop import Batch
from rudel.loop.data_checks import as_examples, check_examples

if TYPE_CHECKING:
    import keras


class BatchBlock(NamedTuple):
    """Batches of one form, on the device.

    Args:
        data: their examples, `size` a batch.
        order: of the examples in `data`, int32 (batches, size).
        size: examples of each batch.
        form: what a program is compiled for.
    """

    data: Batch
    order: jax.Array
    size: int
    form: Hashable


class Run(NamedTuple):
    """Steps whose batches lie one after the other in a block.

    Args:
        block: the block.
        place: of the first batch in it.
        first, last: numbers of the steps, the last one exclusive.
    """

    block: BatchBlock
    place: int
    first: int
    last: int


class _Part(NamedTuple):
    """Batches of one form, one after the other, and the number of the first of their examples."""

    examples: Examples
    batches: int
    number: int


class BatchBlocks:
    """Makes blocks of the batches of a source.

    Args:
        stream: the source.
        model: a compiled Keras model, which the labels have to fit.
        what: the data set's part, for messages.
        most: batches that there will be at all, at most; None where that is not known.
    """

    def __init__(self, stream: BatchStream, model: "keras.Model", what: str, most: int | None) -> None:
        self._stream, self._model, self._what = stream, model, what
        batches = batches_of(bytes_of(stream.first), most or MOST_STEPS)
        length = stream.length or 0
        self.together = evenly(length, batches) if length > batches else batches
        """Batches that are read together: some megabytes."""
        form, _ = next(self._parts(Piece(as_examples(stream.first, what), (len(stream.first),), 0)))
        self._room: dict[Hashable, int] = {form: self.together}
        self._orders: dict[tuple[int, int], jax.Array] = {}

    def runs(
        self, pieces: Iterator[Piece], first: int = 0, seconds: float = math.inf, most_seconds: float = math.inf
    ) -> Iterator[list[Run]]:
        """Runs of consecutive steps, in their order, those of some megabytes together.

        Args:
            pieces: the batches of the steps.
            first: number of the first step.
            seconds: after which the first ones are not waited for any longer; for each that follow, twice as long.
            most_seconds: the same for all.

        Raises:
            DataError: an example cannot be trained on.
        """
        while group := self._group(pieces, seconds):
            yield self._runs(group, first)
            first += sum(len(piece.sizes) for piece in group)
            seconds = min(2 * seconds, most_seconds)

    def _group(self, pieces: Iterator[Piece], seconds: float) -> list[Piece]:
        group: list[Piece] = []
        batches, size, end = 0, 0, time.perf_counter() + seconds
        while batches < self.together and size < BLOCK_BYTES and (not group or time.perf_counter() < end):
            if (piece := next(pieces, None)) is None:
                break
            group.append(piece._replace(examples=as_examples(piece.examples, self._what)))
            batches += len(piece.sizes)
            size += bytes_of(piece.examples)
        return group

    def _runs(self, group: list[Piece], first: int) -> list[Run]:
        parts: dict[Hashable, list[_Part]] = {}
        places: list[tuple[Hashable, int, int]] = []  # the form of a run, its first place and how many batches it has
        for piece in group:
            for form, part in self._parts(piece):
                others = parts.setdefault(form, [])
                place = sum(each.batches for each in others)
                others.append(part)
                if places and places[-1][0] == form:
                    form, begin, count = places.pop()
                    places.append((form, begin, count + part.batches))
                else:
                    places.append((form, place, part.batches))
        blocks = {form: self._block(form, found) for form, found in parts.items()}
        ends = list(itertools.accumulate((count for _, _, count in places), initial=first))
        return [Run(blocks[form], place, *ends[i : i + 2]) for i, (form, place, _) in enumerate(places)]

    def _parts(self, piece: Piece) -> Iterator[tuple[Hashable, _Part]]:
        """The batches of a piece, those of the same form that follow each other together."""
        row = 0
        for size, same in itertools.groupby(piece.sizes):
            count = len(list(same))
            rows = slice(row, row + count * size)
            examples = piece.examples if count == len(piece.sizes) else piece.examples.take(rows)
            leaves, structure = jax.tree.flatten(_batch(examples))
            form = size, structure, tuple((array.shape[1:], array.dtype) for array in leaves)
            yield form, _Part(examples, count, piece.number * len(self._stream.first) + row)
            row = rows.stop

    def _block(self, form: Any, parts: Sequence[_Part]) -> BatchBlock:
        size, count = form[0], sum(part.batches for part in parts)
        room = self._room.get(form, 0)
        if count > room:
            self._room[form] = room = max(count, min(4 * room, 2 * self.together))
        batch: Any = jax.tree.map(
            lambda *arrays: _filled(arrays, room * size), *(_batch(part.examples) for part in parts)
        )
        there = Examples(*jax.tree.map(lambda array: array[: count * size], batch))
        numbers = [np.arange(part.number, part.number + part.batches * size) for part in parts]
        check_examples(there, self._model, self._what, np.concatenate(numbers))
        if (room, size) not in self._orders:
            order = np.arange(room * size, dtype=np.int32).reshape(room, size)
            self._orders[room, size] = jax.device_put(order)
        return BatchBlock(jax.device_put(batch), self._orders[room, size], size, (form, room))


def bytes_of(examples: Examples) -> int:
    """Bytes of examples in memory."""
    return sum(array.nbytes for _, array in examples.named_arrays())


def _batch(examples: Examples) -> Batch:
    return examples.x, examples.y, examples.sample_weight


def _filled(arrays: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Arrays one after the other in one that has room for so many rows."""
    first = arrays[0]
    if len(first) == rows:
        return first
    filled, row = aligned_empty((rows, *first.shape[1:]), first.dtype), 0
    for array in arrays:
        filled[row : row + len(array)] = array
        row += len(array)
    return filled
