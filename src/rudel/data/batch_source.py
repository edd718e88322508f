"""Batches of what other libraries feed to Keras (`PyDataset`, `tf.data.Dataset`, `DataLoader`, ...), as a stream.

Sources are recognised by what they can do, so none of these libraries is imported. A source gives batches, in its own
order, and a stream gives examples by index: examples are numbered as they come, and read from one pass after another.

Guarantee: read in their order, as a training that does not shuffle reads them, every batch of a pass is taken once, and
kept no longer than until the next ones are requested.

Limits: indices that lie behind what was read begin a new pass. A source that cannot begin again (a generator) gives the
next examples, whatever their indices.
"""

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rudel.aliases import Tree
from rudel.data.dataset import Arrays, Examples
from rudel.data.stream import Stream
from rudel.errors import DataError, OptionError

_INFINITE = -1  # of tf.data's cardinality
_LEAST_BYTES, _MOST_BYTES = 1 << 22, 1 << 24  # of what is handed over at once


def is_source(data: object) -> bool:
    """Whether an object gives batches: neither arrays, nor a table of them, nor one of Rudel's own kinds.

    >>> is_source(iter([])), is_source(np.zeros(3)), is_source((np.zeros(3),)), is_source({"x": np.zeros(3)})
    (True, False, False, False)
    """
    if data is None or isinstance(data, dict | list | tuple | str | bytes | Stream | Examples):
        return False
    if hasattr(data, "__array__") or hasattr(data, "__dataframe__"):
        return False
    return _is_indexed(data) or hasattr(data, "__iter__")


def stream_of(source: Any, steps: int | None, what: str) -> "BatchStream":
    """The stream of a source.

    Args:
        source: for which `is_source` is true.
        steps: batches of an epoch, where it is not a pass: the next epoch then continues where the last one ended.
        what: the data set's part, for messages.

    Raises:
        OptionError: how many batches there are is not known, and `steps` does not say it.
        DataError: there is no batch, or one is not `x`, `(x, y)` or `(x, y, sample_weight)`.
    """
    batches = _Batches(source, what)
    first = batches.first()
    if first is None:
        raise DataError(f"The {what} data, a {type(source).__name__}, gives no batch.")
    size = len(first)
    if steps is None and (batches.length == _INFINITE or not batches.can_begin_again):
        raise OptionError(
            f"The {what} data, a {type(source).__name__}, does not say how many batches it has: give "
            f"`{'validation_steps' if what == 'validation' else 'steps_per_epoch'}`."
        )
    if steps is not None:
        return BatchStream(batches, steps * size, size, continues=True)
    return BatchStream(batches, batches.rows(size), size, continues=False)


def one_pass(source: Any, what: str) -> "BatchStream | Examples":
    """One pass of a source: as a stream, or in memory where the source cannot begin again.

    Args:
        source: for which `is_source` is true.
        what: the data set's part, for messages.

    Raises:
        DataError: it has no end, there is no batch, or one is not `x`, `(x, y)` or `(x, y, sample_weight)`.
    """
    batches, name = _Batches(source, what), type(source).__name__
    if batches.length == _INFINITE:
        raise DataError(f"The {what} data, a {name}, has no end: give a part of it.")
    if batches.can_begin_again:
        return stream_of(source, None, what)
    parts = list(batches.passes())
    if not parts:
        raise DataError(f"The {what} data, a {name}, gives no batch.")
    return _joined(parts)


