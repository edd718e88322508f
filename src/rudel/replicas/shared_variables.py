"""Non-trainable variables whose values replicas agree on: moving statistics, counts, masks, Booleans.

Of numbers with a fraction, the mean over the replicas holds, weighted by their steps; of whole numbers, as a layer that
counts its steps has, the largest, which one of them had; of Booleans, True where one of them has it. Elements that are
the same everywhere stay as they are to the bit, finite or not.
"""

import functools
from collections.abc import Sequence

import numpy as np

from rudel.array_types import Num


def is_shared(value: np.ndarray) -> bool:
    """Whether replicas can agree on a variable with this value: real numbers or Booleans."""
    return value.dtype.kind in "bfiuV"


def as_shared(value: object) -> Num[np.ndarray, "*shape"]:
    """The value of such a variable as it travels, an array of its own.

    It is float32, or whole numbers as they are, or Booleans as uint8.

    >>> as_shared(np.float16(1.5)), as_shared(np.int32(7)), as_shared(np.True_)
    (array(1.5, dtype=float32), array(7, dtype=int32), array(1, dtype=uint8))
    """
    array = np.asarray(value)
    if array.dtype.kind == "b":
        return np.array(array, np.uint8)
    return np.array(array, array.dtype if _is_whole(array) else np.float32)


def mean_of(values: Sequence[Num[np.ndarray, "*shape"]], steps: Sequence[int]) -> Num[np.ndarray, "*shape"]:
    """The mean over the replicas, or the largest of whole numbers.

    Args:
        values: of the replicas, as they travel.
        steps: that each stands for.

    >>> mean_of([np.float32([1, -np.inf]), np.float32([2, -np.inf])], [1, 3])
    array([1.75, -inf], dtype=float32)
    >>> mean_of([np.array(5), np.array(7)], [1, 3])
    array(7)
    """
    first, *others = values
    if _is_whole(first):
        return np.asarray(functools.reduce(np.maximum, others, first))
    with _without_warnings():
        weighted = (value * np.float32(count) for value, count in zip(values, steps, strict=True))
        mean = functools.reduce(np.add, weighted) / np.float32(sum(steps))
    alike = np.all([other == first for other in others], axis=0)
    return np.where(alike, first, mean)


def moved_towards(
    value: Num[np.ndarray, "*shape"], own: Num[np.ndarray, "*shape"], weight: float
) -> Num[np.ndarray, "*shape"]:
    """The value after that of one replica has come: part of the way there, or the larger one of whole numbers.

    Args:
        value: before; where it is infinite, no part of the way is defined, and the replica's holds.
        own: of the replica.
        weight: how far the value moves, from 0 to 1.

    >>> moved_towards(np.float32([1, -np.inf]), np.float32([2, -np.inf]), 0.25)
    array([1.25, -inf], dtype=float32)
    """
    if _is_whole(value):
        return np.asarray(np.maximum(value, own))
    with _without_warnings():
        return np.where(np.isfinite(value), value + np.float32(weight) * (own - value), own)


def agreed(
    now: Num[np.ndarray, "*shape"], start: Num[np.ndarray, "*shape"], mean: Num[np.ndarray, "*shape"]
) -> Num[np.ndarray, "*shape"]:
    """A shared variable of a replica, when the mean over all replicas has come.

    What it has moved since it was averaged counts on top of the mean. A moving variance has forgotten much of where it
    was by then, and must not become negative: what was not negative is at least the smaller of what it is and the mean.
    Whole numbers become the larger of what they are and the mean, which are values that a replica had.

    Args:
        now: what it is.
        start: what it was when it was averaged; where the mean is the same, it stays what it is.
        mean: over the replicas, at that time.

    >>> agreed(np.float32([4.0, -1.0]), np.float32([10.0, 0.0]), np.float32([3.0, 2.0]))
    array([3., 1.], dtype=float32)
    >>> agreed(np.float32([-np.inf]), np.float32([-np.inf]), np.float32([-np.inf])), agreed(*np.int32([[9], [8], [10]]))
    (array([-inf], dtype=float32), array([10], dtype=int32))
    """
    if _is_whole(now):
        return np.where(mean == start, now, np.maximum(now, mean))
    with _without_warnings():
        moved = np.where(np.isfinite(start), now + (mean - start), mean)
    positive = (now >= 0) & (start >= 0) & (mean >= 0)
    moved = np.where(positive, np.maximum(moved, np.minimum(now, mean)), moved)
    return np.where(mean == start, now, moved)


def _is_whole(value: np.ndarray) -> bool:
    return value.dtype.kind in "iu"


def _without_warnings() -> np.errstate:
    """For arithmetic with elements that are infinite, or become so, and whose result is not used."""
    return np.errstate(over="ignore", invalid="ignore")
