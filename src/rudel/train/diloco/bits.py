"""Small whole numbers as few bits, by array operations alone: bit planes, and Golomb-Rice codes of sorted indices.

Everything that is read comes from the network. What does not fit raises `ValueError`; nothing is read beyond the end of
a message, and no array is made that has more elements than the message has bits, whatever a message claims.

Limit: indices are below 2**31.
"""

import struct

import numpy as np

_LENGTH = struct.Struct("<I")
_BLOCK = 256
_MOST_BITS = 31


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
        width: bits of each.

    >>> pack(np.array([1, 2, 3], np.uint8), 2).hex()
    'a060'
    """
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


def pack_indices(indices: np.ndarray) -> bytes:
    """Packs sorted indices: the gaps between them, less one, as Golomb-Rice codes.

    A gap is cut into its lower k bits, packed as they are, and the rest, in unary. Where each index is taken with the
    same probability, gaps are distributed geometrically, and the code comes within a few per cent of their entropy.
    Every 256 gaps have a k of their own, so that it follows the density.

    Sources: S. Golomb, *Run-length encodings*, IEEE Transactions on Information Theory 12 (1966); R. Rice, *Some
    practical universal noiseless coding techniques*, JPL 79-22 (1979). F. Sattler and others, *Robust and
    communication-efficient federated learning from non-i.i.d. data*, 1903.02891, send sparse deltas so.

    Args:
        indices: integers (N,), strictly increasing, from 0.

    >>> unpack_indices(Reader(pack_indices(np.array([0, 5, 6, 40]))), count=4, size=41)
    array([ 0,  5,  6, 40])
    """
    count = len(indices)
    if not count:
        return b""
    blocks = np.zeros((-(-count // _BLOCK), _BLOCK), np.uint32)
    gaps = blocks.reshape(-1)[:count]
    gaps[0] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=gaps[1:], casting="unsafe")
    gaps[1:] -= np.uint32(1)
    parameters = _parameters(gaps)
    unary_lengths = (blocks >> parameters[:, None]).reshape(-1)[:count]
    unary_lengths += np.uint32(1)
    ends = np.cumsum(unary_lengths, dtype=np.int64)
    unary = np.zeros(ends[-1], np.bool_)
    unary[ends - 1] = True
    coded = np.packbits(unary).tobytes()
    planes = []
    for bit in range(parameters.max()):
        (long,) = np.nonzero(parameters > bit)
        filled = len(long) * _BLOCK - (blocks.size - count if long[-1] == len(blocks) - 1 else 0)
        planes.append(pack_plane(blocks[long].reshape(-1)[:filled], bit))
    return b"".join([_LENGTH.pack(len(coded)), parameters.tobytes(), coded, *planes])


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
    (length,) = reader.fields(_LENGTH)
    parameters = reader.array("u1", -(-count // _BLOCK))
    ends = np.flatnonzero(np.unpackbits(reader.array("u1", length)).view(np.bool_))
    if len(ends) != count:
        raise ValueError(f"The message is damaged: it holds {len(ends):,} indices in place of {count:,}.")
    if parameters.max() > _MOST_BITS:
        raise ValueError(f"The message is damaged: a gap cannot have {parameters.max()} lower bits.")
    gaps = np.zeros((len(parameters), _BLOCK), np.int64)
    flat = gaps.reshape(-1)[:count]
    flat[0] = ends[0]
    np.subtract(ends[1:], ends[:-1], out=flat[1:])
    flat[1:] -= 1
    if np.any(gaps.max(axis=1) > np.int64(size) >> parameters):
        raise ValueError(f"The message is damaged: it holds an index beyond an array of {size:,}.")
    gaps <<= parameters[:, None]
    missing = gaps.size - count
    for bit in range(parameters.max()):
        (blocks,) = np.nonzero(parameters > bit)
        unfilled = missing if blocks[-1] == len(parameters) - 1 else 0
        plane = unpack_plane(reader, len(blocks) * _BLOCK - unfilled)
        plane = np.concatenate([plane, np.zeros(unfilled, np.uint8)]).reshape(-1, _BLOCK)
        gaps[blocks] |= np.left_shift(plane, bit, dtype=np.int64)
    flat += 1
    indices = np.cumsum(flat, out=flat)
    indices -= 1
    if indices[-1] >= size:
        raise ValueError(f"The message is damaged: it holds an index beyond an array of {size:,}.")
    return indices


def _parameters(gaps: np.ndarray) -> np.ndarray:
    """A k for every 256 gaps with which their codes have few bits: uint8."""
    starts = np.arange(0, len(gaps), _BLOCK)
    sums = np.add.reduceat(gaps, starts, dtype=np.float64)
    means = sums / np.diff(starts, append=len(gaps))
    return np.log2(np.maximum(1, means * np.log(2) + 0.5)).astype(np.uint8)
