"""Arrays as bytes, for what travels exactly: weights, optimizer slots, moving statistics.

A message is the length of a header, the header (JSON: dtype and shape of each array, and whether it is all zeros), and
the arrays' bytes one after the other, little-endian. Arrays of zeros, as fresh optimizer slots are, take no room.
"""

import functools
import json
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

_LENGTH = 4


def pack(arrays: Sequence[np.ndarray]) -> bytes:
    """Writes arrays.

    Args:
        arrays: of any shapes, with dtypes of NumPy or ml_dtypes (bfloat16, float8).

    >>> [array.tolist() for array in unpack(pack([np.arange(3, dtype="uint8"), np.zeros((1, 2))]))]
    [[0, 1, 2], [[0.0, 0.0]]]
    """
    header, parts = [], []
    for array in arrays:
        whole = np.ascontiguousarray(array).reshape(array.shape)
        bare = whole.reshape(-1).view(np.uint8)
        zeros = not bare.any()
        header.append([_name_of(whole.dtype), whole.shape, zeros])
        if not zeros:
            parts.append(bare.tobytes())
    text = json.dumps(header).encode()
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts])


@functools.cache
def _name_of(dtype: np.dtype) -> str:
    return str(dtype)


def unpack(message: bytes) -> list[np.ndarray]:
    """Reads what `pack` wrote, into arrays of their own.

    Raises:
        ValueError: it is damaged.
    """
    end = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    arrays = []
    try:
        for name, shape, zeros in json.loads(message[_LENGTH:end]):
            dtype = np.dtype(getattr(ml_dtypes, name, name))
            if dtype.hasobject:
                raise TypeError(f"{dtype} are not numbers")
            if zeros:
                arrays.append(np.zeros(shape, dtype))
                continue
            count = math.prod(shape)
            arrays.append(np.frombuffer(message, dtype, count, end).reshape(shape).copy())
            end += count * dtype.itemsize
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(f"not a message of arrays: {error}") from error
    if end != len(message):
        raise ValueError(f"a message of arrays of {len(message)} bytes ends after {end}")
    return arrays
