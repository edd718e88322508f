"""One `tf.train.Example` as bytes and back, without protobuf.

An Example is a map from names to features, and a feature a list of byte strings, of float32 or of int64 (the messages
are those of `tensorflow/core/example/feature.proto`).

`parse_example` takes whatever a conforming writer writes: any order of names, numbers packed or one by one, fields in
several pieces, fields that it does not know. A name that comes twice counts the last time.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rudel.data.file_names import printable
from rudel.data.records.protobuf_wire import field, next_field, spans, varint, varint_of
from rudel.errors import DataError

Feature = list[bytes] | np.ndarray
"""Byte strings, int64 (n,) or float32 (n,). A feature that says nothing, not even of which kind it is, is []."""

_INT64 = range(-(2**63), 2**63)


class MalformedError(ValueError):
    """Bytes that are no `tf.train.Example`."""


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Writes an example; equal features give equal bytes.

    Args:
        features: under each name `bytes` or `str`, a whole number, a float, or a list or an array of one of those.
            Arrays are flattened. Whole numbers (and booleans) become int64, floats float32.

    Returns:
        A serialised `tf.train.Example`.

    Raises:
        DataError: a feature is of none of these kinds, or a number does not fit.

    >>> parse_example(encode_example({"label": 3, "name": "cat"}))
    {'label': array([3]), 'name': [b'cat']}
    """
    if not isinstance(features, Mapping) or not all(isinstance(name, str) for name in features):
        raise DataError(f"An example is a dict of features by their names, which are text, not {features!r:.100}.")
    entries = [
        field(1, field(1, _utf8(name, name)) + field(2, _encoded(name, features[name]))) for name in sorted(features)
    ]
    return field(1, b"".join(entries))


def parse_example(content: bytes, names: Collection[str] | None = None) -> dict[str, Feature]:
    """Reads an example.

    Args:
        content: a serialised `tf.train.Example`.
        names: of the features to read; None for all.

    Returns:
        The features by name.

    Raises:
        MalformedError: it is none.
    """
    features: dict[str, Feature] = {}
    wanted = None if names is None else {name.encode(): name for name in names}
    try:
        for position, end in spans(content, 0, len(content), 1):
            while position < end:
                tag, begin, position = next_field(content, position, end)
                if tag != 0x0A:
                    continue
                name, value = _usual_entry(content, begin, position) or _entry(content, begin, position)
                if wanted is None:
                    features[name.decode()] = _feature(content, value)
                elif name in wanted:
                    features[wanted[name]] = _feature(content, value)
    except (IndexError, ValueError) as error:
        raise MalformedError("it is not a tf.train.Example") from error
    return features


def _encoded(name: str, value: Any) -> bytes:
    """A serialised `Feature`."""
    if isinstance(value, bytes | str):
        value = [value]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "OSTU":
        value = value.ravel().tolist()
    if isinstance(value, list | tuple) and value and isinstance(value[0], bytes | str):
        if not all(isinstance(item, bytes | str) for item in value):
            raise DataError(f"The feature `{name}` mixes text with other things: give values of one kind.")
        texts = (_utf8(name, item) if isinstance(item, str) else item for item in value)
        return field(1, b"".join(field(1, text) for text in texts))
    try:
        array = np.asarray(value).ravel()
    except ValueError as error:
        raise DataError(f"The feature `{name}` holds lists of different lengths: join them to one list.") from error
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            floats = array.astype("<f4")
        if array.dtype.itemsize > 4 and (np.isinf(floats) & np.isfinite(array)).any():
            raise DataError(f"The feature `{name}` has a number that is too large for a float of 32 bits: scale it.")
        return field(2, field(1, floats.tobytes()))
    if array.dtype.kind in "iub" and (array.dtype != np.uint64 or not array.size or int(array.max()) in _INT64):
        numbers = (int(number) & 0xFFFFFFFFFFFFFFFF for number in array)
        return field(3, field(1, b"".join(map(varint_of, numbers))))
    raise DataError(
        f"The feature `{name}` is {type(value).__name__} of {array.dtype}, which no feature can hold: "
        "give bytes, text, whole numbers of 64 bits or floats."
    )


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"The feature `{printable(name)}` has text that UTF-8 cannot hold, as names of files may be: give bytes."
        ) from error


def _usual_entry(content: bytes, begin: int, end: int) -> tuple[bytes, list[tuple[int, int]]] | None:
    """A faster `_entry` for an entry that is a short name and then a feature; None for others."""
    if begin + 2 >= end or content[begin] != 0x0A:
        return None
    name_end = begin + 2 + content[begin + 1]
    if content[begin + 1] >= 0x80 or name_end + 1 >= end or content[name_end] != 0x12:
        return None
    length, position = varint(content, name_end + 1)
    return (content[begin + 2 : name_end], [(position, end)]) if position + length == end else None


def _entry(content: bytes, position: int, end: int) -> tuple[bytes, list[tuple[int, int]]]:
    """An entry of the map: its name, and where the pieces of its feature are."""
    name, pieces = b"", []
    while position < end:
        tag, begin, position = next_field(content, position, end)
        if tag == 0x0A:
            name = content[begin:position]
        elif tag == 0x12:
            pieces.append((begin, position))
        else:  # some implementations drop such an entry, others what they do not know of it
            raise ValueError("an entry with something besides a name and a feature")
    return name, pieces


def _feature(content: bytes, pieces: list[tuple[int, int]]) -> Feature:
    """The last kind of list that a feature has pieces of, with all the pieces of that kind since another one."""
    kind, lists = 0, []
    for begin, end in pieces:
        position = begin
        while position < end:
            tag, list_begin, position = next_field(content, position, end)
            if tag in (0x0A, 0x12, 0x1A):
                if tag != kind:
                    kind, lists = tag, []
                lists.append((list_begin, position))
    if kind == 0x12:
        return _floats(content, lists)
    if kind == 0x1A:
        return _integers(content, lists)
    return [content[begin:end] for first, last in lists for begin, end in spans(content, first, last, 1)]


def _floats(content: bytes, lists: list[tuple[int, int]]) -> np.ndarray:
    pieces = []
    for position, end in lists:
        while position < end:
            tag, begin, position = next_field(content, position, end)
            if tag == 0x0A and (position - begin) % 4:
                raise ValueError("a truncated float")
            if tag in (0x0A, 0x0D):
                pieces.append(content[begin:position])
    return np.frombuffer(b"".join(pieces), "<f4").astype(np.float32, copy=False)


def _integers(content: bytes, lists: list[tuple[int, int]]) -> np.ndarray:
    numbers = []
    for position, end in lists:
        while position < end:
            tag, begin, position = next_field(content, position, end)
            if tag == 0x08:
                numbers.append(varint(content, begin)[0])
            elif tag == 0x0A:
                while begin < position:
                    number, begin = varint(content, begin)
                    numbers.append(number)
                if begin != position:
                    raise ValueError("a truncated number")
    return np.array(numbers, np.uint64).view(np.int64)
