"""How fast each host is with this model, and the links to it, measured without training and without sending the data.

Every host gets the very program that it would train with, and takes steps on zeros: all hosts at the same time, so that
what they share (a processor, a supply of power) is shared as in the training. Messages are sent to one host after the
other, and then to all at once, which on Wi-Fi is not the same.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rudel.backend import keras_here
from rudel.errors import ClusterError
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.messages import Setup
from rudel.train.diloco.options import Diloco
from rudel.train.diloco.outer import make_outer
from rudel.train.diloco.replica import Replica
from rudel.train.diloco.service import ReplicaPlugin, Service
from rudel.train.diloco.training import DilocoTraining
from rudel.train.display import choose_display
from rudel.train.job import Job
from rudel.train.plan import probe
from rudel.train.plan.forecast import Desk, Speed, Work
from rudel.train.plan.links import Links
from rudel.train.plan.planning import Planned, plan

REHEARSAL_SECONDS, ROUNDS_SECONDS, QUIET_SECONDS = 1.5, 1.5, 0.75
"""For which all hosts take steps at the same time, then rounds, and for which one takes steps by itself."""

_ROUND_SECONDS = 0.1
"""Length of a rehearsed round: the shorter, the more of its time is what a round takes beside its steps."""


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
        trials: see `Links`.
        quiet: a step of the fastest host while no other takes steps, over one while all do.
        seconds: that measuring took.
    """

    hosts: tuple[Host, ...]
    together: float
    trials: tuple[tuple[int, float], ...]
    quiet: float
    seconds: float

    @property
    def links(self) -> Links:
        """As a forecast wants them."""
        return Links(
            rate=self.together,
            own=statistics.median(host.rate for host in self.hosts),
            latency=statistics.median(host.round_trip for host in self.hosts) / 2,
            trials=self.trials,
        )


@dataclass(frozen=True)
class Nowhere:
    """In the place of a cluster: so many hosts that are only thought of."""

    count: int


class Rehearsal(DilocoTraining):
    """A training in rounds of which everything is prepared, and nothing done."""

    def look(self) -> tuple[Measured, Planned]:
        """Measures the workers of the cluster, and forecasts the training; raises what `measure` does."""
        measured = self.measure()
        hosts = [host.speed for host in measured.hosts]
        return measured, plan(self.work, hosts, measured.links, self.desk, measured.quiet)

    @property
    def work(self) -> Work:
        """What is to be trained."""
        state, schedule = self._host_state, self.job.schedule
        weights = sum(np.asarray(value).nbytes for value in state.trainable)
        whole = weights + sum(np.asarray(value).nbytes for value in (*state.non_trainable, *state.optimizer))
        return Work(schedule.total_steps, schedule.batch_size, weights, whole, self._source.nbytes)

    def here(self) -> Speed:
        """How fast this computer is, by itself."""
        about = asyncio.run(Service().describe())
        replica = Replica(Setup(**self._setup(0, {**about, "name": about["host"]})), lambda number, answer: None)
        tried = replica.step_seconds, replica.exchange_seconds
        step = replica.rehearse(QUIET_SECONDS)
        exchange, first = replica.rehearse_rounds(QUIET_SECONDS, _steps_in(_ROUND_SECONDS, step), step)
        return Speed(about["host"], step, exchange, replica.exchange_bytes, about["memory"], first=first, tried=tried)

    @property
    def desk(self) -> Desk:
        """How long this computer takes for a delta, and for closing a round."""
        codec, outer = make_codec(self._options.merge_codec), make_outer(self._options.outer)
        shapes = [np.shape(value) for value in self._host_state.trainable]
        random = np.random.default_rng(0)
        delta = [random.standard_normal(shape, np.float32) for shape in shapes]
        takes, closes = [], []
        for _ in range(5):
            began = time.perf_counter()
            message, _ = codec.encode(delta, codec.init(shapes))
            outer.update(delta, outer.init(delta), delta)
            closes.append(time.perf_counter() - began)
            began = time.perf_counter()
            codec.decode(message, shapes)
            takes.append(time.perf_counter() - began)
        return Desk(min(takes), min(closes))

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
            trips = [await probe.round_trip(call) for call in calls]
            rates = [await probe.rate([call]) for call in calls]
            together = await probe.rate(calls) if len(calls) > 1 else rates[0]
            trials = tuple([(number, await probe.trial(calls[:number])) for number in sorted({1, len(calls)})])
            steps, beside, quiet = await _rehearsed(calls, token, [made["exchange_bytes"] for made in prepared])
            await asyncio.gather(*(call("end", token=token) for call in calls))
        finally:
            await fleet.uninstall(ReplicaPlugin.name)
            await fleet.close()
        hosts = tuple(
            Host(
                Speed(
                    call.name,
                    step,
                    exchange,
                    made["exchange_bytes"],
                    about["memory"],
                    first,
                    (made["step_seconds"], made["exchange_seconds"]),
                ),
                trip,
                rate,
                about["cores"],
                about["machine"],
                made["compile_seconds"],
            )
            for call, about, made, trip, rate, step, (exchange, first) in zip(
                calls, described, prepared, trips, rates, steps, beside, strict=True
            )
        )
        return Measured(hosts, together, trials, quiet, time.perf_counter() - began)


async def _rehearsed(
    calls: "list[_Calls]", token: str, sizes: Sequence[int]
) -> tuple[list[float], list[tuple[float, float]], float]:
    """Seconds of a step of each host; what a round, and the first, takes beside; how much faster one is by itself."""
    steps = await asyncio.gather(*(call("rehearse", token=token, seconds=REHEARSAL_SECONDS) for call in calls))
    beside = await asyncio.gather(
        *(_rounds(call, token, step, size) for call, step, size in zip(calls, steps, sizes, strict=True))
    )
    if len(calls) == 1:
        return steps, beside, 1.0
    fastest = min(range(len(calls)), key=lambda number: steps[number])
    alone = await calls[fastest]("rehearse", token=token, seconds=QUIET_SECONDS)
    return steps, beside, min(1.0, alone / steps[fastest])


async def _rounds(call: "_Calls", token: str, step: float, size: int) -> tuple[float, float]:
    """What a round, and the first one, takes beside its steps, while messages of that size come as they would then."""
    content, steps = os.urandom(size), _steps_in(_ROUND_SECONDS, step)
    rounds = asyncio.ensure_future(call("rehearse", token=token, seconds=ROUNDS_SECONDS, steps=steps, step=step))
    while not (await asyncio.wait([rounds], timeout=max(_ROUND_SECONDS, steps * step)))[0]:
        await call("probe", content=content)
    return rounds.result()


def _steps_in(seconds: float, step: float) -> int:
    return max(1, round(seconds / step))


def rehearsal_of(job: Job, where: Any) -> Rehearsal:
    """A rehearsal of a job, of which neither evaluation nor callbacks take part.

    Args:
        job: what is to be trained.
        where: a running cluster, or `Nowhere`.
    """
    job, began = replace(job, validation=None, callbacks=(), monitor=None, stop_early=None), time.perf_counter()
    display = choose_display(False)
    return Rehearsal(keras_here(), job, None, None, display, began, cluster=where, options=Diloco())


class _Calls:
    """Calls to a worker."""

    def __init__(self, fleet: Any, name: str, address: str) -> None:
        self._fleet, self.name, self._address = fleet, name, address

    async def __call__(self, operation: str, **message: Any) -> Any:
        try:
            return await self._fleet.call(self._address, f"rudel_{operation}", timeout=120.0, **message)
        except OSError as error:
            raise ClusterError(f"{self.name} was lost while it was measured: look after it, and try again.") from error
