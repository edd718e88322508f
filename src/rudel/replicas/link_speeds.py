"""How fast the links to workers are, by messages that they answer."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rudel.cluster.fleet import TRANSPORT_ERRORS
from rudel.replicas.members import Member

_PROBES, _PROBE_BYTES, _RATE_SECONDS = 3, 2**16, 0.5
"""Attempts at each link, their bytes, and seconds that the attempts at its rate may take."""


@dataclass(frozen=True)
class LinkSpeeds:
    """The links to all workers.

    Args:
        rate: bytes a second to all at the same time.
        round_trip: seconds to the farthest and back.
    """

    rate: float = math.inf
    round_trip: float = 0.0


async def measured(members: Sequence[Member], probe: Callable[[Member, bytes], Awaitable[object]]) -> LinkSpeeds:
    """Measures the links; a worker that does not answer adds nothing.

    Args:
        members: whose.
        probe: sends a worker some bytes, and returns when it has answered; may raise what the network did.
    """

    async def seconds(member: Member, content: bytes) -> float:
        began = time.perf_counter()
        await probe(member, content)
        return time.perf_counter() - began

    async def round_trip(member: Member) -> float:
        with contextlib.suppress(*TRANSPORT_ERRORS):
            return min([await seconds(member, b"") for _ in range(_PROBES)])
        return 0.0

    async def rate(member: Member) -> float:
        with contextlib.suppress(*TRANSPORT_ERRORS):
            return _PROBE_BYTES / await seconds(member, bytes(_PROBE_BYTES))
        return 0.0

    farthest = max(await asyncio.gather(*map(round_trip, members)))
    began, rates = time.perf_counter(), []
    while len(rates) < _PROBES and time.perf_counter() - began < _RATE_SECONDS:
        rates.append(sum(await asyncio.gather(*map(rate, members))))
    return LinkSpeeds(max(1.0, *rates), farthest)  # the most: a host that computes answers late
