"""The form that writes the largest element of every few, in a byte each.

The elements of an array are dealt to groups of, for instance, 16: neighbours are in different groups, as what changes
much is often close together. Of each group, the element of the largest size is written: which of the 16 it is (4 bits),
its sign (1 bit) and its size, as one of 8 of its array (3 bits). Of arrays of up to 1,024 elements, such as biases,
every element is written.

The sizes of an array are the means of those of its elements that lie in the same octave, in relation to the mean of all
that are written. So what is left of an array is never more than there was, however often that is sent later.

Selecting the k largest elements of a whole array with their places, as in Y. Lin and others, *Deep gradient
compression*, 1712.01887, learns as much from a fifth fewer bytes, but takes half as long again: where
the largest are is random, and processors mispredict every branch that depends on it. Here, there are none (groups as in
B. Peng and others, *DeMo: Decoupled momentum optimization*, 2411.19870).
"""

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from rudel.train.diloco.bits import Reader
from rudel.train.diloco.vector import Change, Layout, check_sizes

_SMALL = 1024
"""Elements of an array of which all are written."""

_CODES = 256

_MANTISSA_BITS, _EXPONENT_OF_ONE = 23, 127  # of float32
_LEAST = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class _Groups:
    """How the elements of a vector are dealt to groups.

    Args:
        spans: of every array that has elements: where it begins in the vector and ends, and its groups likewise.
        starts, counts: int64 (spans,): first group of each span, and how many there are.
        first: int32 (groups,): index of the first element of each group.
        stride: int32 (groups,): from one element of it to the next.
        number: int32 (groups,): of its span.
        last: uint8 (groups,): place of its last element.
    """

    spans: tuple[tuple[int, int, int, int], ...]
    starts: np.ndarray
    counts: np.ndarray
    first: np.ndarray
    stride: np.ndarray
    number: np.ndarray
    last: np.ndarray

    @property
    def count(self) -> int:
        """Of the groups."""
        return len(self.first)


@functools.lru_cache(maxsize=8)
def _groups(layout: Layout, group: int) -> _Groups:
    spans, begin = [], 0
    for first, last in itertools.pairwise(map(int, layout.bounds)):
        if last > first:
            groups = last - first if last - first <= _SMALL else -(-(last - first) // group)
            spans.append((first, last, begin, begin + groups))
            begin += groups
    index = [np.arange(first, first + end - start, dtype=np.int32) for first, _, start, end in spans]
    sizes = [end - start for _, _, start, end in spans]
    ends = [(last - 1 - own) // size for (_, last, _, _), own, size in zip(spans, index, sizes, strict=True)]
    return _Groups(
        spans=tuple(spans),
        starts=np.array([start for _, _, start, _ in spans], np.int64),
        counts=np.array(sizes, np.int64),
        first=np.concatenate([np.empty(0, np.int32), *index]),
        stride=np.repeat(np.array(sizes, np.int32), sizes),
        number=np.repeat(np.arange(len(spans), dtype=np.int32), sizes),
        last=np.concatenate([np.empty(0, np.uint8), *ends]).astype(np.uint8),
    )


@dataclass(frozen=True)
class Largest:
    """See the module.

    Args:
        group: elements of which one is written: a power of two from 2 to 64.
    """

    group: int

    @property
    def _levels(self) -> int:
        """Sizes that the elements of an array can have."""
        return _CODES // (2 * self.group)

    def write(self, vector: np.ndarray, layout: Layout) -> tuple[bytes, Change]:
        """Writes a vector.

        Args:
            vector: float32 (N,).
            layout: of it.

        Returns:
            The bytes, and what is read from them.

        Raises:
            FloatingPointError: see `rudel.train.diloco.vector.check_sizes`.
        """
        groups, levels = _groups(layout, self.group), self._levels
        places, sizes = _largest(vector, groups, self.group)
        check_sizes(sizes)
        indices = groups.first + places * groups.stride
        values = vector[indices]
        means = np.add.reduceat(sizes, groups.starts, dtype=np.float64) / groups.counts if groups.count else np.empty(0)
        ratios = sizes / np.maximum(means, _LEAST).astype(np.float32)[groups.number]
        level = ratios.view(np.int32) >> _MANTISSA_BITS
        level -= _EXPONENT_OF_ONE - (levels // 2 - 1)
        np.minimum(np.maximum(level, 0, out=level), levels - 1, out=level)
        slots, table = groups.number * levels + level, levels * len(groups.spans)
        sums, numbers = np.bincount(slots, sizes, table), np.bincount(slots, minlength=table)
        magnitudes = (sums / np.maximum(numbers, 1)).astype("<f4")
        level += levels * np.signbit(values)
        level += places * (2 * levels)
        change = Change(np.copysign(magnitudes[slots], values), indices)
        return magnitudes.tobytes() + level.astype(np.uint8).tobytes(), change

    def read(self, reader: Reader, layout: Layout) -> Change:
        """Reads what `write` has written.

        Raises:
            ValueError: the message ends early, or cannot have been written.
        """
        groups, levels = _groups(layout, self.group), self._levels
        magnitudes = reader.array("<f4", levels * len(groups.spans)).reshape(-1, levels)
        codes = reader.array("u1", groups.count)
        places = codes // np.uint8(2 * levels)
        if not np.all(np.isfinite(magnitudes)) or np.any(places > groups.last):
            raise ValueError(
                "The message is damaged: it holds numbers that are not finite, or elements that do not exist."
            )
        signed = np.concatenate([magnitudes, -magnitudes], axis=1).reshape(-1)
        values = signed[groups.number * (2 * levels) + codes % np.uint8(2 * levels)]
        return Change(values, groups.first + places * groups.stride)


def _largest(vector: np.ndarray, groups: _Groups, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Which element of each group is the largest, int32 (groups,), and its size, float32 (groups,).

    Bits of positive floats are in the order of the floats. So the lowest few bits of a size, 2e-6 of it for four, give
    room for the place, and one maximum finds both; counted from the last one, so that of equal elements the first is
    chosen, and none of those that fill an array up.
    """
    keys = np.empty(groups.count, np.int32)
    bits, place = vector.view(np.int32), np.int32(group - 1)
    size = np.int32(2**31 - 1) - place
    from_last = np.arange(place, -1, -1, dtype=np.int32)[:, None]
    for first, last, begin, end in groups.spans:
        mine = bits[first:last]
        if end - begin < last - first:
            if missing := -mine.size % group:
                mine = np.concatenate([mine, np.zeros(missing, np.int32)])
            sizes = mine.reshape(group, -1) & size
            sizes |= from_last
            sizes.max(axis=0, out=keys[begin:end])
        else:
            np.bitwise_or(mine & size, place, out=keys[begin:end])
    return ~keys & place, (keys & ~place).view(np.float32)
