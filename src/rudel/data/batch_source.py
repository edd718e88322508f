"""Batches of what other libraries feed to Keras (`PyDataset`, `tf.data.Dataset`, `DataLoader`, ...), as a stream.

Sources are recognised by what they can do, so none of these libraries is imported. A training takes whole batches, as
the source gives them. Everything else reads the same batches as a stream of examples, numbered as they come.

Guarantee: a reader gets every batch of a pass once, and holds no more of them than it asked for together, or than the
source has workers.

Limits: an example is found by its index where a pass gives the same examples as the one before. A source that cannot
begin again (a generator) gives the next batches, whatever the index.
"""

import collections
import concurrent.futures
import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rudel.aliases import Tree
from rudel.data.dataset import Arrays, Examples, as_numbers, check_int32
from rudel.data.stream import Stream
from rudel.errors import DataError, OptionError

_INFINITE = -1  # of tf.data's cardinality
_TRIED = 8  # batches that tf.data is asked for, to see how quick it is

READ_SECONDS = 0.25
"""After which batches that a source has given are trained on, however few."""

Order = Callable[[int], np.ndarray]
"""The numbers of a pass's batches in the order in which they are wanted, from the number of the pass."""


class Piece(NamedTuple):
    """Batches of a source, one after the other.

    Args:
        examples: of all of them.
        sizes: examples of each.
        number: of the first one, in its pass.
    """

    examples: Examples
    sizes: Sequence[int]
    number: int


def is_source(data: object) -> bool:
    """Whether an object gives batches: neither arrays, nor a table of them, nor one of Rudel's own kinds.

    >>> is_source(iter([])), is_source(np.zeros(3)), is_source((np.zeros(3),)), is_source({"x": np.zeros(3)})
    (True, False, False, False)
    """
    if data is None or isinstance(data, dict | list | tuple | str | bytes | Stream | Examples):
        return False
    if any(hasattr(data, name) for name in ("__array__", "__dataframe__", "toarray")):  # the last of sparse matrices
        return False
    return _is_indexed(data) or hasattr(data, "__iter__")


def training_stream(source: Any, steps: int | None) -> "BatchStream":
    """The stream of a source to train on.

    Args:
        source: for which `is_source` is true.
        steps: batches of an epoch; None for those of a pass, which is read to count them where nothing else says it.

    Raises:
        OptionError: how many batches there are is not known, and `steps` does not say it.
        DataError: there is no batch, or one is not `x`, `(x, y)` or `(x, y, sample_weight)`.
    """
    batches = _Batches(source, "training")
    if steps is None and batches.has_no_end:
        raise OptionError(_no_length(batches, "steps_per_epoch"))
    count = batches.length
    if steps is None and count is None:
        count = sum(len(piece.sizes) for piece in batches.pieces())
    has_end = count is not None and not batches.has_no_end
    return BatchStream(batches, count if has_end else steps, epoch=steps or count, continues=not has_end)


def pass_of(source: Any, what: str, steps: int | None = None) -> "BatchStream":
    """The stream of a source to evaluate or to predict on.

    Args:
        source: for which `is_source` is true.
        what: the data set's part, for messages.
        steps: batches, the first ones or, of a source that cannot begin again, the next ones; None for all.

    Raises:
        OptionError: validation data that has no end, or can be read once alone, without `steps`.
        DataError: other data without an end; there is no batch, or one is not `x`, `(x, y)` or `(x, y, sample_weight)`.
    """
    batches = _Batches(source, what)
    if steps is None and batches.has_no_end:
        if what == "validation":
            raise OptionError(_no_length(batches, "validation_steps"))
        if batches.length == _INFINITE or batches.is_indexed:
            raise DataError(f"The {what} data, a {batches.name}, has no end: give a part of it.")
    count = None if batches.has_no_end else batches.length
    return BatchStream(batches, min(filter(None, (steps, count)), default=None))


def targets_twice(kind: str) -> OptionError:
    """The error for targets or weights beside data of this kind, which brings its own."""
    return OptionError(f"A {kind} brings its own targets and weights: leave out `y` and `sample_weight`.")


def _no_length(batches: "_Batches", argument: str) -> str:
    return f"The {batches.what} data, a {batches.name}, does not say how many batches it has: give `{argument}`."


