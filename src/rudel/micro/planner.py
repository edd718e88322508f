"""Places of tensors in the arena.

Buffers that are needed at the same time lie apart, with one exception: where a step says that its kernel reads ahead of
what it writes (`rudel.micro.emit.Overlap`), its input, if nothing needs it afterwards, and its output may share
memory. That is more than computing in place: the two may be shifted against each other by any distance that is safe,
so that a convolution, too, can write over the part of its input that it has done with.

To find the smallest arena is hard (it is a form of bin packing); what is done here is greedy placement in many
orders, with a fixed seed, until the bound that the largest step sets is reached or the trials are used up. An order is
changed by moving a few buffers in it, every other time one at the end of the arena or one that is in its way.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rudel.micro.emit import Overlap

TRIALS = 400


@dataclass(frozen=True)
class Buffer:
    """Memory that is needed for a while.

    Attributes:
        size: bytes.
        first: the step that writes it; -1 for what the caller gives.
        last: the last step that reads it.
    """

    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """Start of each buffer, and the length of the arena, in bytes."""

    offsets: tuple[int, ...]
    size: int


def plan_memory(
    buffers: Sequence[Buffer], overlaps: Mapping[tuple[int, int], Overlap], alignment: int = 4, trials: int = TRIALS
) -> Plan:
    """Finds places for all buffers.

    Args:
        buffers: what needs memory, and when.
        overlaps: by (number of an input, number of an output) of a step: how they may share memory. Only used where the
            input is not needed after the step that writes the output.
        alignment: offsets are multiples of it.
        trials: how many orders to try.
    """
    if not buffers:
        return Plan((), 0)
    sizes = [_up(buffer.size, alignment) for buffer in buffers]
    forbidden = _forbidden(buffers, sizes, overlaps, alignment)
    bound = _bound(buffers, sizes, forbidden)
    best: list[int] | None = None
    best_size = 0
    chance = random.Random(0)
    numbers = range(len(buffers))
    orders = [
        sorted(numbers, key=lambda n: (-sizes[n], n)),
        sorted(numbers, key=lambda n: (buffers[n].first, n)),
        sorted(numbers, key=lambda n: (-buffers[n].last, -n)),
        sorted(numbers, key=lambda n: (-sizes[n] * (buffers[n].last - buffers[n].first + 1), n)),
    ]
    tried = 0
    current: list[int] = []
    topmost: list[int] = []
    while tried < max(trials, len(orders)):
        if tried < len(orders):
            order = orders[tried]
        else:
            order = list(current)
            for _ in range(chance.randint(1, 3)):
                moved = chance.choice(topmost if chance.random() < 0.5 else order)
                order.remove(moved)
                order.insert(chance.randrange(len(order) + 1), moved)
        tried += 1
        offsets, size = _place(order, sizes, forbidden)
        if best is None or size <= best_size:
            current = order
            ends = {number for number in numbers if offsets[number] + sizes[number] == size}
            topmost = sorted(ends.union(*(forbidden[number] for number in ends)))
            if best is None or size < best_size:
                best, best_size = offsets, size
        if best_size <= bound:
            break
    assert best is not None
    return Plan(tuple(best), best_size)


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


Gaps = tuple[tuple[int, int], ...]


def _forbidden(
    buffers: Sequence[Buffer], sizes: list[int], overlaps: Mapping[tuple[int, int], Overlap], alignment: int
) -> list[dict[int, Gaps]]:
    """Returns, for each buffer and each other one, between which distances (own start - other's start) it must not lie.

    The bounds themselves are allowed.
    """
    result: list[dict[int, Gaps]] = [{} for _ in buffers]
    for a, first in enumerate(buffers):
        for b in range(a):
            second = buffers[b]
            if first.first > second.last or second.first > first.last:
                continue
            if (overlap := overlaps.get((a, b))) and first.last <= second.first:
                gaps = _gaps(overlap, sizes[a], sizes[b], alignment)
            elif (overlap := overlaps.get((b, a))) and second.last <= first.first:
                gaps = tuple((-high, -low) for low, high in _gaps(overlap, sizes[b], sizes[a], alignment))
            else:
                gaps = ((-sizes[a], sizes[b]),)
            if gaps:
                result[a][b] = gaps
                result[b][a] = tuple((-high, -low) for low, high in gaps)
    return result


def _gaps(overlap: Overlap, source: int, output: int, alignment: int) -> Gaps:
    """Returns the open intervals in which the distance (start of the input - start of the output) must not be."""
    low, high = -source, output
    if overlap.lead is not None:
        high = min(high, _up(overlap.lead, alignment))
    if low >= high:
        return ()
    if overlap.together and low < 0 < high:
        return ((low, 0), (0, high))
    return ((low, high),)


def _bound(buffers: Sequence[Buffer], sizes: list[int], forbidden: list[dict[int, Gaps]]) -> int:
    """Returns a size below which no arena can be."""
    bound = max(sizes)
    for a, others in enumerate(forbidden):
        for b, gaps in others.items():
            allowed = [0] if not any(low < 0 < high for low, high in gaps) else []
            allowed += [edge for gap in gaps for edge in gap if not any(low < edge < high for low, high in gaps)]
            spans = [max(sizes[a] + max(edge, 0), sizes[b] + max(-edge, 0)) for edge in allowed]
            bound = max(bound, min(spans))
    for step in {buffer.first for buffer in buffers}:
        alive = [n for n, buffer in enumerate(buffers) if buffer.first <= step <= buffer.last]
        if all(forbidden[a].get(b) == ((-sizes[a], sizes[b]),) for a in alive for b in alive if a != b):
            bound = max(bound, sum(sizes[n] for n in alive))
    return bound


def _place(order: list[int], sizes: list[int], forbidden: list[dict[int, Gaps]]) -> tuple[list[int], int]:
    """Puts buffers, one after the other, at the lowest offset that is free."""
    offsets = [-1] * len(sizes)
    end = 0
    for number in order:
        gaps = sorted(
            (offsets[other] + low, offsets[other] + high)
            for other, between in forbidden[number].items()
            if offsets[other] >= 0
            for low, high in between
        )
        offset = 0
        changed = True
        while changed:
            changed = False
            for low, high in gaps:
                if low < offset < high:
                    offset, changed = high, True
        offsets[number] = offset
        end = max(end, offset + sizes[number])
    return offsets, end
