"""How fast links are: rates by differences between two sizes, so that what every message takes is not in them.

The time of a single message has a round trip in it, the handling of a call, and the slow start of TCP. What a second,
larger message takes longer is for its bytes alone.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rudel.train.plan.links import TRIAL_BYTES

Call = Callable[..., Awaitable[Any]]
"""A call of a handler on a host: (operation, **message) -> answer."""

_PINGS, _TRIALS = 7, 3
_LONG_ENOUGH, _MOST_BYTES = 0.1, 1 << 23

LONG_SECONDS = 0.3
"""Long enough for all hosts together, on which most of a forecast rests: one that is busy may let the network wait for
0.1 s.
"""


async def round_trip(call: Call) -> float:
    """Seconds of an empty message and its answer."""
    trips = []
    for _ in range(_PINGS):
        trips.append(await _sent([call], b""))
    return statistics.median(trips[1:])


async def trial(calls: Sequence[Call]) -> float:
    """Seconds that the trial message of a training takes to hosts at the same time, as it counts them."""
    content, found = bytes(TRIAL_BYTES), []
    for _ in range(_TRIALS):
        seconds = await asyncio.gather(*(_sent([call], content) for call in calls))
        found.append(len(seconds) / sum(1 / each for each in seconds))
    return statistics.median(found)


async def rate(calls: Sequence[Call], long_enough: float = _LONG_ENOUGH) -> float:
    """Bytes a second to hosts at the same time.

    Args:
        calls: of these hosts.
        long_enough: seconds that a message should take longer than a small one.
    """
    size, content = TRIAL_BYTES, os.urandom(TRIAL_BYTES)
    before = min([await _sent(calls, content) for _ in range(2)])
    while True:
        size *= 4
        content = os.urandom(size)
        seconds = await _sent(calls, content)
        if seconds - before > long_enough or size >= _MOST_BYTES:
            return len(calls) * (size - TRIAL_BYTES) / max(1e-6, seconds - before)


async def _sent(calls: Sequence[Call], content: bytes) -> float:
    """Seconds until all have got this."""
    began = time.perf_counter()
    await asyncio.gather(*(call("probe", content=content) for call in calls))
    return time.perf_counter() - began
