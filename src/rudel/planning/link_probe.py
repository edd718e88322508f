"""Speeds of links: rates by differences between two sizes, without the constant cost of a message.

The time of a single message has a round trip in it, the handling of a call, and the slow start of TCP. What a second,
larger message takes longer is for its bytes alone.

To all hosts at the same time, each is sent as much as its own link carries in the time of the others, so that what is
measured is the medium, and not its slowest link. Of many hosts, some are measured by themselves; of the others, it is
known whether they are far slower.
"""

import asyncio
import math
import os
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rudel.planning.links import TRIAL_BYTES

Call = Callable[..., Awaitable[Any]]
"""A call of a handler on a host: (operation, **message) -> answer."""

_PINGS, _TRIALS = 7, 3

_BLOCK = TRIAL_BYTES
"""Bytes of the small message; the large one has more of them."""

_MOST_BYTES = 1 << 24

_ALONE = 8
"""So many hosts are measured by themselves."""

_FAR_SLOWER = 2.0
"""A host whose messages take more than so many times as long as those of most has a slower link of its own."""

_SECONDS, _SECONDS_TOGETHER = 0.1, 0.4
"""Seconds by which a large message should exceed a small one, or at least half of them: to one host, and to all, on
which most of a forecast rests. One that is busy may let the network wait for 0.1 s.
"""


@dataclass(frozen=True)
class Found:
    """Measurements of links.

    Args:
        round_trips: seconds of an empty message and its answer, of every host.
        rates, rates_up: bytes a second to every host, and from it, while nobody else sends anything.
        together, together_up: bytes a second to and from all of them at the same time.
        trials: see `Links`.
    """

    round_trips: tuple[float, ...]
    rates: tuple[float, ...]
    rates_up: tuple[float, ...]
    together: float
    together_up: float
    trials: tuple[tuple[int, float], ...]


async def links(calls: Sequence[Call]) -> Found:
    """Measures the links to hosts.

    Args:
        calls: of these hosts.
    """
    some = sorted({number * len(calls) // _ALONE for number in range(_ALONE)})
    alone = {number: await round_trip(calls[number]) for number in some}
    round_trips = await _of_all(calls, alone, {"content": b""})
    rates, together = await _one_way(calls, some, _down)
    rates_up, together_up = await _one_way(calls, some, _up)
    usual = sorted(range(len(calls)), key=rates.__getitem__)[len(calls) // 2]
    trials = [(1, await trial([calls[usual]]))]
    if len(calls) > 1:
        trials.append((len(calls), await trial(calls)))
    return Found(tuple(round_trips), tuple(rates), tuple(rates_up), together, together_up, tuple(trials))


async def round_trip(call: Call) -> float:
    """Seconds of an empty message and its answer."""
    trips = []
    for _ in range(_PINGS):
        trips += await _sent([call], [{"content": b""}])
    return statistics.median(trips[1:])


async def trial(calls: Sequence[Call]) -> float:
    """Seconds that the trial message of a training takes to hosts at the same time: as there, the fewest of some."""
    message, found = {"content": bytes(TRIAL_BYTES)}, []
    for _ in range(_TRIALS):
        seconds = await _sent(calls, [message] * len(calls))
        found.append(statistics.harmonic_mean(seconds))
        if max(seconds) > _SECONDS_TOGETHER:
            break
    return min(found)


def _down(blocks: int) -> dict[str, Any]:
    """A message of so many blocks to a host."""
    return {"content": os.urandom(_BLOCK) * blocks}


def _up(blocks: int) -> dict[str, Any]:
    """A message whose answer has so many blocks."""
    return {"content": b"", "back": _BLOCK * blocks}


async def _one_way(
    calls: Sequence[Call], some: Sequence[int], message: Callable[[int], dict[str, Any]]
) -> tuple[list[float], float]:
    """Bytes a second in one direction: of every host by itself, and of all at the same time."""
    alone = {number: _BLOCK / await rate([calls[number]], [1.0], message, _SECONDS) for number in some}
    rates = [_BLOCK / seconds for seconds in await _of_all(calls, alone, message(1))]
    if len(calls) == 1:
        return rates, rates[0]
    weights = [each / max(rates) for each in rates]
    return rates, await rate(calls, weights, message, _SECONDS_TOGETHER)


async def _of_all(calls: Sequence[Call], alone: Mapping[int, float], message: Mapping[str, Any]) -> list[float]:
    """Seconds of every host, of which some were measured by themselves: of the others, what is usual, or what they need
    for this message if that is far more than others do.
    """
    if len(alone) == len(calls):
        return [alone[number] for number in range(len(calls))]
    tries = [await _sent(calls, [message] * len(calls)) for _ in range(2)]
    needed = [min(seconds) for seconds in zip(*tries, strict=True)]
    usual, much = statistics.median(alone.values()), _FAR_SLOWER * statistics.median(needed)
    return [
        alone.get(number, usual if seconds <= much else max(usual, seconds)) for number, seconds in enumerate(needed)
    ]


async def rate(
    calls: Sequence[Call], weights: Sequence[float], message: Callable[[int], dict[str, Any]], seconds: float
) -> float:
    """Bytes a second of hosts at the same time.

    Args:
        calls: of these hosts.
        weights: how much each is sent, beside the one that is sent most, whose weight is 1.
        message: of so many blocks.
        seconds: that a large message should take longer than a small one.
    """
    small = [await _sent(calls, [message(1)] * len(calls))]
    if max(small[0]) < seconds:
        small.append(await _sent(calls, [message(1)] * len(calls)))
    most = max(1, _MOST_BYTES // _BLOCK * min(len(calls), _ALONE) // len(calls))
    blocks = min(most, math.ceil(seconds / statistics.median(small[-1])))
    while True:
        more = [round(blocks * weight) for weight in weights]
        messages = {count: message(1 + count) for count in set(more)}
        large = await _sent(calls, [messages[count] for count in more])
        counted = [number for number, count in enumerate(more) if count]
        before = min(max(each[number] for number in counted) for each in small)
        longer = max(large[number] for number in counted) - before
        if longer > seconds / 2 or blocks >= most:
            return _BLOCK * sum(more) / max(1e-6, longer)
        blocks = min(most, math.ceil(blocks * min(16.0, max(2.0, seconds / max(1e-6, longer)))))


async def _sent(calls: Sequence[Call], messages: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds until each has got its message, and answered; all are sent at the same time."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def until_answered(call: Call, message: Mapping[str, Any]) -> float:
        await call("probe", **message)
        return clock() - began

    return list(await asyncio.gather(*map(until_answered, calls, messages)))
