"""Messages as plain data: JSON and arrays, in which nothing is code.

Neither end runs anything of what the other says: reading makes dictionaries, lists, strings, numbers, bytes, NumPy
arrays of numbers, and the classes of `messages.py`. What a message says is not checked here.
"""

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rudel.mesh.hosts import member_messages as messages
from rudel.mesh.hosts.processes import Processes
from rudel.runs.checkpoint import Checkpoint
from rudel.shipping import array_bytes

_KINDS = {
    kind.__name__: kind
    for kind in (Checkpoint, Processes, *vars(messages).values())
    if is_dataclass(kind) and isinstance(kind, type)
}
_DAMAGED = (TypeError, KeyError, IndexError, AttributeError, ValueError, RecursionError)


def encoded(message: object) -> bytes:
    """Writes a message.

    Raises:
        TypeError: it holds something that is neither plain data nor one of the known classes.

    >>> decoded(encoded({"rates": [0.5, np.arange(2)], "code": b"01"}))
    {'rates': [0.5, array([0, 1])], 'code': b'01'}
    """
    arrays: list[np.ndarray] = []
    text = json.dumps(_written(message, arrays)).encode()
    return array_bytes.pack([np.frombuffer(text, np.uint8), *arrays])


def decoded(content: bytes) -> Any:
    """Reads what `encoded` wrote; tuples have become lists, and NumPy's scalars Python's.

    Raises:
        ValueError: it is damaged, or not a message.
    """
    try:
        text, *arrays = array_bytes.unpack(content)
        return _read(json.loads(text.tobytes()), arrays)
    except _DAMAGED as error:
        raise ValueError(f"not a message of plain data: {type(error).__name__}: {error}") from error


def _written(value: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON, in which an object says by its one key what it stands for."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_written(part, arrays) for part in value]
    if isinstance(value, dict):
        return {"dict": [[_key(key), _written(part, arrays)] for key, part in value.items()]}
    if isinstance(value, bytes | np.ndarray):
        arrays.append(np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value)
        return {"bytes" if isinstance(value, bytes) else "array": len(arrays) - 1}
    if type(value) in _KINDS.values():
        return {type(value).__name__: [_written(getattr(value, each.name), arrays) for each in fields(value)]}
    raise TypeError(f"{type(value).__name__} is not plain data")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of plain data is a string, not {key!r}")
    return key


def _read(value: object, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_read(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {str(key): _read(part, arrays) for key, part in content}
    if kind in ("bytes", "array"):
        return arrays[content].tobytes() if kind == "bytes" else arrays[content]
    return _KINDS[kind](*(_read(part, arrays) for part in content))