class _Batches:
    """Passes over a source.

    Args:
        source: see the module.
        what: the data set's part, for messages.
    """

    def __init__(self, source: Any, what: str) -> None:
        self.source, self.what = source, what
        self.is_indexed = _is_indexed(source)
        self.can_begin_again = self.is_indexed or iter(source) is not source
        self._under_way: Iterator[Examples] | None = None
        self.wanted = 0
        """Examples that are needed next: sources that can hand them over at once do."""
        self._looked_at: list[Examples] = []
        self._batch = (0, 0)  # examples and bytes of the first one

    @property
    def length(self) -> int | None:
        """Batches of a pass; None where that is not known, -1 where there is no end."""
        for name in ("num_batches", "cardinality"):
            found: Any = getattr(self.source, name, None)
            if found is not None:
                value: Any = found() if callable(found) else found
                return int(value) if int(value) >= _INFINITE else None
        try:
            return len(self.source)
        except TypeError:
            return None

    def rows(self, size: int) -> int:
        """Examples of a pass whose first batch has so many; a pass is read to count them only where nothing says it."""
        sampler: Any = getattr(self.source, "sampler", None)
        if hasattr(sampler, "__len__") and getattr(self.source, "batch_size", None) == size:  # a DataLoader
            return len(sampler) // size * size if self.source.drop_last else len(sampler)
        last = self._last()
        if last is not None:
            return (self.length or 1) * size - size + len(last)
        return sum(len(batch) for batch in self.passes())

    def first(self) -> Examples | None:
        """The first batch, which the next pass has, too; None where there is none."""
        batch = next(self.passes(), None)
        if not self.can_begin_again and batch is not None:
            self._looked_at.append(batch)
        if batch is not None:
            self._batch = len(batch), sum(array.nbytes for _, array in batch.named_arrays())
        return batch

    def _last(self) -> Examples | None:
        """The last batch, where it can be had without all others."""
        if not self.length or self.length < 0:
            return None
        if self.is_indexed:
            return self._examples(self.source[self.length - 1])
        if hasattr(self.source, "skip"):
            return self._examples(next(iter(self.source.skip(self.length - 1))))
        return None

    def passes(self) -> Iterator[Examples]:
        """Batches from the beginning; of a source that cannot begin again, the next ones."""
        if self.is_indexed:
            return self._by_number()
        if self.can_begin_again:
            source: Any = self.source
            rows = self._rows_at_once
            if rows and _is_of_tensors(source):
                return self._of_tensors(source)
            if rows and hasattr(source, "rebatch"):  # of tf.data
                source = source.rebatch(rows)
            return map(self._examples, getattr(source, "as_numpy_iterator", source.__iter__)())
        self._under_way = self._under_way or map(self._examples, self.source)
        return self._next_ones(self._under_way)

    @property
    def _rows_at_once(self) -> int:
        examples, size = self._batch
        least, most = (examples * (limit // max(1, size)) for limit in (_LEAST_BYTES, _MOST_BYTES))
        return min(max(self.wanted, least), most)

    def _of_tensors(self, loader: Any) -> Iterator[Examples]:
        """Large batches of a `DataLoader` whose tensors are in memory: indexed at once, not row by row."""
        batches = iter(loader.batch_sampler)
        while True:
            count = max(1, -(-self._rows_at_once // loader.batch_size))
            rows = list(itertools.chain.from_iterable(itertools.islice(batches, count)))
            if not rows:
                return
            in_order = rows == list(range(rows[0], rows[0] + len(rows)))
            index = slice(rows[0], rows[0] + len(rows)) if in_order else rows  # of a slice, nothing is copied
            yield self._examples([tensor[index] for tensor in loader.dataset.tensors])

    def _by_number(self) -> Iterator[Examples]:
        number = 0
        while self.length in (None, _INFINITE) or number < (self.length or 0):
            yield self._examples(self.source[number])
            number += 1
        if hasattr(self.source, "on_epoch_end"):
            self.source.on_epoch_end()

    def _next_ones(self, batches: Iterator[Examples]) -> Iterator[Examples]:
        while self._looked_at:
            yield self._looked_at.pop()
        yield from batches

    def _examples(self, batch: Tree) -> Examples:
        parts = batch if isinstance(batch, tuple | list) else (batch,)
        if not 1 <= len(parts) <= 3:
            raise DataError(
                f"A batch of the {self.what} data must be x, (x, y) or (x, y, sample_weight), not {len(parts)} parts."
            )
        x, y, weight = (*map(_arrays, parts), None, None)[:3]
        return Examples(x, y, weight)


class BatchStream(Stream):
    """The examples of a source; see the module. To be read by one thread at a time.

    Args:
        batches: passes over it.
        rows: examples of an epoch.
        batch_size: examples of its first batch.
        continues: whether an epoch begins where the last one ended.
    """

    def __init__(self, batches: _Batches, rows: int, batch_size: int, continues: bool) -> None:
        self._batches, self._rows, self.batch_size = batches, rows, batch_size
        self.repeatable = batches.can_begin_again and not continues
        """Whether an index means the same example in every pass, so that a training can be resumed."""
        self._lock = threading.Lock()
        self._pass: Iterator[Examples] | None = None
        self._held: list[Examples] = []
        self._first = self._last = self._served = 0  # indices of what is held, and to before which all was given

    def __len__(self) -> int:
        return self._rows

    def take(self, indices: np.ndarray | slice) -> Examples:
        """See `Stream`; a slice is only looked at, and comes again."""
        served = self._served
        looked_at = isinstance(indices, slice)
        numbers = np.arange(self._rows)[indices] if looked_at else np.asarray(indices)
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
        with self._lock:
            taken = _joined([self._run(int(run[0]), int(run[-1]) + 1) for run in runs])
            self._served = served if looked_at else self._served
        return taken

    def fingerprint(self) -> str:
        """See `Stream`: of a source, no more is known than how many examples it has, and of which kind."""
        first = self.take(np.array([0]))
        shapes = [(name, array.shape[1:], str(array.dtype)) for name, array in first.named_arrays()]
        return f"{type(self._batches.source).__name__} {self._rows} {shapes}"

    def _run(self, first: int, last: int) -> Examples:
        """Examples from one index to before another."""
        self._batches.wanted = last - first
        ended = self._served == self._rows and first < self._served
        if self._pass is None or (self.repeatable and (ended or first < self._first)):
            self._pass, self._held, self._first, self._last = self._batches.passes(), [], 0, 0
        elif ended or first < self._first:  # the next epoch, which continues
            self._drop(self._rows)
            self._first = first
            self._last = first + sum(map(len, self._held))
        while self._last < last:
            self._batches.wanted = last - self._last
            self._hold(self._next())
            self._drop(first)
        self._drop(first)
        self._served = last
        return _joined(self._held).take(slice(0, last - first))

    def _next(self) -> Examples:
        assert self._pass is not None
        batch = next(self._pass, None)
        if batch is None and not self.repeatable and self._batches.can_begin_again:
            self._pass = self._batches.passes()
            batch = next(self._pass, None)
        if batch is None:
            name = type(self._batches.source).__name__
            why = "give fewer `steps_per_epoch`, or a source that begins again"
            if self.repeatable:
                why = "only the last batch of a pass may be smaller than the first, so shuffle before you batch"
            raise DataError(
                f"The {self._batches.what} data, a {name}, ended after {self._last:,} of {self._rows:,} examples of an "
                f"epoch: {why}."
            )
        return batch

    def _hold(self, batch: Examples) -> None:
        self._held.append(batch)
        self._last += len(batch)
        if self.repeatable and self._last >= self._rows and self._pass:
            next(self._pass, None)  # lets the source see that the pass is over

    def _drop(self, first: int) -> None:
        """Forgets what lies before an index."""
        while self._held and self._first + len(self._held[0]) <= first:
            self._first += len(self._held.pop(0))
        if self._held and first > self._first:
            self._held[0] = self._held[0].take(slice(first - self._first, None))
            self._first = first


def _is_indexed(data: object) -> bool:
    """Whether batches are to be had by number, as of Keras' `PyDataset`."""
    return hasattr(data, "__getitem__") and (hasattr(data, "num_batches") or hasattr(data, "__len__"))


def _is_of_tensors(source: Any) -> bool:
    """Whether a source is a `DataLoader` that does nothing but to put rows of a `TensorDataset` together."""
    plain = getattr(getattr(source, "collate_fn", None), "__name__", "") == "default_collate"
    tensors = getattr(getattr(source, "dataset", None), "tensors", None)
    return plain and isinstance(tensors, tuple) and not source.num_workers and bool(source.batch_size)


def _arrays(part: Tree) -> Arrays:
    """NumPy arrays of what libraries have for arrays, without float64 and int64, which devices do not compute with."""
    if part is None:
        return None
    if isinstance(part, dict):
        return {key: _arrays(value) for key, value in part.items()}
    if isinstance(part, tuple | list) and part and not np.isscalar(part[0]):
        return tuple(map(_arrays, part))
    detach = getattr(part, "detach", None)
    array = np.asarray(detach().cpu() if detach else part)
    if not array.ndim:
        raise DataError("A source gives single examples, and a training takes batches: batch them first.")
    if array.dtype.kind not in "biufcV":
        raise DataError(f"A source gives {array.dtype} values: give numbers, and labels as integers from 0.")
    narrower = {"float64": np.float32, "int64": np.int32}.get(array.dtype.name)
    if narrower is None and array is part and array.flags.writeable:
        return array.copy()  # the source may write its next batch there
    return array if narrower is None else array.astype(narrower)


def _joined(parts: Sequence[Examples]) -> Examples:
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
            f"A source gives examples of the shapes {shapes[0]} and {shapes[1]}, and all have to be alike: pad them, "
            "or train with model.fit."
        )
    return np.concatenate(parts)
