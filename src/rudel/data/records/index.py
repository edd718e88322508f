"""The index of a file's records: one walk from header to header.

A file says nothing of how many records it has. The walk reads each header, whose checksum it verifies, and passes the
checksum of each content, which it keeps: with it every read is verified later, and a replaced file is recognised.

A damaged header hides where its record ends. Where damage is to be left out, the next header with a right checksum is
looked for, so that only what lies before it is lost.
"""

import struct
from dataclasses import dataclass

import numpy as np

from rudel.data.records.byte_sources import Source
from rudel.data.records.checksum import masked, masked_of_each, masked_of_lengths
from rudel.data.records.reading import Reader
from rudel.errors import DataError

ADVICE = "get the file again, or leave damaged records out by `rudel.Records(..., skip_corrupt=True)`"
"""Advice against damage, to end a sentence with."""

OVERHEAD = 16
"""Bytes of a record beside its content: length, checksum of that, checksum of the content."""

_HEADER = 12
_BEFORE_AND_HEADER = struct.Struct("<IQI")
_GZIP = b"\x1f\x8b"
_CHECK_AFTER = 1 << 16
_SCANNED = 1 << 22
_VERIFIED_BYTES, _VERIFIED_RECORDS = 1 << 23, 1 << 14


@dataclass(frozen=True, eq=False)
class FileIndex:
    """The records of a file.

    Args:
        begins: where their contents begin, int64 (n,).
        lengths: of their contents, int64 (n,).
        checksums: of their contents, as the file has them, uint32 (n,).
        damaged: where damage was left out, int64 (m,).
    """

    begins: np.ndarray
    lengths: np.ndarray
    checksums: np.ndarray
    damaged: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)


def walk(source: Source, skip_corrupt: bool = False) -> FileIndex:
    """Finds all records of a file.

    Args:
        source: the file.
        skip_corrupt: leave damage out, also of contents, which are all read for that.

    Raises:
        DataError: the file cannot be read, is compressed, or (without `skip_corrupt`) has a damaged header or is cut
            short.
    """
    if source.read(0, 2) == _GZIP:
        raise DataError(
            f"{source.name} is compressed by gzip, where no record can be found by its place: unpack it by gunzip."
        )
    pieces: list[np.ndarray] = []
    damaged: list[int] = []
    position = 0
    while position < source.size:
        begins, lengths, checksums, stopped = _walk_from(source, position)
        pieces.append(np.array([begins, lengths, checksums], np.int64).reshape(3, -1))
        if stopped is None:
            break
        if not skip_corrupt:
            raise DataError(_damage(source, stopped))
        damaged.append(stopped)
        position = _next_header(source, stopped + 1)
    begins, lengths, checksums = np.concatenate(pieces, axis=1) if pieces else np.zeros((3, 0), np.int64)
    found = FileIndex(begins, lengths, checksums.astype(np.uint32), np.array(damaged, np.int64))
    return _without_damage(source, found) if skip_corrupt else found


def _walk_from(source: Source, at: int) -> tuple[list[int], list[int], list[int], int | None]:
    """Begins, lengths and checksums of the records from a place on, and the place of the first damage, or None."""
    begins: list[int] = []
    lengths: list[int] = []
    length_checksums: list[int] = []
    checksums: list[int] = []  # of the content before each header
    unpack, size = _BEFORE_AND_HEADER.unpack_from, source.size
    window, base, checked = b"", 0, 0
    while at + _HEADER <= size:
        base = at - 4
        window = source.read(base, source.window) if at else bytes(4) + source.read(0, source.window)
        inside, last = 0, len(window) - _BEFORE_AND_HEADER.size
        if last < 0:
            raise DataError(f"{source.name} became shorter while it was read: wait until it is complete.")
        while inside <= last:
            checksum, length, length_checksum = unpack(window, inside)
            begins.append(base + inside + _BEFORE_AND_HEADER.size)
            lengths.append(length)
            length_checksums.append(length_checksum)
            checksums.append(checksum)
            inside += length + OVERHEAD
        at = base + inside + 4
        if len(begins) - checked >= _CHECK_AFTER:
            if _first_wrong(lengths[checked:], length_checksums[checked:]) is not None:
                break
            checked = len(begins)
    wrong = _first_wrong(lengths[checked:], length_checksums[checked:])
    if wrong is not None:
        count = checked + wrong
        stopped = begins[count] - _HEADER
    elif at > size:
        count = len(begins) - 1
        stopped = begins[count] - _HEADER
    else:
        count = len(begins)
        stopped = at if at < size else None
        if begins:
            checksums.append(int.from_bytes(source.read(at - 4, 4), "little"))
    return begins[:count], lengths[:count], checksums[1 : count + 1], stopped


