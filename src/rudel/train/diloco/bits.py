"""Small whole numbers as few bits, by array operations alone: bit planes.

Everything that is read comes from the network. What does not fit raises `ValueError`; nothing is read beyond the end of
a message, and no array is made that has more elements than the message has bits, whatever a message claims.
"""

import struct

import numpy as np

_BYTE = 8


class Reader:
    """A place in a message, which moves on as the message is read.

    >>> reader = Reader(b"abc")
    >>> bytes(reader.take(2)), reader.left
    (b'ab', 1)
    """

    def __init__(self, message: bytes | bytearray | memoryview) -> None:
        self._rest = memoryview(message)

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._rest)

    def take(self, length: int) -> memoryview:
        """The next bytes.

        Raises:
            ValueError: there are fewer.
        """
        if length > len(self._rest):
            raise ValueError(f"The message ends early: {length:,} more bytes were expected, {self.left:,} are left.")
        taken, self._rest = self._rest[:length], self._rest[length:]
        return taken

    def fields(self, layout: struct.Struct) -> tuple:
        """The next numbers.

        Raises:
            ValueError: the message ends before them.
        """
        return layout.unpack(self.take(layout.size))

    def array(self, dtype: str, count: int) -> np.ndarray:
        """The next `count` elements, read-only.

        Raises:
            ValueError: there are fewer.
        """
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype)

    def end(self) -> None:
        """Makes sure that everything was read.

        Raises:
            ValueError: something is left.
        """
        if self._rest:
            raise ValueError(f"The message goes on after its end, by {self.left:,} bytes.")


def pack(values: np.ndarray, width: int) -> bytes:
    """Packs numbers of `width` bits, one plane of bits after the other, each filled up to a whole byte.

    Numbers of 8 bits are packed as they are.

    Args:
        values: unsigned integers (N,) below 2**width.
        width: bits of each.

    >>> pack(np.array([1, 2, 3], np.uint8), 2).hex()
    'a060'
    """
    if width == _BYTE:
        return values.astype(np.uint8, copy=False).tobytes()
    return b"".join(pack_plane(values, bit) for bit in range(width))


def pack_plane(values: np.ndarray, bit: int) -> bytes:
    """Packs one bit of each number, from 0 for the lowest."""
    return np.packbits(values & values.dtype.type(1 << bit)).tobytes()


def unpack(reader: Reader, count: int, width: int) -> np.ndarray:
    """Reads `count` numbers of `width` bits, 1 to 8, that `pack` wrote.

    Returns:
        uint8 (count,).

    Raises:
        ValueError: the message ends before them.

    >>> unpack(Reader(bytes.fromhex("a060")), 3, 2)
    array([1, 2, 3], dtype=uint8)
    """
    if width == _BYTE:
        return reader.array("u1", count)
    values = unpack_plane(reader, count)
    for bit in range(1, width):
        values |= unpack_plane(reader, count) << np.uint8(bit)
    return values


def unpack_plane(reader: Reader, count: int) -> np.ndarray:
    """Reads `count` single bits: uint8 (count,), each 0 or 1.

    Raises:
        ValueError: the message ends before them.
    """
    return np.unpackbits(reader.array("u1", -(-count // 8)), count=count)
