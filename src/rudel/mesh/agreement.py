"""Agreement among the processes of a training, so that all of them take the same steps.

What depends on time, on signals, or on what one process alone has (the run directory) is said by one process and heard
by all. Every process has to call these functions in the same order; with one process, they return what they are given.

Limit: what is said is not encrypted, as nothing is that JAX sends between processes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from rudel.array_types import Int32
from rudel.errors import ModelError

_SHORT = 248
"""Bytes that are said at once; more take a second turn."""


def alone() -> bool:
    """Whether there is one process."""
    return jax.process_count() == 1


def is_first() -> bool:
    """Whether this is process 0, which keeps the run directory and shows what happens."""
    return jax.process_index() == 0


def first(value: Any) -> Any:
    """Broadcasts a JSON value from process 0 to all processes."""
    if alone():
        return value
    return json.loads(_broadcast(json.dumps(value).encode() if is_first() else b""))


def first_arrays(arrays: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """The arrays by name that process 0 has; the others give None."""
    if alone():
        return dict(arrays or {})
    forms = first([[name, str(array.dtype), array.shape] for name, array in (arrays or {}).items()])
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in (arrays or {}).values())
    content, found, place = _broadcast(content if is_first() else b""), {}, 0
    for name, dtype, shape in forms:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        size = int(np.prod(shape)) * kind.itemsize
        found[name] = np.frombuffer(content[place : place + size], np.uint8).view(kind).reshape(shape).copy()
        place += size
    return found


def numbers(values: Sequence[int]) -> Int32[np.ndarray, "processes numbers"]:
    """The numbers of all processes, int32 (processes, N)."""
    own = np.array(values, np.int32)
    return own[None] if alone() else _gathered(own)


def everyone(text: str) -> list[str]:
    """The texts of all processes, in their order, of at most 255 bytes."""
    if alone():
        return [text]
    said = np.frombuffer(text.encode()[:255].ljust(256, b"\0"), np.uint8)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in _gathered(said)]


def check_same(settings: Mapping[str, Any]) -> None:
    """Refuses processes that are about to train different things.

    Raises:
        ModelError: names what differs, in all processes.
    """
    if alone():
        return
    digests = [hashlib.sha256(f"{name} {value!r}".encode()).digest() for name, value in settings.items()]
    rows = _gathered(np.frombuffer(b"".join(digests), np.uint8)).reshape(jax.process_count(), len(digests), -1)
    for name, column in zip(settings, np.moveaxis(rows, 1, 0), strict=True):
        other = np.flatnonzero((column != column[0]).any(axis=1))
        if len(other):
            raise ModelError(
                f"The hosts see different models: the {name} of process {other[0]} differs from that of process 0; "
                "start the same program with the same versions, options and data on all of them."
            )


def _gathered(array: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))


def _broadcast(content: bytes) -> bytes:
    """Bytes of process 0, in one turn if they are few."""
    from jax.experimental import multihost_utils

    head = len(content).to_bytes(8, "little") + content[:_SHORT].ljust(_SHORT, b"\0")
    head = np.asarray(multihost_utils.broadcast_one_to_all(np.frombuffer(head, np.uint8))).tobytes()
    length = int.from_bytes(head[:8], "little")
    if length <= _SHORT:
        return head[8 : 8 + length]
    padded = 1 << (length - 1).bit_length()  # few lengths, few programs
    rest = np.frombuffer(content.ljust(padded, b"\0") if is_first() else bytes(padded), np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(rest)).tobytes()[:length]
