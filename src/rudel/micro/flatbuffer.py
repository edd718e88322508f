"""Flatbuffers, read without trusting them.

Every offset, length and alignment is held against the bytes that there are before it is followed, so a damaged or
hostile file ends in a `CompileError` and never in a crash. Arrays of numbers are views of the file, not copies; what
has to be copied (lists of tables, short vectors) counts against an allowance that grows with the file, so that a
small file whose vectors all point at the same bytes cannot make the reader work or allocate without bounds.

The format: https://flatbuffers.dev/internals/ ; all numbers are little-endian.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

from rudel.errors import CompileError


@dataclass
class _Allowance:
    """Elements that may still be read out of a file."""

    left: int

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise CompileError("The file is damaged: its parts refer to each other more often than a real model's do.")


@dataclass(frozen=True)
class Flatbuffer:
    """The bytes of a file, and how much may be read out of them."""

    data: bytes
    allowance: _Allowance = field(compare=False)

    @classmethod
    def of(cls, data: bytes) -> "Flatbuffer":
        """Makes a buffer whose allowance is four elements for each byte."""
        return cls(data, _Allowance(4 * len(data) + 4096))

    def unpack(self, form: str, position: int) -> int | float:
        """Returns the number at `position`, of the `struct` format `form`.

        Raises:
            CompileError: it would lie outside the file.
        """
        size = struct.calcsize("<" + form)
        self.check(position, size)
        return struct.unpack_from("<" + form, self.data, position)[0]

    def offset(self, position: int) -> int:
        """Returns where the unsigned offset at `position` leads to."""
        return position + int(self.unpack("I", position))

    def check(self, position: int, size: int) -> None:
        """Raises:
        CompileError: `size` bytes at `position` do not lie within the file.
        """
        if position < 0 or size < 0 or position + size > len(self.data):
            raise CompileError(
                f"The file is truncated or damaged: it refers to {size} bytes at {position}, and has {len(self.data)}."
            )

    def root(self) -> "Table":
        """Returns the table that the file starts with."""
        return Table(self, self.offset(0))


@dataclass(frozen=True)
class Table:
    """A table of a flatbuffer: numbered slots, each of which may be missing."""

    buffer: Flatbuffer
    position: int

    def _slot(self, slot: int) -> int:
        """Returns the position of a slot's content, or 0 when it is missing."""
        buffer = self.buffer
        layout = self.position - int(buffer.unpack("i", self.position))
        length = int(buffer.unpack("H", layout))
        entry = 4 + 2 * slot
        if entry + 2 > length:
            return 0
        offset = int(buffer.unpack("H", layout + entry))
        return self.position + offset if offset else 0

    def number(self, slot: int, form: str, default: int | float = 0) -> int | float:
        """Returns the number in a slot; `form` is its `struct` format."""
        position = self._slot(slot)
        return self.buffer.unpack(form, position) if position else default

    def integer(self, slot: int, form: str, default: int = 0) -> int:
        """Returns the whole number in a slot."""
        return int(self.number(slot, form, default))

    def position_of(self, slot: int) -> int:
        """Returns where in the file the number of a slot lies, or 0 when it is missing."""
        return self._slot(slot)

    def table(self, slot: int) -> "Table | None":
        """Returns the table in a slot."""
        position = self._slot(slot)
        return Table(self.buffer, self.buffer.offset(position)) if position else None

    def text(self, slot: int) -> str:
        """Returns the string in a slot, without what is not UTF-8."""
        start, length = self.vector(slot, 1)
        self.buffer.allowance.take(length)
        return bytes(self.buffer.data[start : start + length]).decode(errors="replace")

    def array(self, slot: int, kind: str) -> np.ndarray | None:
        """Returns a vector of numbers as a read-only view, or None when it is missing; `kind` as in `np.dtype`."""
        dtype = np.dtype(kind).newbyteorder("<")
        if not self._slot(slot):
            return None
        start, length = self.vector(slot, dtype.itemsize)
        return np.frombuffer(self.buffer.data, dtype, length, start)

    def integers(self, slot: int, kind: str = "i4") -> tuple[int, ...]:
        """Returns a vector of whole numbers, empty when it is missing."""
        array = self.array(slot, kind)
        if array is None:
            return ()
        self.buffer.allowance.take(len(array))
        return tuple(array.tolist())

    def tables(self, slot: int) -> list["Table"]:
        """Returns a vector of tables, empty when it is missing."""
        start, length = self.vector(slot, 4)
        self.buffer.allowance.take(16 * length)
        return [Table(self.buffer, self.buffer.offset(start + 4 * index)) for index in range(length)]

    def vector(self, slot: int, size: int) -> tuple[int, int]:
        """Returns where a vector's elements of `size` bytes start, and how many there are; zeros when it is missing."""
        position = self._slot(slot)
        if not position:
            return 0, 0
        position = self.buffer.offset(position)
        length = int(self.buffer.unpack("I", position))
        self.buffer.check(position + 4, length * size)
        return position + 4, length