def _first_wrong(lengths: list[int], checksums: list[int]) -> int | None:
    wrong = np.flatnonzero(masked_of_lengths(np.array(lengths, np.uint64)) != np.array(checksums, np.uint32))
    return int(wrong[0]) if len(wrong) else None


def _damage(source: Source, at: int) -> str:
    """Describes the damage of a file from a place on."""
    header = source.read(at, _HEADER)
    is_whole = len(header) == _HEADER and header[8:] == masked(header[:8]).to_bytes(4, "little")
    if len(header) < _HEADER or is_whole:
        problem = f"is truncated: its last record, at byte {at:,}, has no end"
    elif at == 0:
        problem = "is no TFRecord file, or damaged at its beginning: the checksum of its first length is wrong"
    else:
        problem = f"is damaged: the record at byte {at:,} has a wrong checksum of its length"
    return f"{source.name} {problem}; {ADVICE}."


def _next_header(source: Source, begin: int) -> int:
    """The next place, from one on, of a length with a right checksum that the file has room for; or the end."""
    while begin + OVERHEAD <= source.size:
        block = np.frombuffer(source.read(begin, _SCANNED + _HEADER - 1), np.uint8)
        places = np.arange(max(len(block) - _HEADER + 1, 0))
        for octet in (7, 6, 5, 4, 3):  # those that are 0 in the length of all that fits into the file
            if source.size < 1 << 8 * octet:
                places = places[block[places + octet] == 0]
        numbers = np.lib.stride_tricks.sliding_window_view(block, _HEADER)[places]
        lengths = np.ascontiguousarray(numbers[:, :8]).view("<u8").ravel()
        checksums = np.ascontiguousarray(numbers[:, 8:]).view("<u4").ravel()
        rooms = source.size - OVERHEAD - begin - places
        fits = (rooms >= 0) & (lengths <= np.maximum(rooms, 0).astype(np.uint64))
        found = np.flatnonzero(fits & (masked_of_lengths(lengths) == checksums))
        if len(found):
            return begin + int(places[found[0]])
        begin += _SCANNED
    return source.size


def _without_damage(source: Source, index: FileIndex) -> FileIndex:
    """Reads all contents, and leaves those out that do not fit their checksums."""
    right = np.empty(len(index), bool)
    reader = Reader([source], [index.begins], [index.lengths])
    for part in _parts(index):
        contents = reader.read(np.arange(len(index))[part])
        right[part] = masked_of_each(contents) == index.checksums[part]
    damaged = np.sort(np.concatenate([index.damaged, index.begins[~right] - _HEADER]))
    return FileIndex(index.begins[right], index.lengths[right], index.checksums[right], damaged)


def _parts(index: FileIndex) -> list[slice]:
    """Neighbouring records of a few megabytes, together."""
    ends = np.cumsum(index.lengths)
    parts, begin = [], 0
    while begin < len(index):
        read = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, read + _VERIFIED_BYTES)))
        end = min(end, begin + _VERIFIED_RECORDS)
        parts.append(slice(begin, end))
        begin = end
    return parts
