"""Speeds of hosts with a model, and of the links to them, measured without training and without sending the data.

Every host gets the very program that it would train with, and takes steps on zeros: all hosts at the same time, so that
what they share (a processor, a supply of power) is shared as in the training. Messages are sent to one host after the
other, and then to all at once, which on Wi-Fi is not the same; and back.
"""

import asyncio
import functools
import os
import statistics
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.cluster.fleet import OperationError, installed
from rudel.data.stream import Stream
from rudel.errors import ClusterError, RudelError
from rudel.planning import link_probe as probe
from rudel.planning.forecast import Desk, Link, Speed, Work, fitting
from rudel.planning.links import Links
from rudel.planning.planning import Planned, plan
from rudel.replicas.codec.delta_codec import make_codec
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.replicas.keras_rates import is_momentum_sgd
from rudel.replicas.outer_optimizer import make_outer
from rudel.replicas.replica import Replica
from rudel.replicas.replica_messages import Setup
from rudel.replicas.replica_service import Service, replica_guest
from rudel.replicas.replica_spec import ReplicaSpec, spec_of
from rudel.session.job import Job
from rudel.session.session import built

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet
    from rudel.cluster.running_cluster import Background, RunningCluster

REHEARSAL_SECONDS, ROUNDS_SECONDS, HERE_SECONDS = 1.5, 1.5, 0.75
"""For which all hosts take steps at the same time, and one by itself; for which they take rounds; and for which this
computer does both.
"""

_SAME = 0.95
"""Steps that take more than this share of what others take are equally fast: measuring is no more exact."""

_ROUND_SECONDS = 0.1
"""Length of a rehearsed round: the shorter, the more of its time is what a round takes beside its steps."""

_ANSWER_SECONDS = 120.0
"""Time for an answer; what compiles or takes steps may take any time."""

_LEAVING_SECONDS = 10.0
"""Time for the workers of a client's cluster to be restored after an interrupt."""


@dataclass(frozen=True)
class Host:
    """Measurements of a host.

    Args:
        speed: with this model.
        round_trip: seconds.
        rate, rate_up: bytes a second to it and from it, while nobody else sends anything.
        cores, machine: as it says itself.
        compile_seconds: that its program took.
    """

    speed: Speed
    round_trip: float
    rate: float
    rate_up: float
    cores: int
    machine: str
    compile_seconds: float


@dataclass(frozen=True)
class Measured:
    """Measurements of a cluster.

    Args:
        hosts: all that answered.
        together, together_up: bytes a second to and from all of them at the same time.
        trials: see `Links`.
        quiet: a step of the fastest host while no other takes steps, over one while all do.
        seconds: that measuring took.
        left_out: names of hosts that cannot hold the model, or their share of the data.
    """

    hosts: tuple[Host, ...]
    together: float
    together_up: float
    trials: tuple[tuple[int, float], ...]
    quiet: float
    seconds: float
    left_out: tuple[str, ...] = ()

    @property
    def links(self) -> Links:
        """As a forecast wants them, with the links of most hosts."""
        return Links(
            rate=self.together,
            own=statistics.median(host.rate for host in self.hosts),
            latency=statistics.median(host.round_trip for host in self.hosts) / 2,
            trials=self.trials,
            upwards=(self.together_up, statistics.median(host.rate_up for host in self.hosts)),
        )

    @property
    def speeds(self) -> tuple[Speed, ...]:
        """The hosts as a forecast wants them, each with its own link."""
        return tuple(
            replace(host.speed, link=Link(host.rate, host.rate_up, host.round_trip / 2)) for host in self.hosts
        )


@dataclass(frozen=True)
class Nowhere:
    """In the place of a cluster: so many hosts that are only thought of."""

    count: int


