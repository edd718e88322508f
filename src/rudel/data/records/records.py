"""Records as a stream of examples: what `rudel.Records` is."""

import copy
import threading
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from typing import Any

import numpy as np

from rudel.cores import usable_cores
from rudel.data.dataset import Examples
from rudel.data.records.batches import Batches
from rudel.data.records.code import code_fingerprint
from rudel.data.records.collection import Collection
from rudel.data.records.delegation import Delegation, Function
from rudel.data.records.example_features import Columns, Features, Shape, columns_like
from rudel.data.records.mapping import Mapping
from rudel.data.records.rows import Row, examples_of, row_of, row_of_batch
from rudel.data.records.shard_files import Paths, find_shards
from rudel.data.stream import Stream
from rudel.errors import OptionError

_NOT_PICKLED = ("_lock", "_known_rows", "_delegation")


class Records(Stream):
    """Examples in TFRecord files, read when they are needed; TensorFlow is not.

    Opening walks through the headers of all files; contents are read, and their checksums verified, when they are
    taken.
    Without a map function an example is the dict of its features, which then have to be alike in all examples: byte
    strings become uint8, (length,); numbers int64 or float32, () for one and (k,) for several.

    Args:
        paths: a folder with shards (`train-00000-of-00004.tfrecord`), of which those of `split` are taken; a file, a
            pattern, or several files. Addresses such as `s3://bucket/folder` are read by fsspec.
        split: which set of a folder; None for all of them.
        features: names of the features to read, or a shape for each name: `{"image": (28, 28), "label": ()}`, where
            bytes become uint8 and None means as they come. None for all features.
        skip_corrupt: leave damaged records out instead of refusing them. All are read once for that; `skipped` counts.
        workers: threads, and processes, that map functions run in; None for as many as there are cores.
        processes: whether map functions of single examples run in processes, which get copies of them, rather than in
            threads; None for where it pays. Functions that cannot be pickled always run in threads.

    Raises:
        DataError: there are no such files, a shard is missing, a file is no TFRecord file, damaged or empty, or a
            package for an address is missing.
        OptionError: an argument that cannot be.
    """

    def __init__(
        self,
        paths: Paths,
        split: str | None = "train",
        features: Sequence[str] | MappingOf[str, Shape | None] | None = None,
        skip_corrupt: bool = False,
        workers: int | None = None,
        processes: bool | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise OptionError(f"`workers` must be a whole number of at least 1, not {workers}.")
        if isinstance(features, str):
            raise OptionError(f'`features` must be a list of names or a shape for each: give ["{features}"].')
        if features is not None and not isinstance(features, MappingOf):
            features = dict.fromkeys(features)
        for name, shape in (features or {}).items():
            if shape is not None and not _is_shape(shape):
                raise OptionError(
                    f"The shape of the feature `{name}` is a tuple of whole numbers, such as (28, 28), or None for as "
                    f"it comes, not {shape!r}."
                )
        self._features = Features(features)
        self._collection = Collection(find_shards(paths, split), skip_corrupt)
        self._workers = workers or usable_cores()
        self._processes = processes
        self._functions: tuple[Function, ...] = ()
        self._batched: tuple[Function, ...] = ()
        self._forget_rows()

    def __len__(self) -> int:
        return len(self._collection)

    @property
    def skipped(self) -> int:
        """The number of damaged records left out; a stretch in which lengths are damaged counts as one."""
        return self._collection.skipped

    def map(self, function: Function, batched: bool = False) -> "Records":
        """These records with a function applied to each example, after those that are applied already.

        The first function gets a dict of features, each further one what the one before it gave. A single value of a
        feature comes as `bytes`, np.int64 or np.float32, several as a list of bytes or an array. The last function
        gives `(x, y)`, `(x, y, sample_weight)` or `x` alone; x and y are arrays or numbers, or dicts, lists or tuples
        of them, of the same shapes and dtypes for every example.

        Args:
            function: of one argument. It must give the same for the same example, and may be called in several threads
                at once, or a copy of it in another process. It may raise `rudel.RudelError`s to say what is
                wrong with an example.
            batched: whether it takes and gives many examples at once, as arrays with the examples along axis 0.

        Raises:
            OptionError: a function of one example after one of many.
        """
        if self._batched and not batched:
            raise OptionError("A function of single examples cannot follow one with batched=True: map it before that.")
        mapped = copy.copy(self)
        if batched:
            mapped._batched = (*self._batched, function)
        else:
            mapped._functions = (*self._functions, function)
        mapped._forget_rows()
        return mapped

    def take(self, indices: np.ndarray | slice) -> Examples:
        """The examples at these indices, in this order; their arrays begin at multiples of 64 bytes.

        Raises:
            DataError: a record is damaged, or not like the first; names the file and the place in it.
            IndexError: there is no such example.
        """
        numbers = self._numbers(indices)
        row, columns, batch_row = self._rows()
        tree = self._columns(columns, numbers) if row is None else row.tree(self._mapping().rows(row, numbers))
        if batch_row is None:
            return examples_of(tree)
        for function in self._batched:
            tree = function(tree)
        first = numbers[0] if len(numbers) else 0
        arrays = batch_row.check_batch(tree, len(numbers), lambda: self._collection.name(int(first)))
        return examples_of(batch_row.tree(arrays))

    def __getitem__(self, index: int) -> Any:
        """One example: its features as a map function gets them, or what functions of single examples made of it."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no example {index}: there are {len(self):,}.")
        return self._mapping().one(index % len(self))

    def fingerprint(self) -> str:
        """See `Stream`; made of the files' names, sizes and checksums, of `features` and of the functions' code."""
        codes = [code_fingerprint(function)[:16] for function in (*self._functions, *self._batched)]
        shapes = self._features.shapes
        chosen = [] if shapes is None else [f"{name}={shape}" for name, shape in sorted(shapes.items())]
        return " ".join([self._collection.fingerprint(), *chosen, *codes])

    def shuffle(self, seed: int = 0) -> Batches:
        """Batches in another order in every epoch; see `Batches.shuffle`."""
        return Batches(self).shuffle(seed)

    def shard(self, replica: int, replicas: int) -> Batches:
        """Batches for one of several replicas; see `Batches.shard`."""
        return Batches(self).shard(replica, replicas)

    def batch(self, size: int, drop_last: bool = True) -> Batches:
        """Batches of the examples; see `Batches.batch`."""
        return Batches(self).batch(size, drop_last)

    def _numbers(self, indices: np.ndarray | slice) -> np.ndarray:
        if isinstance(indices, slice):
            return np.arange(*indices.indices(len(self)))
        numbers = np.asarray(indices)
        if numbers.dtype == bool:
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise OptionError(f"Indices of examples are a list of whole numbers, or a slice, not {indices!r:.100}.")
        numbers = numbers.astype(np.int64)
        if len(numbers) and not -len(self) <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"There is no example {numbers.max()} or {numbers.min()}: there are {len(self):,}.")
        return np.where(numbers < 0, numbers + len(self), numbers)

    def _columns(self, columns: Columns, numbers: np.ndarray) -> dict[str, np.ndarray]:
        rows = self._collection.rows(numbers)
        contents = self._collection.contents(numbers) if rows is None else rows
        return columns.of(contents, lambda place: self._collection.name(int(numbers[place])))

    def _mapping(self) -> Mapping:
        return Mapping(self._collection, self._features, self._functions, self._workers, self._delegation)

    def _forget_rows(self) -> None:
        self._known_rows: tuple[Row | None, Any, Row | None] | None = None
        self._lock = threading.Lock()
        self._delegation = Delegation(self._processes, self._workers)

    def _rows(self) -> tuple[Row | None, Any, Row | None]:
        """The form of rows, by the first example: of single functions, else of columns; and of batched functions."""
        with self._lock:
            if self._known_rows is None:
                self._known_rows = self._first_row()
            return self._known_rows

    def _first_row(self) -> tuple[Row | None, Any, Row | None]:
        first = np.zeros(1, np.int64)
        row = columns = None
        if self._functions:
            row = row_of(self._mapping().one(0))
            tree = row.tree(self._mapping().rows(row, first)) if self._batched else None
        else:
            (content,) = self._collection.contents(first)
            columns = columns_like(self._features, content, lambda: self._collection.name(0))
            tree = self._columns(columns, first)
        for function in self._batched:
            tree = function(tree)
        return row, columns, row_of_batch(tree) if self._batched else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget_rows()


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, Sequence) and all(isinstance(side, int | np.integer) and side >= 0 for side in shape)
