"""Results of a map function for single examples, stacked into arrays.

The first example says what a row is: its structure, shapes and dtypes. Every other one has to be like it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.aliases import Tree
from rudel.data.dataset import Examples, aligned_empty, like
from rudel.errors import DataError

_SHORT = 512


@dataclass(frozen=True)
class Leaf:
    """One array of a row.

    Args:
        name: what messages call it.
        shape: of a row.
        dtype: of its entries.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


@dataclass(frozen=True)
class Row:
    """The structure of a row.

    Args:
        structure: nested dicts, lists and tuples, with the number of a leaf where an array is.
        leaves: the arrays.
    """

    structure: Tree
    leaves: tuple[Leaf, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return sum(leaf.nbytes for leaf in self.leaves)

    def empty(self, count: int) -> list[np.ndarray]:
        """Arrays for so many rows, with the rows along axis 0, in aligned memory."""
        return [aligned_empty((count, *leaf.shape), leaf.dtype) for leaf in self.leaves]

    def write(self, value: Tree, octets: list[memoryview], place: int, name: Callable[[], str]) -> None:
        """Writes a row.

        It is copied without NumPy, which would let go of Python's lock, and wait for it again, for every row.

        Args:
            value: what a map function gave.
            octets: the bytes of the arrays of `empty`.
            place: of the row.
            name: what to call the record in an error.

        Raises:
            DataError: it is not like the first.
        """
        for leaf, target, part in zip(self.leaves, octets, self._parts(value, name), strict=True):
            entry = part if isinstance(part, np.ndarray) else np.asarray(part)
            if entry.shape != leaf.shape or entry.dtype != leaf.dtype:
                raise DataError(
                    f"`{leaf.name}` of {name()} is {entry.dtype} {entry.shape}, and that of the first example {leaf}: "
                    "let the map function give the same for every example."
                )
            size = entry.nbytes
            target[place * size : (place + 1) * size] = entry.tobytes() if size < _SHORT else _octets(entry)

    def check_batch(self, value: Tree, count: int, name: Callable[[], str]) -> list[np.ndarray]:
        """The arrays of what a batched map function gave, in aligned memory.

        Raises:
            DataError: they are not like that of the first example, or are not so many rows.
        """
        arrays = []
        for leaf, part in zip(self.leaves, self._parts(value, name), strict=True):
            array = np.asarray(part)
            if array.shape != (count, *leaf.shape) or array.dtype != leaf.dtype:
                raise DataError(
                    f"`{leaf.name}` of {count:,} examples from {name()} on is {array.dtype} {array.shape}, "
                    f"and has to be {leaf.dtype} {(count, *leaf.shape)}, as for the first: "
                    "let the map function give a row per example."
                )
            arrays.append(_aligned(array))
        return arrays

    def tree(self, arrays: list[np.ndarray]) -> Tree:
        """Arrays in the structure of the row."""
        return _rebuilt(self.structure, arrays)

    def _parts(self, value: Tree, name: Callable[[], str]) -> list[Any]:
        parts: list[Any] = []
        if not _collect(self.structure, value, parts):
            raise DataError(
                f"{name()} became another structure than the first example: "
                "let the map function give the same for every one."
            )
        return parts


def row_of(value: Tree) -> Row:
    """The structure of what a map function gave for an example.

    Raises:
        DataError: something in it is neither a number nor an array of numbers.

    >>> print(*row_of((np.zeros((8, 8), np.uint8), 3)).leaves)
    uint8 (8, 8) int64 ()
    """
    leaves: list[Leaf] = []
    structure = _structure(_names(value), value, leaves)
    return Row(structure, tuple(leaves))


def row_of_batch(value: Tree) -> Row:
    """The structure of a row of what a batched map function gave for one example.

    Raises:
        DataError: something in it is not an array of one row.
    """
    row = row_of(value)
    for leaf in row.leaves:
        if leaf.shape[:1] != (1,):
            raise DataError(
                f"`{leaf.name}` has shape {leaf.shape} for one example: "
                "let a batched map function give arrays with the examples along axis 0."
            )
    return Row(row.structure, tuple(Leaf(leaf.name, leaf.shape[1:], leaf.dtype) for leaf in row.leaves))


def examples_of(tree: Tree) -> Examples:
    """Inputs, targets and weights: (x, y), (x, y, weight) or x alone.

    Raises:
        DataError: a tuple of another length.
    """
    if not isinstance(tree, tuple):
        return Examples(tree)
    if len(tree) not in (2, 3):
        raise DataError(f"The map function gave a tuple of {len(tree)}: let it give (x, y), (x, y, weight) or x.")
    return Examples(*tree)


def _octets(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")


def _names(value: Tree) -> Tree:
    return ("x", "y", "sample_weight") if isinstance(value, tuple) and len(value) in (2, 3) else "x"


def _structure(name: Tree, value: Tree, leaves: list[Leaf]) -> Tree:
    if isinstance(value, Mapping):
        return {key: _structure(f"{name}[{key!r}]", part, leaves) for key, part in value.items()}
    if isinstance(value, list | tuple):
        names = name if isinstance(name, tuple) else [f"{name}[{i}]" for i in range(len(value))]
        return like(value, [_structure(each, part, leaves) for each, part in zip(names, value, strict=False)])
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise DataError(
            f"`{name}` of the first example is {type(value).__name__}, which is not a number: "
            "let a map function make numbers of it (`records.map(...)`)."
        )
    leaves.append(Leaf(str(name), array.shape, array.dtype))
    return len(leaves) - 1


def _collect(structure: Tree, value: Tree, parts: list[Any]) -> bool:
    """Takes a value apart; False if it has another structure."""
    if isinstance(structure, dict):
        fits = isinstance(value, Mapping) and value.keys() == structure.keys()
        return fits and all(_collect(part, value[key], parts) for key, part in structure.items())
    if isinstance(structure, list | tuple):
        fits = isinstance(value, list | tuple) and len(value) == len(structure)
        if not fits:
            return False
        for part, entry in zip(structure, value, strict=True):
            if isinstance(part, int):
                parts.append(entry)
            elif not _collect(part, entry, parts):
                return False
        return True
    parts.append(value)
    return True


def _rebuilt(structure: Tree, arrays: list[np.ndarray]) -> Tree:
    if isinstance(structure, dict):
        return {key: _rebuilt(part, arrays) for key, part in structure.items()}
    if isinstance(structure, list | tuple):
        return like(structure, [_rebuilt(part, arrays) for part in structure])
    return arrays[structure]


def _aligned(array: np.ndarray) -> np.ndarray:
    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % 64 == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy
