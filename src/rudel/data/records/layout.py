"""Examples of the same layout, parsed together.

Records that a program writes one after the other mostly differ in their values alone: names, tags and lengths stand at
the same places. Such records are the rows of a matrix, of which all bytes that are no values are compared with those of
one example; where they are equal, features are columns. What has another layout is left to others.
"""

from dataclasses import dataclass

import numpy as np

from rudel.data.dataset import aligned_empty
from rudel.data.records.protobuf_wire import next_field

BYTES, FLOATS, INTEGERS = 0x0A, 0x12, 0x1A
"""Tags of the lists that a feature can be."""


@dataclass(frozen=True)
class Values:
    """Where the values of a feature are.

    Args:
        kind: of the list: `BYTES`, `FLOATS` or `INTEGERS`.
        spans: for byte strings one each, else one for all.
    """

    kind: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """Properties that all records of a layout have.

    Args:
        example: one of them, uint8.
        features: where the values of each are.
        fixed: spans of the bytes that are no values.
    """

    example: np.ndarray
    features: dict[str, Values]
    fixed: tuple[tuple[int, int], ...]

    def matches(self, rows: np.ndarray) -> np.ndarray:
        """Which records, uint8 (n, length of the example), have this layout: bool (n,)."""
        right = np.ones(len(rows), bool)
        for begin, end in self.fixed:
            right &= (rows[:, begin:end] == self.example[begin:end]).all(1)
        for values in self.features.values():
            if values.kind == INTEGERS:
                for begin, end in values.spans:
                    right &= ((rows[:, begin:end] ^ self.example[begin:end]) < 0x80).all(1)
        return right

    def column(self, rows: np.ndarray, name: str) -> np.ndarray:
        """A feature of records that have this layout, in aligned memory.

        Returns:
            uint8 (n, number of strings, their length), float32 (n, k) or int64 (n, k); or, for strings of different
            lengths, objects (n, number of strings).
        """
        values = self.features[name]
        if values.kind == BYTES:
            return _strings(rows, values.spans)
        ((begin, end),) = values.spans
        if values.kind == FLOATS:
            return _copied(rows[:, begin:end]).view("<f4").astype(np.float32, copy=False)
        return _integers(rows[:, begin:end], self.example[begin:end])


def layout_of(content: bytes) -> Layout | None:
    """The layout of an example that is written in the usual way; None for others.

    Usual is: each name once, followed by its values, numbers packed, nothing besides.
    """
    features: dict[str, Values] = {}
    try:
        position, end = _only(content, 0, len(content), 0x0A)
        while position < end:
            tag, begin, position = next_field(content, position, end)
            if tag != 0x0A:
                return None
            name, values = _entry(content, begin, position)
            if name in features:
                return None
            features[name] = values
    except (IndexError, ValueError):
        return None
    spans = sorted(span for values in features.values() for span in values.spans)
    edges = [0, *(edge for span in spans for edge in span), len(content)]
    fixed = tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)
    return Layout(np.frombuffer(content, np.uint8), features, fixed)


def _entry(content: bytes, begin: int, end: int) -> tuple[str, Values]:
    tag, name_begin, name_end = next_field(content, begin, end)
    list_begin, list_end = _only(content, name_end, end, 0x12)
    kind, values_begin, values_end = next_field(content, list_begin, list_end)
    if tag != 0x0A or values_end != list_end or kind not in (BYTES, FLOATS, INTEGERS):
        raise ValueError("written in another way")
    name = content[name_begin:name_end].decode()
    if kind != BYTES:
        span = _only(content, values_begin, values_end, 0x0A)
        if (kind == FLOATS and (span[1] - span[0]) % 4) or (kind == INTEGERS and not _is_whole(content, span)):
            raise ValueError("a truncated number")
        return name, Values(kind, (span,))
    spans, position = [], values_begin
    while position < values_end:
        tag, string_begin, position = next_field(content, position, values_end)
        if tag != 0x0A:
            raise ValueError("written in another way")
        spans.append((string_begin, position))
    return name, Values(kind, tuple(spans))


def _only(content: bytes, begin: int, end: int, wanted: int) -> tuple[int, int]:
    """Where the content of the one field is."""
    tag, content_begin, content_end = next_field(content, begin, end)
    if tag != wanted or content_end != end:
        raise ValueError("written in another way")
    return content_begin, content_end


def _is_whole(content: bytes, span: tuple[int, int]) -> bool:
    """Whether numbers end where their list ends, and none is longer than 9 bytes (10 are checked one by one)."""
    octets = content[slice(*span)]
    if not octets or octets[-1] >= 0x80:
        return False
    run = 0
    for octet in octets:
        run = run + 1 if octet >= 0x80 else 0
        if run > 9:
            return False
    return True


def _strings(rows: np.ndarray, spans: tuple[tuple[int, int], ...]) -> np.ndarray:
    lengths = {end - begin for begin, end in spans}
    if len(lengths) == 1:
        column = aligned_empty((len(rows), len(spans), lengths.pop()), np.uint8)
        for place, (begin, end) in enumerate(spans):
            column[:, place] = rows[:, begin:end]
        return column
    strings = np.empty((len(rows), len(spans)), object)
    for place, (begin, end) in enumerate(spans):
        strings[:, place] = [row.tobytes() for row in rows[:, begin:end]]
    return strings


def _integers(rows: np.ndarray, example: np.ndarray) -> np.ndarray:
    ends = np.flatnonzero(example < 0x80) + 1
    numbers = aligned_empty((len(rows), len(ends)), np.uint64)
    begin = 0
    for place, end in enumerate(ends):
        number = (rows[:, begin] & 0x7F).astype(np.uint64)
        for shift, octet in enumerate(range(begin + 1, end), 1):
            number |= (rows[:, octet] & 0x7F).astype(np.uint64) << np.uint64(7 * shift)
        numbers[:, place] = number
        begin = end
    return numbers.view(np.int64)


def _copied(rows: np.ndarray) -> np.ndarray:
    copy = aligned_empty(rows.shape, np.uint8)
    copy[...] = rows
    return copy
