"""Examples in memory, and the training, validation and test parts that a recipe makes of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from rudel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Arrays: TypeAlias = Any
"""A NumPy array, or a dict, list or tuple of them (a model with several inputs); all with the examples along axis 0."""

Split: TypeAlias = Any
"""`Examples`, or a stream of them (`rudel.data.stream`)."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs, targets and weights of the same examples.

    Args:
        x: inputs, (N, ...) of any dtype; uint8 stays uint8. A dict, list or tuple for a model with several inputs.
            Frames and series of pandas or Polars become NumPy arrays, whose rows are found by position.
        y: targets, (N, ...), in the same forms; None where the model needs none.
        sample_weight: weight of each example in the loss, (N,); None for 1.

    Raises:
        DataError: the parts have different lengths, are not arrays, have masked values, or there is no example.

    >>> len(Examples(np.zeros((3, 8, 8), np.uint8), np.array([0, 1, 2])))
    3
    """

    x: Arrays
    y: Arrays = None
    sample_weight: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, array in self.named_arrays():  # refuses plain numbers, of which there may be very many
            check_unmasked(array, f"`{name}` holds")
        for name in ("x", "y", "sample_weight"):
            object.__setattr__(self, name, _map_arrays(_without_labels, getattr(self, name)))
        lengths = {name: len(array) for name, array in self.named_arrays()}
        if not lengths:
            raise DataError("There are no examples: `x` holds no array.")
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"`{name}` has {length:,}" for name, length in lengths.items())
            raise DataError(f"Inputs and targets must have one entry per example, but {found}.")
        if not len(self):
            raise DataError("There are no examples: the arrays have length 0.")

    def __len__(self) -> int:
        return len(next(array for _, array in self.named_arrays()))

    def named_arrays(self) -> list[tuple[str, np.ndarray]]:
        """Every array with the name a message should call it: `x`, `x['image']`, `y[1]`, `sample_weight`."""
        parts = {"x": self.x, "y": self.y, "sample_weight": self.sample_weight}
        return [pair for name, part in parts.items() for pair in _leaves(name, part)]

    def take(self, indices: np.ndarray | slice) -> "Examples":
        """The examples at these indices, in this order; or those where a boolean mask is true."""
        if isinstance(indices, np.ndarray) and indices.dtype == bool:
            indices = np.flatnonzero(indices)
        if not isinstance(indices, slice):
            indices = np.arange(len(self))[indices]  # counts negative indices from the end, refuses those out of range
        parts = (self.x, self.y, self.sample_weight)
        return Examples(*(_map_arrays(lambda array: _taken(array, indices), part) for part in parts))

    def subset(self, indices: np.ndarray) -> "Examples":
        """The same as `take`; a stream's subset is read when it is needed."""
        return self.take(indices)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data of a training: examples to train on, and others to validate and test with.

    Args:
        train: the examples to learn from, in memory or as a stream (see `rudel.data.stream`).
        validation: held-out examples, looked at after every epoch; None for none.
        test: examples that are looked at once, at the end; None for none.
        class_names: what the integer labels mean; empty where the targets are no classes.
        attribution: who made the data and under which licence, in one sentence.
        notes: what a user should know of how the data came about, a sentence each.
        augment: a function `(key, x) -> x` that changes the inputs of a training batch at random, on the device; see
            `rudel.data.augmentation`. None to train on the examples as they are.
        channels: names of the columns of an input, as of a motion sensor, by which files are read for the model; empty
            where they have none.
    """

    train: Split
    validation: Split | None = None
    test: Split | None = None
    class_names: Sequence[str] = ()
    attribution: str = ""
    notes: Sequence[str] = ()
    augment: Callable[[Any, Any], Any] | None = None
    channels: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class ToEvaluate:
    """Examples from elsewhere, with the labels of a model.

    Args:
        examples: in memory or as a stream.
        left_out: by name of a class that the model does not know, how many examples were left out.
        notes: what a user should know of how the examples came about, a sentence each.
    """

    examples: Split
    left_out: Mapping[str, int]
    notes: Sequence[str] = ()


class Divisible(Protocol):
    """Examples in memory, or a stream of them."""

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def subset(self, indices: np.ndarray) -> Any:
        """The examples at these indices alone, (n,) integers, in this order and in the same form."""
        ...


Some = TypeVar("Some", bound=Divisible)


def split(examples: Some, fraction: float, seed: int = 0) -> tuple[Some, Some]:
    """Shuffles and cuts examples in two: (the rest, `fraction` of them).

    Args:
        examples: to be cut; a stream is not read for it.
        fraction: share of the second part, between 0 and 1.
        seed: of the choice.

    Returns:
        Both parts, shuffled.

    Raises:
        DataError: one of the parts would be empty, or these are other things than examples, such as a tuple of arrays.

    >>> rest, held_out = split(Examples(np.arange(10)), 0.2)
    >>> len(rest), len(held_out)
    (8, 2)
    """
    if not hasattr(examples, "subset"):
        raise DataError(
            f"rudel.split takes rudel.Examples or a stream, not a {type(examples).__name__}: give arrays as "
            "rudel.Examples(x, y)."
        )
    count = round(len(examples) * fraction)
    if not 0 < count < len(examples):
        raise DataError(
            f"A part of {fraction} of {len(examples)} examples leaves one side empty; give another fraction."
        )
    order = np.random.default_rng(seed).permutation(len(examples))
    return examples.subset(order[count:]), examples.subset(order[:count])


def aligned_empty(shape: tuple[int, ...], dtype: "DTypeLike") -> np.ndarray:
    """An uninitialised array that begins at a multiple of 64 bytes, so that JAX uses it on a CPU without copying it."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def like(sequence: Sequence[Any], parts: list[Any]) -> Any:
    """A list, tuple or named tuple with other parts.

    >>> like((1, 2), [3, 4])
    (3, 4)
    """
    kind: Any = type(sequence)
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def _without_labels(array: Arrays) -> Arrays:
    """A frame or a series, which may find its rows by labels, as a NumPy array; others as they are."""
    return _as_array(array) if hasattr(array, "to_numpy") else array


