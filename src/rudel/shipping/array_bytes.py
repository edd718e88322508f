"""Arrays as bytes, for what travels exactly: weights, optimizer slots, moving statistics.

A message is the length of a header, the header (JSON: dtype and shape of each array, and whether it is all zeros), and
the arrays' bytes one after the other, little-endian. Large arrays of zeros, as fresh optimizer slots are, take no
room. Headers are kept: the same arrays are sent in every round, by processes whose caches hold weights and not this.
"""

import functools
import json
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

_LENGTH = 4

_FEW = 64
"""Bytes of an array that is sent even if it is all zeros."""


def pack(arrays: Sequence[np.ndarray]) -> bytes:
    """Writes arrays.

    Args:
        arrays: of any shapes, with dtypes of NumPy or ml_dtypes (bfloat16, float8).

    Raises:
        TypeError: one holds objects of Python.

    >>> [array.tolist() for array in unpack(pack([np.arange(3, dtype="uint8"), np.zeros((1, 2))]))]
    [[0, 1, 2], [[0.0, 0.0]]]
    """
    forms, parts = [], []
    for array in arrays:
        zeros = array.nbytes > _FEW and not np.ascontiguousarray(array).reshape(-1).view(np.uint8).any()
        forms.append((array.dtype, array.shape, zeros))
        if not zeros:
            parts.append(array.tobytes())
    return b"".join([_header(tuple(forms)), *parts])


def unpack(message: bytes) -> list[np.ndarray]:
    """Reads what `pack` wrote, into arrays of their own.

    Raises:
        ValueError: it is damaged.
    """
    end = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    arrays = []
    try:
        for dtype, shape, count, zeros in _forms(bytes(message[_LENGTH:end])):
            if zeros:
                arrays.append(np.zeros(shape, dtype))
                continue
            arrays.append(np.frombuffer(message, dtype, count, end).reshape(shape).copy())
            end += count * dtype.itemsize
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(f"not a message of arrays: {error}") from error
    if end != len(message):
        raise ValueError(f"a message of arrays of {len(message)} bytes ends after {end}")
    return arrays


@functools.lru_cache(maxsize=64)
def _header(forms: tuple[tuple[np.dtype, tuple[int, ...], bool], ...]) -> bytes:
    """The header of arrays, after its length."""
    text = json.dumps([(str(_of_numbers(dtype)), shape, zeros) for dtype, shape, zeros in forms]).encode()
    return len(text).to_bytes(_LENGTH, "little") + text


@functools.lru_cache(maxsize=64)
def _forms(text: bytes) -> list[tuple[np.dtype, list[int], int, bool]]:
    """Dtype, shape and number of elements of each array, and whether it is all zeros, from a header."""
    forms = []
    for name, shape, zeros in json.loads(text):
        dtype = _of_numbers(np.dtype(getattr(ml_dtypes, name, name)))
        forms.append((dtype, shape, math.prod(shape), zeros))
    return forms


def _of_numbers(dtype: np.dtype) -> np.dtype:
    if dtype.hasobject:
        raise TypeError(f"{dtype} are not numbers")
    return dtype