class _Batches:
    """Passes over a source.

    Args:
        source: see the module.
        what: the data set's part, for messages.

    Raises:
        DataError: there is no batch.
    """

    def __init__(self, source: Any, what: str) -> None:
        self.source, self.what, self.name = source, what, type(source).__name__
        self.shapes: set[tuple[Any, ...]] = set()
        """Of an example, in the batches that have been read."""
        self.is_indexed = _is_indexed(source)
        self.knows_epochs = self.is_indexed and _knows_epochs(source)
        """Whether the source has hooks for the beginnings and ends of epochs."""
        self.can_begin_again = self.is_indexed or iter(source) is not source
        self.length = _length(source)
        """Batches of a pass; None where that is not known, -1 where there is no end."""
        self._under_way = None if self.can_begin_again else map(self._examples, source)
        pieces = self.pieces()
        first = next(pieces, None)
        if first is None:
            raise DataError(f"The {what} data, a {self.name}, gives no batch.")
        self.first = first.examples
        self._joins = _joined_at_once(pieces) if _can_be_joined(source) else 1
        """Batches that tf.data is asked to join, at most."""
        if self._under_way:
            self._under_way = itertools.chain([self.first], self._under_way)

    @property
    def has_no_end(self) -> bool:
        """Whether there is no end, or no beginning again."""
        return self.length == _INFINITE or (self.length is None and self.is_indexed) or not self.can_begin_again

    def numbered(self, number: int) -> Piece:
        """One batch of an indexed source."""
        examples = self._examples(self.source[number])
        return Piece(examples, (len(examples),), number)

    def pieces(self, first: int = 0, together: int = 1) -> Iterator[Piece]:
        """A pass from a batch on, about so many together; of a source that cannot begin again, the next ones."""
        source = self.source
        if self.is_indexed:
            ends = itertools.count() if self.has_no_end else range(self.length or 0)
            return map(self.numbered, itertools.islice(ends, first, None))
        if self._under_way:
            parts: Iterator[tuple[Examples, Sequence[int]]] = ((batch, (len(batch),)) for batch in self._under_way)
        elif _is_of_tensors(source):
            parts = self._of_tensors(source, first, together)
        elif together > 1 and self._joins > 1:
            parts = self._of_tensorflow(first, min(together, self._joins))
        else:
            skips = first > 0 and hasattr(source, "skip")
            source = source.skip(first) if skips else source
            of_tensorflow = hasattr(source, "as_numpy_iterator")  # whose tensors never change
            found = source.as_numpy_iterator() if of_tensorflow else iter(source)
            found = itertools.islice(found, 0 if skips else first, None)
            parts = ((batch, (len(batch),)) for batch in (self._examples(each, of_tensorflow) for each in found))
        return self._counted(parts, first)

    def _counted(self, parts: Iterator[tuple[Examples, Sequence[int]]], number: int) -> Iterator[Piece]:
        for examples, sizes in parts:
            yield Piece(examples, sizes, number)
            number += len(sizes)

    def _of_tensors(self, loader: Any, first: int, together: int) -> Iterator[tuple[Examples, Sequence[int]]]:
        """Batches of a `DataLoader` whose tensors are in memory: indexed at once, not row by row."""
        batches = itertools.islice(iter(loader.batch_sampler), first, None)
        while chosen := list(itertools.islice(batches, together)):
            rows = list(itertools.chain.from_iterable(chosen))
            in_order = rows == list(range(rows[0], rows[0] + len(rows)))
            index = slice(rows[0], rows[0] + len(rows)) if in_order else rows  # of a slice, nothing is copied
            tensors = [tensor[index] for tensor in loader.dataset.tensors]
            yield self._examples(tensors, stays=True), list(map(len, chosen))

    @functools.cached_property
    def _marked(self) -> Any:
        """Batches of tf.data with a mark on the last row of each."""
        tf = sys.modules["tensorflow"]

        def marked(*batch: Any) -> Any:
            rows = tf.shape(tf.nest.flatten(batch)[0])[0]
            return batch, tf.range(1, rows + 1) // rows

        return self.source.map(marked)

    def _of_tensorflow(self, first: int, together: int) -> Iterator[tuple[Examples, Sequence[int]]]:
        """Batches that tf.data joins, and that are found again by their marks, or by the size that all of them have."""
        rest: Examples | None = None
        size = sys.modules["tensorflow"].nest.flatten(self.source.element_spec)[0].shape[0]
        source = self.source if size else self._marked
        for read in source.skip(first).rebatch(together * len(self.first)).as_numpy_iterator():
            examples = self._examples(read if size else read[0], stays=True)
            ends = np.arange(size, len(examples) + 1, size) if size else np.flatnonzero(read[1]) + 1
            if rest is not None:
                examples, ends = joined([rest, examples]), ends + len(rest)
            whole = int(ends[-1]) if len(ends) else 0
            rest = examples.take(slice(whole, None)) if whole < len(examples) else None
            if whole:
                yield examples if rest is None else examples.take(slice(whole)), np.diff(ends, prepend=0).tolist()

    def _examples(self, batch: Tree, stays: bool = False) -> Examples:
        parts = batch if isinstance(batch, tuple | list) else (batch,)
        if not 1 <= len(parts) <= 3:
            raise DataError(
                f"A batch of the {self.what} data must be x, (x, y) or (x, y, sample_weight), not {len(parts)} parts."
            )
        x, y, weight = (*(_arrays(each, stays) for each in parts), None, None)[:3]
        examples = Examples(x, y, weight)
        self.shapes.add(_shapes(examples))
        return examples


