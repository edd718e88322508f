"""Small whole numbers as few bits, by array operations alone: bit planes, and Golomb-Rice codes of gaps between indices.

Everything that is read comes from the network. What does not fit raises `ValueError`; nothing is read beyond the end of
a message, and no array is made that has more elements than the message has bits, whatever a message claims.

Limit: indices are below 2**31.
"""

import struct

import numpy as np

_GAPS = struct.Struct("<BI")
_MOST_REMAINDER_BITS = 31


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

    Args:
        values: unsigned integers (N,) below 2**width.
        width: bits of each, 0 to 31.

    >>> pack(np.array([1, 2, 3], np.uint8), 2).hex()
    'a060'
    """
    return b"".join(np.packbits(values & values.dtype.type(1 << bit)).tobytes() for bit in range(width))


def packed_length(count: int, width: int) -> int:
    """The bytes that `pack` makes of so many numbers."""
    return width * -(-count // 8)


def unpack(reader: Reader, count: int, width: int) -> np.ndarray:
    """Reads `count` numbers that `pack` wrote.

    Returns:
        Unsigned integers (count,): uint8 up to 8 bits, uint32 above.

    Raises:
        ValueError: the message ends before them.

    >>> unpack(Reader(bytes.fromhex("a060")), 3, 2)
    array([1, 2, 3], dtype=uint8)
    """
    planes = reader.array("u1", packed_length(count, width)).reshape(width, -(-count // 8))
    dtype = np.uint8 if width <= 8 else np.uint32
    if width == 0:
        return np.zeros(count, dtype)
    values = np.unpackbits(planes[0], count=count).astype(dtype, copy=False)
    for bit in range(1, width):
        values |= np.unpackbits(planes[bit], count=count).astype(dtype, copy=False) << dtype(bit)
    return values


def pack_indices(indices: np.ndarray) -> bytes:
    """Packs sorted indices: the gaps between them, less one, as Golomb-Rice codes.

    A gap is cut into its lower k bits, packed as they are, and the rest, in unary. Where each index is taken with the
    same probability, gaps are distributed geometrically, and the code comes within 4 % of their entropy. k is the one
    that makes the fewest bits.

    Sources: S. Golomb, *Run-length encodings*, IEEE Transactions on Information Theory 12 (1966); R. Rice, *Some
    practical universal noiseless coding techniques*, JPL 79-22 (1979). F. Sattler and others, *Robust and
    communication-efficient federated learning from non-i.i.d. data*, 1903.02891, send sparse deltas so.

    Args:
        indices: integers (N,), strictly increasing, from 0.

    >>> unpack_indices(Reader(pack_indices(np.array([0, 5, 6, 40]))), count=4, size=41)
    array([ 0,  5,  6, 40])
    """
    if not len(indices):
        return b""
    gaps = np.empty(len(indices), np.uint32)
    gaps[0] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=gaps[1:], casting="unsafe")
    gaps[1:] -= np.uint32(1)
    width = _remainder_bits(gaps)
    ends = np.cumsum(gaps >> np.uint32(width), dtype=np.int64)
    ends += np.arange(len(gaps))
    unary = np.zeros(ends[-1] + 1, np.uint8)
    unary[ends] = 1
    coded = np.packbits(unary).tobytes()
    narrow = np.uint8 if width <= 8 else np.uint32
    return _GAPS.pack(width, len(coded)) + coded + pack(gaps.astype(narrow), width)


def unpack_indices(reader: Reader, count: int, size: int) -> np.ndarray:
    """Reads indices that `pack_indices` wrote.

    Args:
        reader: where they begin.
        count: how many there are.
        size: what all of them must be less than.

    Returns:
        int64 (count,), strictly increasing.

    Raises:
        ValueError: the message ends early, or holds other than `count` indices below `size`.
    """
    if count == 0:
        return np.empty(0, np.int64)
    width, length = reader.fields(_GAPS)
    if width > _MOST_REMAINDER_BITS:
        raise ValueError(f"The message is damaged: indices cannot have remainders of {width} bits.")
    ends = np.flatnonzero(np.unpackbits(reader.array("u1", length)))
    if len(ends) != count:
        raise ValueError(f"The message is damaged: it holds {len(ends):,} indices in place of {count:,}.")
    order = np.arange(count)
    quotients = np.subtract(ends, order, out=ends)  # summed up: the i-th code ends at the sum of all up to it, plus i
    indices = np.cumsum(unpack(reader, count, width), dtype=np.int64)
    if int(quotients[-1]) << width < size:
        indices += quotients << width
        indices += order
        if indices[-1] < size:
            return indices
    raise ValueError(f"The message is damaged: it holds an index beyond an array of {size:,}.")


def _remainder_bits(gaps: np.ndarray) -> int:
    """The k with which the codes of these gaps have the fewest bits."""
    mean = float(gaps.mean())
    near = max(0, int(np.log2(max(1.0, np.log(2) * mean))))
    return min(
        (k for k in (near - 1, near, near + 1) if 0 <= k <= _MOST_REMAINDER_BITS),
        key=lambda k: len(gaps) * k + int((gaps >> np.uint32(k)).sum(dtype=np.int64)),
    )
