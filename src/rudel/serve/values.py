"""Values that clients send, as columns: one array (N, ...) for an input, in the dtype that the model takes.

Numbers may change their kind only where nothing is lost: integers are taken for reals, and reals for integers only
where JSON wrote whole numbers so. What is NaN or infinite, is not a number or does not fit is refused with one
sentence, before it comes near a model.
"""

import base64
import binascii
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from rudel.serve.model_signature import OPEN, Tensor
from rudel.serve.refusal import bad

_EXACT = 2.0**53
"""Whole numbers below this are exact in float64."""

_MOST_AXES = 64
"""Of an array of NumPy."""

_WORDS = {"f": "real numbers", "i": "whole numbers", "u": "whole numbers", "b": "true or false"}


def column_of_rows(rows: Sequence[Any], tensor: Tensor) -> np.ndarray:
    """The column of values as JSON has them: numbers in lists, texts, or `{"b64": ...}`; images stay encoded.

    Args:
        rows: a value for every example, at least one.
        tensor: the input.

    Raises:
        Refusal: they do not fit the input.
    """
    rows = filled(rows, tensor)
    first = rows[0]
    if tensor.dtype == "bytes" or (isinstance(first, dict) and first.keys() == {"b64"}):
        return column_of_bytes([_bytes(row, tensor) for row in rows], tensor)
    return checked(_array(rows, tensor), tensor)


def filled(values: Sequence[Any], tensor: Tensor) -> Sequence[Any]:
    """Values of JSON with something in the place of null, where they may be missing; numbers are texts for categories.

    >>> filled([None, 8001], Tensor("x", (), "bytes", gaps=True)), filled([None, 1], Tensor("x", (), "float32"))
    (['', '8001'], [None, 1])
    """
    if not tensor.gaps:
        return values
    if tensor.dtype == "bytes":
        return ["" if value is None else str(value) if isinstance(value, int | float) else value for value in values]
    return [np.nan if value is None else value for value in values]


def column_of_bytes(contents: Sequence[bytes], tensor: Tensor) -> np.ndarray:
    """The column of plain bytes where the model takes these, one for an example, and else of encoded images.

    For these, see `is_encoded`.

    Raises:
        Refusal: the input takes several for an example.
    """
    column = np.empty(len(contents), object)
    column[:] = contents
    if tensor.dtype != "bytes":
        return column
    is_one = all(size in (1, OPEN) for size in tensor.shape)
    return checked(column.reshape(-1, *(1 for _ in tensor.shape)) if is_one else column, tensor)


def is_encoded(column: np.ndarray, tensor: Tensor) -> bool:
    """Whether it holds images, bytes objects (N,), that are still to be decoded."""
    return column.dtype == object and tensor.dtype != "bytes"


def checked(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """An array (N, ...) in the dtype of the input, if its shape, kind and values allow that.

    Raises:
        Refusal: they do not.
    """
    if not tensor.fits(array.shape[1:]):
        raise bad(
            f"An example has shape {array.shape[1:]}, and the input `{tensor.name}` takes examples of shape "
            f"{tensor.shape_text}."
        )
    if tensor.dtype == "bytes":
        if array.dtype != object:
            raise bad(f"The input `{tensor.name}` takes texts or bytes.")
        return array
    wanted = np.dtype(tensor.dtype)
    kind = array.dtype.kind
    if wanted.kind == "f":
        if kind not in "fiu":
            raise bad(f"The input `{tensor.name}` takes {_WORDS['f']}.")
        if array.dtype != wanted:
            with np.errstate(over="ignore"):
                array = array.astype(wanted)
        if not (np.isfinite(array) | (tensor.gaps & np.isnan(array))).all():
            raise bad(f"The input `{tensor.name}` holds NaN, or a number that is too large for {tensor.dtype}.")
        return array
    if kind not in ("b" if wanted.kind == "b" else "iu"):
        raise bad(f"The input `{tensor.name}` takes {_WORDS[wanted.kind]}.")
    if kind in "iu" and array.dtype != wanted:
        limits = np.iinfo(wanted)
        if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
            raise bad(f"The input `{tensor.name}` takes {tensor.dtype}: numbers from {limits.min} to {limits.max}.")
    return array.astype(wanted, copy=False)


def numbers(nested: Any) -> np.ndarray | None:
    """Numbers in lists as JSON has them, as an array; None where they are ragged, or anything is not a number.

    Whole numbers beyond 64 bits become float64. True and false are taken only where there is nothing else.

    >>> numbers([[1, 2], [3, 4]]).shape, numbers([1, [2]]), numbers([1, "2"]), numbers([1, True])
    ((2, 2), None, None, None)
    """
    flat, shape = [nested], []
    while (kinds := set(map(type, flat))) == {list}:
        lengths = set(map(len, flat))
        if len(lengths) > 1 or len(shape) == _MOST_AXES:
            return None
        shape += lengths
        flat = list(chain.from_iterable(flat))
    if not kinds <= {int, float} and kinds != {bool}:
        return None  # before NumPy takes true for 1, and makes room for the longest text in the place of each number
    try:
        array = np.array(flat).reshape(shape)  # nested lists would take NumPy several times as long
    except (ValueError, OverflowError):
        return None
    return array.astype(np.float64) if array.dtype.kind == "O" else array


def _array(rows: Sequence[Any], tensor: Tensor) -> np.ndarray:
    array = numbers(rows)
    if array is None:
        raise bad(
            f"The input `{tensor.name}` takes numbers of shape {tensor.shape_text} for each example, and these are "
            "none, or have different shapes."
        )
    return _whole(array) if array.dtype.kind == "f" and np.dtype(tensor.dtype).kind in "iu" else array


def _whole(array: np.ndarray) -> np.ndarray:
    """Whole numbers that JSON wrote as reals, as integers; others as they are."""
    if array.size and (np.abs(array) < _EXACT).all() and (array == np.trunc(array)).all():
        return array.astype(np.int64)
    return array


def _bytes(row: object, tensor: Tensor) -> bytes:
    for _ in tensor.shape if tensor.dtype == "bytes" else ():
        row = row[0] if isinstance(row, list) and len(row) == 1 else row
    if isinstance(row, str):
        return row.encode()
    if not isinstance(row, dict) or row.keys() != {"b64"} or not isinstance(row["b64"], str):
        if tensor.dtype == "bytes" and not tensor.takes_images:
            raise bad(f'The input `{tensor.name}` takes texts, or bytes as {{"b64": "..."}}.')
        raise bad(f'Not all examples of the input `{tensor.name}` are {{"b64": "..."}}.')
    try:
        return base64.b64decode("".join(row["b64"].split()), validate=True)  # programs break it into lines
    except (binascii.Error, ValueError):
        address = ": send what follows the comma" if row["b64"].startswith("data:") else ""
        raise bad(f"An example of the input `{tensor.name}` is not base64{address}.") from None