class BatchStream(Stream):
    """The batches of a source, and their examples; see the module.

    Args:
        batches: passes over it.
        length: batches to take of a pass, or of an epoch of a source without an end; None for as many as there are.
        epoch: batches of an epoch; None for `length`.
        continues: whether the source has no end, so that an epoch begins where the last one ended.
    """

    def __init__(
        self, batches: _Batches, length: int | None, epoch: int | None = None, continues: bool = False
    ) -> None:
        self._batches, self._continues = batches, continues
        self.length = length
        self.epoch = epoch or length
        """Batches of an epoch; None where that is not known."""
        self.knows_epochs = batches.knows_epochs
        """Whether the source has hooks for the beginnings and ends of epochs, and may change there."""
        self.first = batches.first
        """The first batch."""
        self.is_indexed = batches.is_indexed and not batches.has_no_end
        """Whether the batches of a pass can be had in any order."""
        self.repeatable = batches.is_indexed or (batches.can_begin_again and not continues)
        """Whether a number means the same batch in every pass, so that a training can be resumed."""
        self._sizes = np.zeros(length or 0, np.int64)  # of a pass's batches, as far as they have been read
        self._lock = threading.Lock()
        self._walk: Iterator[Piece] | None = None
        self._held, self._begin = self.first, 0  # the batch where it is, and the index of its first example

    def steps(self, first: int, last: int, order: Order, together: int) -> Iterator[Piece]:
        """The batches of a training's steps.

        Args:
            first, last: numbers of steps since the beginning of the training, the last one exclusive.
            order: of the batches of each pass, where `is_indexed`; else they come in that of the source.
            together: batches that may come as one piece.

        Raises:
            DataError: there are fewer, or one is none.
        """
        if self._batches.is_indexed:
            return self._noted(self._by_number(first, last, order if self.is_indexed else None))
        return self._noted(self._in_passes(first, last, together))

    def _in_passes(self, first: int, last: int, together: int) -> Iterator[Piece]:
        """Batches in the source's order."""
        batches, length = self._batches, self.length or last
        while first < last:
            place = 0 if self._continues else first % length
            left = last - first if self._continues else min(length - place, last - first)
            pieces, begun = batches.pieces(place, together), first
            for piece in _at_most(pieces, left):
                yield piece
                first += len(piece.sizes)
            if not self._continues:
                next(pieces, None)  # lets the source see that the pass is over
            if first < begun + left and (not self._continues or not batches.can_begin_again or first == begun):
                raise self._ended(first % length)

    def pieces(self, together: int = 1) -> Iterator[Piece]:
        """One pass, in the source's order; of a source that cannot begin again, the next batches.

        Raises:
            DataError: such a source has none left.
        """
        if self._batches.is_indexed and self.length:
            return self._noted(self._whole_pass(self.length))
        count = sys.maxsize if self.length is None else self.length
        found = _at_most(self._batches.pieces(0, together), count)
        return self._noted(found if self._batches.can_begin_again else self._left(found))

    def _left(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The same, if there are any."""
        piece = next(pieces, None)
        if piece is None:
            name = f"{self._batches.what} data, a {self._batches.name},"
            raise DataError(f"The {name} has no batch left: give a source that begins again, or one with more batches.")
        yield piece
        yield from pieces

    def _noted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The same, whose sizes are kept."""
        for piece in pieces:
            if self.length and not self._continues:
                self._sizes[piece.number : piece.number + len(piece.sizes)] = piece.sizes
            yield piece

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        known = self.known_rows
        return sum(len(piece.examples) for piece in self.pieces()) if known is None else known

    @property
    def by_index(self) -> bool:
        """Whether examples can be had by index: a pass is like the last, and all that were read have the same shape."""
        return self.repeatable and len(self._batches.shapes) == 1

    @property
    def known_rows(self) -> int | None:
        """The number of examples, if nothing has to be read to count them; about that of an epoch without an end."""
        if self._continues:
            return len(self._sizes) * len(self.first)
        return int(self._sizes.sum()) if len(self._sizes) and self._sizes.all() else None

    def take(self, indices: np.ndarray | slice) -> Examples:
        """See `Stream`; those of the first batch are at hand."""
        if isinstance(indices, slice):
            at_hand = indices.stop is not None and 0 <= indices.stop <= len(self.first)
            indices = np.arange(*indices.indices(len(self.first) if at_hand else len(self)))
        if indices.max() < len(self.first):
            return self.first.take(indices)
        by_place = np.argsort(indices, kind="stable")
        wanted, parts, done = np.asarray(indices)[by_place], [], 0
        with self._lock:
            if self._walk is None or self._begin > wanted[0]:
                self._walk, self._begin = self.pieces(), 0
                self._held = self._next()
            while done < len(wanted):
                end = self._begin + len(self._held)
                if wanted[done] >= end:
                    self._held, self._begin = self._next(), end
                    continue
                stop = int(np.searchsorted(wanted, end))
                parts.append(self._held.take(wanted[done:stop] - self._begin))
                done = stop
        return joined(parts).take(np.argsort(by_place))

    def in_memory(self) -> Examples:
        """See `Stream`."""
        return joined([piece.examples for piece in self.pieces()])

    def fingerprint(self) -> str:
        """See `Stream`: of a source, no more is known than how many batches it has, and of which kind."""
        return f"{self._batches.name} {self.length} {len(self.first)} {_shapes(self.first)}"

    def pass_epochs(self, steps: int) -> None:
        """Calls the hooks for the epochs of so many steps; Keras ends one before the first, too."""
        self.end_epoch()
        for _ in range(steps // self.epoch if self.epoch else 0):
            self.begin_epoch()
            self.end_epoch()

    def begin_epoch(self) -> None:
        """Calls the source's hook for the beginning of an epoch."""
        self._call("on_epoch_begin")

    def end_epoch(self) -> None:
        """Calls the source's hook for the end of an epoch."""
        self._call("on_epoch_end")

    def _call(self, hook: str) -> None:
        if self.knows_epochs:
            getattr(self._batches.source, hook, lambda: None)()

    def _whole_pass(self, length: int) -> Iterator[Piece]:
        if self._batches.what != "prediction":  # before which Keras ends no epoch
            self.pass_epochs(0)
        self.begin_epoch()
        yield from self._by_number(0, length, None)
        self.end_epoch()

    def _by_number(self, first: int, last: int, order: Order | None) -> Iterator[Piece]:
        """Batches by their numbers."""
        length = self.length or last
        passes = -1
        numbers: Any = range(length)

        def wanted() -> Iterator[int]:
            nonlocal passes, numbers
            for step in range(first, last):
                if order and step // length != passes:
                    passes = step // length
                    numbers = order(passes)
                yield step if self._continues else int(numbers[step % length])

        return _in_order(self._batches.numbered, wanted(), getattr(self._batches.source, "workers", 1))

    def _next(self) -> Examples:
        piece = next(self._walk or iter(()), None)
        if piece is None:
            raise DataError(f"The {self._batches.what} data, a {self._batches.name}, gave fewer examples than before.")
        return piece.examples

    def _ended(self, count: int) -> DataError:
        why = "give fewer `steps_per_epoch`, or a source that begins again"
        if not self._continues:
            why = "every pass has to give as many"
        return DataError(
            f"The {self._batches.what} data, a {self._batches.name}, ended after {count:,} of {self.length:,} batches "
            f"of an epoch: {why}."
        )


def _in_order(read: Callable[[int], Piece], numbers: Iterator[int], workers: Any) -> Iterator[Piece]:
    """Batches by their numbers, read by as many threads as a `PyDataset` has `workers`, whether it asks for processes
    or not: they would import the user's program anew.
    """
    if not isinstance(workers, int) or workers < 2:
        yield from map(read, numbers)
        return
    under_way: collections.deque[concurrent.futures.Future[Piece]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(workers, "batches") as pool:
        try:
            for number in numbers:
                under_way.append(pool.submit(read, number))
                if len(under_way) > workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()


def _at_most(pieces: Iterator[Piece], count: int) -> Iterator[Piece]:
    """Pieces up to so many batches."""
    while count > 0 and (piece := next(pieces, None)) is not None:
        sizes = piece.sizes[:count]
        count -= len(sizes)
        yield (
            piece
            if len(sizes) == len(piece.sizes)
            else piece._replace(examples=piece.examples.take(slice(sum(sizes))), sizes=sizes)
        )


def _shapes(examples: Examples) -> tuple[Any, ...]:
    """Shapes and dtypes of an example."""
    return tuple((array.shape[1:], array.dtype.str) for _, array in examples.named_arrays())


def _length(source: Any) -> int | None:
    """See `_Batches.length`."""
    for name in ("num_batches", "cardinality"):
        if hasattr(source, name):
            found: Any = getattr(source, name)
            value: Any = found() if callable(found) else found
            return int(value) if value is not None and int(value) >= _INFINITE else None
    try:
        return len(source)
    except TypeError:
        return None


def _is_indexed(data: object) -> bool:
    """Whether batches are to be had by number, as of Keras' `PyDataset`."""
    return hasattr(data, "__getitem__") and (hasattr(data, "num_batches") or hasattr(data, "__len__"))


def _is_of_tensors(source: Any) -> bool:
    """Whether a source is a `DataLoader` that does nothing but to put rows of a `TensorDataset` together."""
    plain = getattr(getattr(source, "collate_fn", None), "__name__", "") == "default_collate"
    dataset = getattr(source, "dataset", None)
    if not plain or not _is_of_torch(source, "__iter__") or not _is_of_torch(dataset, "__getitem__"):
        return False
    has_tensors = isinstance(getattr(dataset, "tensors", None), tuple) and not hasattr(dataset, "__getitems__")
    return has_tensors and not source.num_workers and bool(source.batch_size)


def _is_of_torch(value: object, method: str) -> bool:
    """Whether a method of an object is PyTorch's own, not one of a subclass."""
    return str(getattr(getattr(type(value), method, None), "__module__", "")).startswith("torch.")


def _can_be_joined(source: Any) -> bool:
    """Whether a source is a `tf.data.Dataset` whose batches differ in nothing but their numbers of examples."""
    if not hasattr(source, "rebatch") or "tensorflow" not in sys.modules:
        return False
    kinds = sys.modules["tensorflow"].nest.flatten(source.element_spec)
    return all(type(kind).__name__ == "TensorSpec" and kind.shape[1:].is_fully_defined() for kind in kinds)


def _joined_at_once(pieces: Iterator[Any]) -> int:
    """How many batches are read in `READ_SECONDS`, by the time that the next ones take; for very few, one."""
    began, count = time.perf_counter(), 0
    for _ in itertools.islice(pieces, _TRIED):
        count += 1
        if time.perf_counter() - began > READ_SECONDS:
            break
    joined = count * READ_SECONDS / max(time.perf_counter() - began, 1e-6)
    return int(joined) if joined > _TRIED else 1


def _knows_epochs(source: Any) -> bool:
    """Whether a source has more to do at the beginning or end of an epoch than Keras' `PyDataset`, which is nothing."""
    hooks = [getattr(type(source), name, None) for name in ("on_epoch_begin", "on_epoch_end")]
    return any(hook and not str(getattr(hook, "__module__", "")).startswith("keras.") for hook in hooks)


def _arrays(part: Tree, stays: bool) -> Arrays:
    """NumPy arrays of what libraries have for arrays, without float64 and int64, which devices do not compute with.

    They are copies, as a source may write its next batch into the same memory; of what `stays`, they may be views.
    """
    if part is None:
        return None
    if isinstance(part, dict):
        return {key: _arrays(value, stays) for key, value in part.items()}
    if isinstance(part, tuple | list) and part and not np.isscalar(part[0]):
        return tuple(_arrays(value, stays) for value in part)
    detach = getattr(part, "detach", None)
    array = as_numbers(detach().cpu() if detach else part, "A source gives")
    if not array.ndim:
        raise DataError("A source gives single examples, and a training takes batches: batch them first.")
    check_int32(array, "a batch")
    dtype = {"float64": np.float32, "int64": np.int32}.get(array.dtype.name, array.dtype)
    return array.astype(dtype, copy=not stays)


def joined(parts: Sequence[Examples]) -> Examples:
    """Examples one after the other.

    Raises:
        DataError: they have different shapes.
    """
    if len(parts) == 1:
        return parts[0]
    return Examples(*(_stacked([getattr(part, name) for part in parts]) for name in ("x", "y", "sample_weight")))


def _stacked(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: _stacked([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked([part[place] for part in parts]) for place in range(len(first)))
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) > 1:
        raise DataError(
            f"A source gives examples of the shapes {shapes[0]} and {shapes[1]}, and several hosts or devices take "
            "them from one array: pad them to one shape, or train on one device."
        )
    return np.concatenate(parts)