def _as_array(part: Any) -> np.ndarray:
    """A NumPy array of what libraries have for arrays; that of a frame in a dtype for the values of all columns.

    pandas makes objects of columns of its own dtypes, such as Int64, and of those of Arrow.
    """
    array = np.asarray(part)
    if array.dtype.hasobject and array.ndim == 2 and hasattr(part, "items"):
        columns = [np.asarray(column) for _, column in part.items()]
        if columns and all(column.dtype.kind in "biuf" for column in columns):
            return np.column_stack(columns)
    return array


def as_numbers(part: Any, what: str) -> np.ndarray:
    """A NumPy array of what libraries have for arrays: of numbers or truth values, in a dtype that JAX has, too.

    Args:
        part: an array, a frame, a series, a tensor in the memory of the host, or a list.
        what: the beginning of messages, such as "A source gives".

    Raises:
        DataError: it is of parts of different lengths, of masked values, or of none that devices compute with, such as
            strings, objects or structures.
    """
    try:
        array = _as_array(part)
    except ValueError as error:
        raise DataError(f"{what} parts of different lengths: give one array.") from error
    if _is_other(array):
        held = "structured" if array.dtype.names else array.dtype
        text = array.size and isinstance(array.flat[0], str | bytes)
        remedy = " Keras' StringLookup or TextVectorization, called on text beforehand, makes numbers of it."
        where = next((f" in the column `{name}`" for name in getattr(part, "columns", ()) if _is_other(part[name])), "")
        raise DataError(
            f"{what} {held} values{where}: give numbers, and labels as integers from 0.{remedy if text else ''}"
        )
    check_unmasked(part, what)
    if array.dtype == np.longdouble:
        return array.astype(np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_other(part: Any) -> bool:
    """Whether an array, or a column of a frame, is of none that devices compute with."""
    dtype = np.asarray(part).dtype
    return dtype.kind not in "biufcV" or issubclass(dtype.type, np.void)  # bfloat16 and float8 are a V, too


def check_unmasked(part: Any, what: str) -> None:
    """Refuses masked values of NumPy, whose mask would be lost.

    Raises:
        DataError: there is one; the message begins with `what`.
    """
    if isinstance(part, np.ma.MaskedArray) and not part.dtype.names and np.ma.is_masked(part):
        raise DataError(
            f"{what} masked values, which would count like others: give `filled(...)`, or leave those examples out."
        )


def _taken(array: Arrays, indices: np.ndarray | slice) -> Arrays:
    if isinstance(indices, slice) or not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return array[indices]
    taken = aligned_empty((len(indices), *array.shape[1:]), array.dtype)
    return np.take(array, indices, axis=0, out=taken, mode="clip")


def check_int32(array: np.ndarray, what: str) -> None:
    """Refuses whole numbers of 64 bits that do not fit into 32, with which devices compute.

    Raises:
        DataError: names the first one, and `what` it is in.
    """
    if array.dtype.name in ("int64", "uint64") and array.size:
        limits = np.iinfo(np.int32 if array.dtype.kind == "i" else np.uint32)
        if array.min() < limits.min or array.max() > limits.max:
            wrong = array[(array < limits.min) | (array > limits.max)][0]
            raise DataError(
                f"There is {wrong:,} in {what}, and devices compute with whole numbers of 32 bits: number such values "
                "from 0, or give them as float32."
            )


def _leaves(name: str, part: Arrays) -> list[tuple[str, np.ndarray]]:
    if part is None:
        return []
    if isinstance(part, Mapping):
        return [leaf for key, value in part.items() for leaf in _leaves(f"{name}[{key!r}]", value)]
    if isinstance(part, list | tuple):
        return [leaf for i, value in enumerate(part) for leaf in _leaves(f"{name}[{i}]", value)]
    if not getattr(part, "shape", ()):
        raise DataError(f"`{name}` is a {type(part).__name__}: give NumPy arrays with the examples along axis 0.")
    return [(name, part)]


def _map_arrays(function: Callable[[Any], Any], part: Arrays) -> Arrays:
    if part is None:
        return None
    if isinstance(part, Mapping):
        return {key: _map_arrays(function, value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return like(part, [_map_arrays(function, value) for value in part])
    return function(part)