class Rehearsal:
    """Replicas that are prepared and take steps on zeros, to see how fast they are.

    Args:
        spec: of the replicas.
        cluster: a running cluster, or `Nowhere`.
    """

    def __init__(self, spec: ReplicaSpec, cluster: Any) -> None:
        self._spec, self._cluster = spec, cluster
        sgd = is_momentum_sgd(spec.job.model.optimizer)
        self._options = Diloco().chosen_for(max(1, cluster.count), spec.job.schedule.total_steps, sgd)

    def measure_and_plan(self) -> tuple[Measured, Planned]:
        """Measures the workers of the cluster, and forecasts the training; raises what `measure` and `plan` do."""
        measured = self.measure()
        planned = plan(self.work, measured.speeds, measured.links, self.desk(), measured.quiet)
        if measured.left_out:
            names = ", ".join(measured.left_out)
            planned = replace(planned, why=f"{planned.why} Without {names}: too little room for the model or the data.")
        return measured, planned

    @functools.cached_property
    def work(self) -> Work:
        """The job, as forecasts need it."""
        state, job = self._spec.state, self._spec.job
        streamed = any(isinstance(part, Stream) for part in (job.train, job.validation))
        weights = sum(4 * value.size for value in state.trainable)
        variables = sum(value.nbytes for part in state for value in part)
        return Work(
            job.schedule.total_steps,
            job.schedule.batch_size,
            weights,
            variables,
            self._spec.source.nbytes,
            streamed,
            len(state.trainable),
            len(self._spec.statistics),
            is_momentum_sgd(job.model.optimizer),
        )

    def here(self) -> Speed:
        """Measures this computer by itself, with the share of the data that one of the hosts would have.

        Raises:
            ClusterError: it cannot be measured, as it has too little memory or disk, say.
        """
        about = asyncio.run(Service().describe())
        try:
            setup = self._setup(0, {**about, "name": about["host"]}, self._cluster.count)
            replica = Replica(Setup(**setup), lambda number, answer: None)
            tried = replica.step_seconds, replica.exchange_seconds
            step = replica.rehearse(HERE_SECONDS)
            exchange, first = replica.rehearse_rounds(HERE_SECONDS, _steps_in(_ROUND_SECONDS, step), step)
        except RudelError:
            raise
        except Exception as error:
            raise ClusterError(f"This computer cannot be measured: {_line_of(str(error))}.") from error
        message, memory, disk = replica.exchange_bytes, about["memory"], about["disk"]
        return Speed(about["host"], step, exchange, message, memory, first, tried, disk)

    def desk(self) -> Desk:
        """Measures how long this computer takes for a delta, and for closing a round."""
        codec, outer = make_codec(self._options.merge_codec), make_outer(self._options.outer)
        layout = self._spec.layout
        delta = np.random.default_rng(0).standard_normal(layout.size, np.float32)
        takes, closes = [], []
        for _ in range(5):
            began = time.perf_counter()
            message, _ = codec.encode(outer.step(delta, outer.init(layout.size)), layout)
            closes.append(time.perf_counter() - began)
            began = time.perf_counter()
            codec.decode(message, layout)
            takes.append(time.perf_counter() - began)
        return Desk(min(takes), min(closes))

    def measure(self) -> Measured:
        """Measures the workers of the cluster.

        Raises:
            ClusterError: there are none, one has other versions than this computer, or cannot be measured.
            ModelError: the model is too large for all of them.
        """
        with installed(self._cluster, replica_guest(purpose="a measurement")) as fleet:
            return _to_the_end(self._cluster.background, self._measure(fleet))

    async def _measure(self, fleet: "Fleet") -> Measured:
        began = time.perf_counter()
        members = await fleet.members()
        if not members:
            raise ClusterError("The cluster has no workers: start some, and look at the Dask scheduler's log.")
        calls = [_Calls(fleet, name, members[name]) for name in sorted(members)]
        described = await asyncio.gather(*(call("describe") for call in calls))
        room = {call.name: (about["memory"], about["disk"]) for call, about in zip(calls, described, strict=True)}
        able = fitting(self.work, room) or list(room)  # where none does, one is refused below
        left_out = tuple(name for name in room if name not in able)
        described = [about for call, about in zip(calls, described, strict=True) if call.name in able]
        calls = [call for call in calls if call.name in able]
        setups = [
            await asyncio.to_thread(self._setup, number, {**about, "name": call.name}, len(able))
            for number, (call, about) in enumerate(zip(calls, described, strict=True))
        ]
        prepared = await asyncio.gather(
            *(call("prepare", setup=setup) for call, setup in zip(calls, setups, strict=True))
        )
        found = await probe.links(calls)
        steps, beside, quiet = await _rehearsed(calls, [made["exchange_bytes"] for made in prepared])
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
                    about["disk"],
                ),
                trip,
                rate,
                rate_up,
                about["cores"],
                about["machine"],
                made["compile_seconds"],
            )
            for call, about, made, trip, rate, rate_up, step, (exchange, first) in zip(
                calls, described, prepared, found.round_trips, found.rates, found.rates_up, steps, beside, strict=True
            )
        )
        seconds = time.perf_counter() - began
        return Measured(hosts, found.together, found.together_up, found.trials, quiet, seconds, left_out)

    def _setup(self, number: int, about: dict[str, Any], hosts: int) -> dict[str, Any]:
        """Fields of a replica's `Setup`; raises what `Setups.setup` does."""
        return self._spec.setup(number, about, hosts, self._options.delta_codec, self._options.merge_codec)[0]


