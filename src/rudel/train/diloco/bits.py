"""Small whole numbers as few bits, by array operations alone: bit planes, and gaps between indices in bytes.

Everything that is read comes from the network. What does not fit raises `ValueError`; nothing is read beyond the end of
a message, and no array is made that has more elements than the message has bits, whatever a message claims.
"""

import struct

import numpy as np

_LENGTH = struct.Struct("<I")
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


def pack_elements(indices: np.ndarray, codes: np.ndarray, width: int) -> bytes:
    """Packs elements of a sparse vector into a byte each: a code, and the gap to the element before.

    The gap, less one, is in the lower 8 - width bits. Where it does not fit, bytes with all of these set come first,
    each of which stands for as many elements that are passed over.

    Args:
        indices: integers (N,), strictly increasing, from 0.
        codes: unsigned integers (N,) below 2**width.
        width: bits of a code, 1 to 4.

    >>> packed = pack_elements(np.array([0, 5, 100]), np.array([3, 1, 2]), 2)
    >>> len(packed), [part.tolist() for part in unpack_elements(Reader(packed), 101, 2)]
    (8, [[0, 5, 100], [3, 1, 2]])
    """
    most = (1 << (8 - width)) - 1
    gaps = np.diff(indices, prepend=-1)
    gaps -= 1
    coded = (codes.astype(np.int64) << (8 - width)) + gaps
    if len(gaps) and gaps.max() >= most:
        passed = gaps // most
        coded -= passed * most
        longer = np.full(len(gaps) + int(passed.sum()), most, np.int64)
        longer[np.arange(len(gaps)) + np.cumsum(passed)] = coded
        coded = longer
    return _LENGTH.pack(len(coded)) + coded.astype(np.uint8).tobytes()


def unpack_elements(reader: Reader, size: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads what `pack_elements` wrote.

    Args:
        reader: where it begins.
        size: what all indices must be less than.
        width: bits of a code.

    Returns:
        Indices, int64 (N,), and codes, uint8 (N,).

    Raises:
        ValueError: the message ends early, or holds an index beyond the size.
    """
    (count,) = reader.fields(_LENGTH)
    coded, most = reader.array("u1", count), (1 << (8 - width)) - 1
    gaps = (coded & np.uint8(most)).astype(np.int64)
    ends = gaps != most
    places = np.cumsum(gaps + ends)
    if not ends.all():
        places, coded = places[ends], coded[ends]
    places -= 1
    if len(places) and places[-1] >= size:
        raise ValueError(f"The message is damaged: it holds an index beyond an array of {size:,}.")
    return places, coded >> np.uint8(8 - width)
