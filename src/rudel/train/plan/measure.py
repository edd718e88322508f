"""How fast each host is with this model, and the links to it, measured without training and without sending the data.

Every host gets the very program that it would train with, and takes steps on zeros: all hosts at the same time, so that
what they share (a processor, a supply of power) is shared as in the training. Messages are sent to one host after the
other, and then to all at once, which on Wi-Fi is not the same.
"""

import asyncio
import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

from rudel.errors import ClusterError
from rudel.train.diloco.replica import Replica, Setup
from rudel.train.diloco.service import ReplicaPlugin, Service
from rudel.train.diloco.training import DilocoTraining
from rudel.train.plan.forecast import Speed
from rudel.train.plan.links import Links

REHEARSAL_SECONDS = 2.0
"""For which all hosts take steps at the same time."""

_PROBES = 7
_LONG_ENOUGH, _FIRST_BYTES, _MOST_BYTES = 0.15, 1 << 15, 1 << 23


@dataclass(frozen=True)
class Host:
    """What was measured of a host.

    Args:
        speed: with this model.
        round_trip: seconds.
        rate: bytes a second to it, while nobody else is sent anything.
        cores, machine: as it says itself.
        compile_seconds: that its program took.
    """

    speed: Speed
    round_trip: float
    rate: float
    cores: int
    machine: str
    compile_seconds: float


@dataclass(frozen=True)
class Measured:
    """What was measured of a cluster.

    Args:
        hosts: all that answered.
        together: bytes a second to all of them at the same time.
        seconds: that measuring took.
    """

    hosts: tuple[Host, ...]
    together: float
    seconds: float

    @property
    def links(self) -> Links:
        """As a forecast wants them."""
        return Links(
            rate=self.together,
            own=statistics.median(host.rate for host in self.hosts),
            latency=statistics.median(host.round_trip for host in self.hosts) / 2,
        )


@dataclass(frozen=True)
class Nowhere:
    """In the place of a cluster: so many hosts that are only thought of."""

    count: int


class Rehearsal(DilocoTraining):
    """A training in rounds of which everything is prepared, and nothing done."""

    def here(self) -> Speed:
        """How fast this computer is, by itself."""
        about = asyncio.run(Service().describe())
        replica = Replica(Setup(**self._setup(0, {**about, "name": about["host"]})), lambda number, answer: None)
        step = replica.rehearse(REHEARSAL_SECONDS)
        return Speed(about["host"], step, replica.exchange_seconds, replica.exchange_bytes, about["memory"])

    def measure(self) -> Measured:
        """Measures the workers of the cluster.

        Raises:
            ClusterError: there are none, or one has other versions than this computer.
            ModelError: the model is too large for one.
        """
        return self._cluster.background.start(self._measure()).result()

    async def _measure(self) -> Measured:
        began = time.perf_counter()
        fleet = self._cluster.fleet
        await fleet.install(ReplicaPlugin())
        try:
            members = await fleet.members()
            if not members:
                raise ClusterError("The cluster has no workers: start some, and look at the Dask scheduler's log.")
            self._hosts = sorted(members)
            calls = [_Calls(fleet, name, members[name]) for name in self._hosts]
            described = await asyncio.gather(*(call("describe") for call in calls))
            setups = [
                await asyncio.to_thread(self._setup, number, {**about, "name": call.name})
                for number, (call, about) in enumerate(zip(calls, described, strict=True))
            ]
            token = os.urandom(8).hex()
            prepared = await asyncio.gather(
                *(call("prepare", token=token, setup=setup) for call, setup in zip(calls, setups, strict=True))
            )
            links = [await _link(call) for call in calls]
            together = await _together(calls, min(rate for _, rate in links))
            steps = await asyncio.gather(*(call("rehearse", token=token, seconds=REHEARSAL_SECONDS) for call in calls))
            await asyncio.gather(*(call("end", token=token) for call in calls))
        finally:
            await fleet.uninstall(ReplicaPlugin.name)
            await fleet.close()
        hosts = tuple(
            Host(
                Speed(call.name, step, made["exchange_seconds"], made["exchange_bytes"], about["memory"]),
                round_trip,
                rate,
                about["cores"],
                about["machine"],
                made["compile_seconds"],
            )
            for call, step, made, about, (round_trip, rate) in zip(
                calls, steps, prepared, described, links, strict=True
            )
        )
        return Measured(hosts, together, time.perf_counter() - began)


class _Calls:
    """Calls to a worker."""

    def __init__(self, fleet: Any, name: str, address: str) -> None:
        self._fleet, self.name, self._address = fleet, name, address

    async def __call__(self, operation: str, **message: Any) -> Any:
        try:
            return await self._fleet.call(self._address, f"rudel_{operation}", timeout=120.0, **message)
        except OSError as error:
            raise ClusterError(f"{self.name} was lost while it was measured: look after it, and try again.") from error


async def _link(call: _Calls) -> tuple[float, float]:
    """Seconds of a round trip, and bytes a second of blocks that grow until one takes long enough."""
    trips = []
    for _ in range(_PROBES):
        began = time.perf_counter()
        await call("probe", content=b"")
        trips.append(time.perf_counter() - began)
    round_trip = statistics.median(trips[1:])
    size = _FIRST_BYTES
    while True:
        seconds = await _sent([call], size)
        if seconds > _LONG_ENOUGH or size >= _MOST_BYTES:
            return round_trip, size / max(1e-6, seconds - round_trip)
        size *= 4


async def _together(calls: list[_Calls], rate: float) -> float:
    """Bytes a second to all at the same time."""
    size = int(min(max(_FIRST_BYTES, rate * _LONG_ENOUGH), _MOST_BYTES))
    return len(calls) * size / await _sent(calls, size)


async def _sent(calls: list[_Calls], size: int) -> float:
    """Seconds until all have been sent so many bytes."""
    content = os.urandom(size)
    began = time.perf_counter()
    await asyncio.gather(*(call("probe", content=content) for call in calls))
    return time.perf_counter() - began
