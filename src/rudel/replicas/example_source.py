"""The training examples as pieces to be sent to hosts: made at once of arrays in memory, or one by one of a stream.

A piece of a stream is named by the stream's fingerprint and its place, so that nothing is read to learn which pieces a
host has already; it is read, checked and compressed when a host needs it.

For JAX, numbers of 64 bits travel in the 32 bits that it computes in: half the bytes, and a host need not cast its
whole array, in which rows that it was not sent are whatever the memory held.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.blocks import Blocks
from rudel.loop.compiled_loop import Batch
from rudel.loop.model_state import computed_in
from rudel.replicas.members import Piece
from rudel.shipping import pieces
from rudel.shipping.host_examples import cut, rows_of

if TYPE_CHECKING:
    import keras


class Source:
    """The source of pieces.

    Args:
        examples: to train on.
        shuffle: whether a piece is to be of examples from everywhere.
        model: a compiled Keras model, which the examples have to fit.
    """

    def __init__(self, examples: Examples | Stream, shuffle: bool, model: "keras.Model") -> None:
        self._examples = examples
        self._blocks = Blocks(examples, model, "training") if isinstance(examples, Stream) else None
        self._count, self._shuffle = len(examples), shuffle
        form = self._blocks.form(self._count) if self._blocks else _form_of(examples)  # type: ignore[arg-type]
        self.form: Batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, computed_in(leaf.dtype)), form)
        """Shapes and dtypes of (x, y, sample_weight) of all examples."""

    @property
    def leaves(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape of an example, and dtype, of every array."""
        return [(leaf.shape[1:], str(leaf.dtype)) for leaf in jax.tree.leaves(self.form)]

    @property
    def row_bytes(self) -> int:
        """Bytes of one example."""
        return sum(int(np.prod(leaf.shape[1:])) * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.form))

    @property
    def nbytes(self) -> int:
        """Bytes of all examples."""
        return self._count * self.row_bytes

    def pieces(self, workers: int) -> list[Piece]:
        """Pieces for so many workers. Of arrays, they are made here, which takes time."""
        order = np.random.default_rng(0).permutation(self._count) if self._shuffle else np.arange(self._count)
        spans = cut(self._count, self.row_bytes, workers)
        if self._blocks:
            return self._pieces_of_stream(self._blocks, spans, order)
        arrays = jax.tree.leaves(_arrays_of(self._examples))
        made = [(span, *pieces.encode(self._cast(rows_of(arrays, span, order)))) for span in spans]
        return [Piece(name, span, lambda content=content: content) for span, name, content in made]

    def _pieces_of_stream(self, blocks: Blocks, spans: Sequence[tuple[int, int]], order: np.ndarray) -> list[Piece]:
        whole = f"{blocks.stream.fingerprint()} {self._count} {self._shuffle} {self.leaves}"

        def content(span: tuple[int, int]) -> bytes:
            found = jax.tree.leaves(_arrays_of(blocks.examples(order[slice(*span)])))
            return pieces.encode(self._cast(found))[1]

        names = [hashlib.sha256(f"{whole} {span}".encode()).hexdigest() for span in spans]
        return [Piece(name, span, lambda span=span: content(span)) for name, span in zip(names, spans, strict=True)]

    def _cast(self, rows: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(a).astype(dtype, copy=False) for a, (_, dtype) in zip(rows, self.leaves, strict=True)]


def _arrays_of(examples: Any) -> tuple[Any, Any, Any]:
    return (examples.x, examples.y, examples.sample_weight)


def _form_of(examples: Examples) -> Batch:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), np.asarray(a[:1]).dtype), _arrays_of(examples))