def _to_the_end(background: "Background", coroutine: Coroutine[Any, Any, Measured]) -> Measured:
    """Runs a coroutine to its end and returns its result; an interrupt cancels it, and is raised when it has ended."""
    ended = threading.Event()

    async def whole() -> Measured:
        try:
            return await coroutine
        finally:
            ended.set()

    future = background.start(whole())
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            ended.wait(_LEAVING_SECONDS)
        raise


async def _rehearsed(
    calls: "list[_Calls]", sizes: Sequence[int]
) -> tuple[list[float], list[tuple[float, float]], float]:
    """Seconds of a step of each host; what a round, and the first, takes beside; how much faster one is by itself."""
    steps = await asyncio.gather(*(call("rehearse", seconds=REHEARSAL_SECONDS) for call in calls))
    beside = await asyncio.gather(
        *(_rounds(call, step, size) for call, step, size in zip(calls, steps, sizes, strict=True))
    )
    if len(calls) == 1 or min(steps) > REHEARSAL_SECONDS:  # once more such a step would take too long
        return steps, beside, 1.0
    fastest = min(range(len(calls)), key=lambda number: steps[number])
    alone = await calls[fastest]("rehearse", seconds=REHEARSAL_SECONDS)
    quiet = alone / steps[fastest]
    return steps, beside, quiet if quiet < _SAME else 1.0


async def _rounds(call: "_Calls", step: float, size: int) -> tuple[float, float]:
    """Seconds of a round, and of the first one, beside steps, while messages of that size come as they would then."""
    content, steps = os.urandom(size), _steps_in(_ROUND_SECONDS, step)
    rounds = asyncio.ensure_future(call("rehearse", seconds=ROUNDS_SECONDS, steps=steps, step=step))
    try:
        while not (await asyncio.wait([rounds], timeout=max(_ROUND_SECONDS, steps * step)))[0]:
            await call("probe", content=content)
        return rounds.result()
    finally:
        rounds.cancel()


def _steps_in(seconds: float, step: float) -> int:
    return max(1, round(seconds / step))


def rehearsal_of(job: Job, where: "RunningCluster | Nowhere") -> Rehearsal:
    """A rehearsal of a job.

    Args:
        job: what is to be trained.
        where: a running cluster, or `Nowhere`.
    """
    return Rehearsal(spec_of(job, built(job)[1], max(1, where.count)), where)


_LONG = ("prepare", "rehearse")
"""Handlers that compile or take steps."""


class _Calls:
    """Calls to a worker."""

    def __init__(self, fleet: "Fleet", name: str, address: str) -> None:
        self._fleet, self.name, self._address = fleet, name, address

    async def __call__(self, operation: str, **message: Any) -> Any:
        """Calls a handler.

        Raises:
            ClusterError: the worker cannot do it, or is lost.
        """
        timeout = None if operation in _LONG else _ANSWER_SECONDS
        try:
            return await self._fleet.call(self._address, operation, timeout=timeout, **message)
        except RudelError:
            raise
        except TimeoutError as error:
            raise self._cannot("it did not answer in time: check it, and try again") from error
        except OSError as error:
            raise self._cannot("its connection was closed: check it, and try again") from error
        except OperationError as error:
            raise self._cannot(_line_of(error.text)) from error

    def _cannot(self, reason: str) -> ClusterError:
        return ClusterError(f"{self.name} cannot be measured: {reason}.")


def _line_of(text: str) -> str:
    return " ".join(text.split())[:200] or "it does not say why"
