"""The coordinator: closes rounds, steps the outer optimizer, and keeps the training going whatever happens to a
replica.

It has all that is needed to go on: the global weights, the outer optimizer's state, the residual of the merge codec,
the
count of steps done. A replica that is lost takes with it the steps of its current round, which others do instead; its
examples are dealt to them; when it comes back, it begins from the standing of that moment.

A round closes when all replicas that take part have answered, or when a quorum, half of them, has and a grace time is
over. A delta that comes after that counts in the next round; a replica that is later than that begins anew from a
standing. Deltas are weighted by the steps that they stand for, and faster replicas are given more steps, so that all
end their rounds together. One call in each direction per replica and round carries everything: the request brings the
last merge and the plan of the next round, the answer the delta.

Guarantee: the steps that were merged are at least as many as were asked for, whoever did them. Limit: what was lost
with this process itself is the round under way; the caller's checkpoints keep the rest.
"""

import asyncio
import contextlib
import itertools
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rudel.errors import ClusterError, NonFiniteError, RudelError
from rudel.train.diloco import wire
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.lengths import Lengths, Speeds
from rudel.train.diloco.members import Member
from rudel.train.diloco.plans import Plans
from rudel.train.diloco.replica import Answer, Merge, Standing
from rudel.train.diloco.rounds import HostChanged, RoundClosed, Task, Told, World
from rudel.train.diloco.supply import Supply

LEAST_GRACE, LONGEST_GRACE = 1.0, 4.0
"""Seconds to wait for the others when half of the replicas have answered: half a round, but within these."""

_PATIENCE_WITH_MANY = 3
"""By how much longer fewer than half of the replicas wait for the others."""

_MOST_FAILURES = 3
"""How often a worker may fail by itself, without an answer between, before it is given up."""

_SETTLING_SECONDS = 60.0
"""Time for a replica to take a standing over: it ends the block of steps that it is in."""

_HISTORY = 256
"""Merges that are kept for replicas that join."""

_PING_SECONDS = 2.0

_PROBE_BYTES = 2**16
"""What is sent to each worker to see how fast the link is."""

_WITHOUT_ANSWER = ("piece", "stand", "join", "end")

_OF_THE_HOST = ("describe", "probe", "missing", "piece")
"""Handlers that have to do with no training in particular."""


@dataclass
class _Round:
    """What has come in for a round that is not closed.

    Args:
        answers: by host, and by the round that they were planned for.
        deltas: sums of deltas and of averaged variables, weighted by steps.
        statistics: likewise of averaged variables.
    """

    answers: dict[tuple[str, int], Answer] = field(default_factory=dict)
    deltas: list[np.ndarray] = field(default_factory=list)
    statistics: list[np.ndarray] = field(default_factory=list)

    def take(self, key: tuple[str, int], answer: Answer, delta: list[np.ndarray]) -> None:
        """Counts an answer in; the arrays of its delta are used up."""
        self.answers[key] = answer
        self.deltas = _weighted_sum(self.deltas, delta, answer.steps)
        self.statistics = _weighted_sum(self.statistics, wire.unpack(answer.statistics), answer.steps)

    @property
    def steps(self) -> int:
        """Local steps that have been answered for."""
        return sum(answer.steps for answer in self.answers.values())


class Coordinator:
    """Runs a task on a fleet; see the module. All methods but `stop` run in the fleet's event loop.

    Args:
        fleet: the workers.
        task: what to do.
        world: from where to begin.
        slots: packed optimizer variables for replicas to begin with, from a checkpoint.
        tell: called with `RoundClosed` and `HostChanged` events.
    """

    def __init__(self, fleet: Any, task: Task, world: World, slots: bytes | None, tell: Callable[[Any], None]) -> None:
        self._fleet, self._task, self.world, self._tell = fleet, task, world, tell
        self._token = secrets.token_hex(8)
        self._members: dict[str, Member] = {}
        self._merges: dict[int, Merge] = {}
        self._open = _Round()
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()
        self._slots = slots
        self._plans = Plans(self._members, Lengths(1, 1), task.total_steps, task.rates)
        self._supply = Supply(task.pieces, self._members, self._call, self._count_sent)
        self._stopping = self._ended = False
        self._failure: BaseException | None = None
        self._numbers = itertools.count()
        self.sent = self.received = 0
        self.lost = self.joined = 0
        self.compile_seconds = 0.0
        self.seconds = 0.0

    # -- beginning ----------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Brings program, examples and weights to all workers that are there.

        Raises:
            ClusterError: there are none, or one cannot take part.
        """
        addresses = await self._fleet.members()
        if not addresses:
            raise ClusterError("The cluster has no workers: start some, and look at the Dask scheduler's log.")
        for name in sorted(addresses):
            self._members[name] = Member(name, addresses[name], next(self._numbers))
        members = list(self._members.values())
        self._supply.deal(members)
        await self._with_all(self._prepare)
        await self._agree([member for member in members if member.active])
        await self._with_all(self._stand)
        self.compile_seconds = max(member.compile_seconds for member in members)
        self.sent = 0
        for member in members:
            member.sent = 0

    async def _agree(self, members: Sequence[Member]) -> None:
        """Measures the links, and lets it be decided how rounds shall be."""
        began = time.perf_counter()
        probes = (self._call(m, "probe", timeout=_SETTLING_SECONDS, content=bytes(_PROBE_BYTES)) for m in members)
        arrived = [size for size in await asyncio.gather(*probes, return_exceptions=True) if isinstance(size, int)]
        rate = sum(arrived) / (time.perf_counter() - began)
        speed, exchange, size = (
            sum(getattr(member, name) for member in members) / len(members)
            for name in ("speed", "exchange_seconds", "exchange_bytes")
        )
        self.agreed = self._task.agree(Speeds(1 / speed, exchange, size, max(rate, 1.0)))
        self._plans.lengths = self.agreed.lengths
        self._delta_codec, self._merge_codec = make_codec(self.agreed.delta_codec), make_codec(self.agreed.merge_codec)
        for codec in (self._delta_codec, self._merge_codec):  # so that it is fast when the first round ends
            message, _ = codec.encode(self.world.weights, codec.init([w.shape for w in self.world.weights]))
            codec.decode(message, [w.shape for w in self.world.weights])

    async def _with_all(self, step: Callable[[Member], Awaitable[None]]) -> None:
        """Does something with all members at once; those that are lost meanwhile take no part.

        Raises:
            ClusterError: one cannot take part, or none is left.
        """
        members = [member for member in self._members.values() if not member.lost]
        results = await asyncio.gather(*map(step, members), return_exceptions=True)
        for member, error in zip(members, results, strict=True):
            if isinstance(error, OSError):
                member.lost, member.trouble = True, _reason(error)
            elif error is not None:
                await self._end_all()
                raise error if isinstance(error, RudelError) else _cannot(member, error)
            member.active = error is None
        if not any(member.active for member in members):
            troubles = _troubles(self._members.values())
            raise ClusterError(f"No host could be prepared: {troubles}. Look after them, and try again.")

    async def run(self) -> None:
        """Trains to the end.

        Raises:
            ClusterError: all replicas were lost, and none came back.
            NonFiniteError: the loss became NaN or infinite.
        """
        first = self.world.round
        members = list(self._members.values())
        joined = await asyncio.gather(*(self._call_to_join(m, first, []) for m in members), return_exceptions=True)
        self._began = time.perf_counter()
        for member, error in zip(members, joined, strict=True):
            if member.lost or error is not None:
                member.lost = False
                await self._lose(member, error)
        self._plan(first)
        self._plan(first + 1)
        for member in members:
            if member.active:
                self._begin_to_follow(member, first)
        watcher = self._spawn(self._watch())
        try:
            while self.world.steps < self._task.total_steps and not self._stopping:
                await self._close_round()
        finally:
            self._ended = True
            watcher.cancel()
            async with self._changed:
                self._changed.notify_all()
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            await self._end_all()
            await self._fleet.close()

    def stop(self) -> None:
        """Ends the training when the next round closes; can be called from any thread."""
        self._stopping = True

    def want_slots(self) -> None:
        """Asks for a replica's optimizer slots with one of the next rounds; can be called from any thread."""
        self._plans.slots_wanted = True

    # -- rounds ---------------------------------------------------------------------------------------------------

    async def _close_round(self) -> None:
        """Waits for the answers of the open round and closes it; the replicas are told before the rest is done."""
        number = self.world.round
        if not await self._enough_answers(number):
            return
        closing, self._open = self._open, _Round()
        total = closing.steps
        mean, statistics = ([value / np.float32(total) for value in v] for v in (closing.deltas, closing.statistics))
        message, residual = self._merge_codec.encode(mean, self.world.residual)
        merge = self._merges[number] = Merge(message, wire.pack(statistics))
        self._merges.pop(number - _HISTORY, None)
        self._measure_skew(closing.answers)
        delta = self._merge_codec.decode(message, [w.shape for w in self.world.weights])
        weights, momentum = self._task.outer.update(delta, self.world.momentum, self.world.weights)
        self.world = World(number + 1, self.world.steps + total, weights, momentum, residual, statistics)
        if self.world.steps < self._task.total_steps and not self._plans.planned(number + 1):
            self._plan(number + 1)  # somebody was lost in what was to be the last round
        self._plan(number + 2)
        self.seconds = time.perf_counter() - self._began
        async with self._changed:
            self._changed.notify_all()
        slots = next((answer.slots for answer in closing.answers.values() if answer.slots), None)
        self._slots = slots or self._slots
        self._tell(self._report(closing.answers, merge, slots))

    def _longest_silence(self, waiting: Sequence[Member]) -> float:
        """Seconds after which it is odd that not one of these has answered."""
        return _PATIENCE_WITH_MANY * (self._plans.longest(self.world.round, waiting) + LONGEST_GRACE)

    def _plan(self, number: int) -> None:
        if not self._stopping:
            self._plans.plan(number, self.world.round, self.world.steps, self._open.answers)

    def _plan_late(self, member: Member, number: int, share: float) -> None:
        self._plans.plan_late(member, number, share, self.world.round, self.world.steps + self._open.steps)

    def _measure_skew(self, answers: Iterable[tuple[str, int]]) -> None:
        """Learns who ended the round earlier or later than the others."""
        ended = [self._members[name] for name in {name for name, _ in answers}]
        mean = sum(member.answered_at for member in ended) / len(ended)
        for member in self._members.values():
            member.early = mean - member.answered_at if member in ended else 0.0

    async def _enough_answers(self, number: int) -> bool:
        """Waits until the round can be closed, and sets those aside that did not answer in time.

        Returns:
            False if the training is to end without this round.
        """
        began, alone_since, asked = time.monotonic(), None, 0.0
        deadline = stop_by = math.inf
        async with self._changed:
            while True:
                if self._failure:
                    raise self._failure
                waiting = [m for m in self._members.values() if m.active and number in m.plans]
                if self._open.answers and not waiting:
                    return True
                now = time.monotonic()
                in_time = sum(planned_for == number for _, planned_for in self._open.answers)
                if in_time:
                    patience = 1 if in_time >= len(waiting) else _PATIENCE_WITH_MANY
                    deadline = min(deadline, now + patience * self._grace(waiting))
                    if now >= deadline:
                        for member in waiting:
                            member.active = False
                            self._spawn(self._recover(member))
                        return True
                elif now - max(began, asked) > self._longest_silence(waiting):
                    asked = now
                    for member in waiting:
                        self._spawn(self._ask(member))
                if self._stopping:
                    stop_by = min(stop_by, now + LONGEST_GRACE)
                    if now >= stop_by or not waiting:
                        return False
                if not waiting:
                    if any(m.active for m in self._members.values()):
                        self._plan(number)
                    alone_since = alone_since or now
                    if now - alone_since > self._task.patience:
                        raise ClusterError(
                            f"All hosts were lost, and none came back within {self._task.patience:g} s "
                            f"({_troubles(self._members.values())}): look after them, then go on with --resume."
                        )
                    if all(m.failures >= _MOST_FAILURES for m in self._members.values()):
                        raise ClusterError(f"No host can go on: {_troubles(self._members.values())}.")
                else:
                    alone_since = None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), max(0.001, min(1.0, deadline - now, stop_by - now)))

    def _grace(self, waiting: Sequence[Member]) -> float:
        return min(max(LEAST_GRACE, self._plans.longest(self.world.round, waiting) / 2), LONGEST_GRACE)

    async def _follow(self, member: Member, number: int) -> None:
        """Exchanges with a replica round by round, until it is lost."""
        told_plan = told_merge = number - 1
        try:
            while not self._ended:
                await self._until(lambda number=number: number in member.plans)
                if self._ended:
                    return
                plans = [(n, asdict(plan)) for n, plan in member.plans.items() if n > told_plan]
                told_plan = max(n for n, _ in plans) if plans else told_plan
                merges = [(n, asdict(self._merges[n])) for n in range(told_merge + 1, self.world.round)]
                told_merge = max(told_merge, self.world.round - 1)
                self._count_sent(member, sum(len(m["delta"]) + len(m["statistics"]) for _, m in merges))
                self._count_sent(member, sum(len(plan["rates"]) for _, plan in plans))
                answer = Answer(**await self._call(member, "exchange", round=number, plans=plans, merges=merges))
                received = sum(len(v) for v in vars(answer).values() if isinstance(v, bytes))
                self.received, member.received = self.received + received, member.received + received
                await self._deliver(member, number, answer)
                if not member.active and number < self.world.round - 1:  # too late to go on from where it is
                    member.joining = True
                    self._spawn(self._join(member, member.address))
                    return
                await self._until(lambda number=number: self.world.round > number)
                number += 1
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._lose(member, error)

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Waits until something holds, or the training has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or reached())

    async def _deliver(self, member: Member, number: int, answer: Answer) -> None:
        if answer.bad_step >= 0:
            self._failure = NonFiniteError(
                f"The loss became NaN or infinite on {member.name}, in round {number + 1:,}, local step "
                f"{answer.bad_step + 1:,}: lower the learning rate, clip the gradients (clipnorm=1.0 in the optimizer) "
                "or look for outliers in the data."
            )
            delta = []
        else:
            delta = self._delta_codec.decode(answer.delta, [w.shape for w in self.world.weights])
        member.answered(answer.steps, answer.seconds - answer.waited, time.perf_counter())
        member.failures = 0
        async with self._changed:
            member.plans.pop(number, None)
            if number >= self.world.round - 1:
                if delta:
                    self._open.take((member.name, number), answer, delta)
                if not member.active and not member.lost:
                    member.active = True  # late, but still in step
                    for missed in range(number + 1, self.world.round + 2):
                        self._plan_late(member, missed, 1.0)
            self._changed.notify_all()

    def _report(self, answers: dict[tuple[str, int], Answer], merge: Merge, slots: bytes | None) -> RoundClosed:
        metrics: list[np.ndarray] = []
        for answer in answers.values():
            values = wire.unpack(answer.metrics)
            metrics = [a + b for a, b in zip(metrics, values, strict=True)] if metrics else values
        logs = wire.unpack(next(iter(answers.values())).logs)
        return RoundClosed(
            self.world, self.seconds, self._told(answers), metrics, logs, self.sent, self.received, merge, slots
        )

    def _told(self, answers: dict[tuple[str, int], Answer]) -> list[Told]:
        """What each replica did; one that was late in the round before may have two answers in this one."""
        told: dict[str, Told] = {}
        for (name, _), answer in sorted(answers.items()):
            member = self._members[name]
            before = told.get(name, Told(name, 0, 0.0, 0.0, 0, 0, 0.0, 0, 0))
            told[name] = Told(
                name,
                steps=before.steps + answer.steps,
                seconds=before.seconds + answer.seconds,
                waited=before.waited + answer.waited,
                merged_at=answer.merged_at,
                memory=answer.memory,
                cpu=before.cpu + answer.cpu,
                sent=member.sent,
                received=member.received,
            )
        return list(told.values())

    # -- replicas that come and go --------------------------------------------------------------------------------

    async def _lose(self, member: Member, error: BaseException | None) -> None:
        if self._ended or member.lost:
            return
        self.lost += 1
        member.lost, member.active = True, False
        member.plans.clear()
        self._blame(member, error)
        if member.follower not in (None, asyncio.current_task()):
            member.follower.cancel()
        self._fleet.forget(member.address)
        self._tell_host(member, "lost", member.trouble)
        self._spawn(self._supply.share_out())
        async with self._changed:
            self._changed.notify_all()

    def _blame(self, member: Member, error: BaseException | None) -> None:
        """Remembers what went wrong; a worker that fails again and again by itself is given up."""
        if error is not None:
            member.trouble = _reason(error)
        if isinstance(error, RudelError):
            member.failures = _MOST_FAILURES
        elif error is not None and not isinstance(error, OSError):
            member.failures += 1

    async def _ask(self, member: Member) -> None:
        """Loses a replica that is silent, or whose worker is."""
        try:
            await self._call(member, "describe", timeout=LONGEST_GRACE)
        except Exception as error:
            await self._lose(member, error)

    def _tell_host(self, member: Member, event: str, reason: str) -> None:
        self._tell(HostChanged(member.name, event, time.perf_counter() - self._began, reason))

    async def _recover(self, member: Member) -> None:
        """Gives a replica that did not answer in time some seconds more; then it counts as lost."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: self._ended or member.active or member.joining or member.lost),
                    LONGEST_GRACE,
                )
        if not (self._ended or member.active or member.joining or member.lost):
            await self._lose(member, TimeoutError())

    async def _watch(self) -> None:
        """Notices workers that are there and take no part, new ones and lost ones, and lets them join."""
        while not self._ended:
            await asyncio.sleep(0.5)
            try:
                addresses = await self._fleet.members()
            except Exception:  # the scheduler may be gone for a while, and this has to go on
                continue
            for name, address in addresses.items():
                member = self._members.get(name)
                if member is None:
                    member = self._members[name] = Member(name, address, next(self._numbers), lost=True)
                if address != member.address:
                    member.failures = 0
                if member.lost and not member.joining and member.failures < _MOST_FAILURES:
                    member.joining = True
                    if address != member.address or not member.prepared:
                        self._tell_host(member, "joining", "")
                    self._spawn(self._join(member, address))

    async def _join(self, member: Member, address: str) -> None:
        """Brings a worker to where the others are, and lets it take part."""
        try:
            known = address == member.address and member.prepared
            member.address = address
            await self._call(member, "describe", timeout=_PING_SECONDS if known else 60.0)
            if not known:
                await self._prepare(member)
            self._supply.deal([member])
            await self._supply.bring(member)
            if not known and self._slots is None:
                await self._fresh_slots()
            standing_of = self.world.round
            await self._stand(member, with_slots=not known)
            number = self.world.round
            merges = [asdict(self._merges[n]) for n in range(standing_of, number)]
            await self._call_to_join(member, number, merges)
            was_lost, member.lost, member.active = member.lost, False, True
            member.pieces_changed = True
            member.plans.clear()
            for missed in range(number, self.world.round + 2):  # rounds may have closed while it joined
                self._plan_late(member, missed, (missed - self.world.round + 1) / 2)
            if was_lost:
                self.joined += 1
                self._tell_host(member, "joined", "")
            self._begin_to_follow(member, number)
            self._spawn(self._supply.share_out())
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fleet.forget(member.address)
            member.lost = True
            self._blame(member, error)
            if member.failures >= _MOST_FAILURES:
                self._tell_host(member, "lost", member.trouble)
            self._spawn(self._supply.share_out())
        finally:
            member.joining = False

    async def _call_to_join(self, member: Member, number: int, merges: Sequence[dict[str, Any]]) -> None:
        if not member.lost or member.joining:
            await self._call(member, "join", timeout=_SETTLING_SECONDS, round=number, merges=merges)

    def _begin_to_follow(self, member: Member, number: int) -> None:
        member.follower = self._spawn(self._follow(member, number))

    async def _fresh_slots(self) -> None:
        self._plans.slots_wanted = True
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(lambda: self._slots is not None), 10)

    async def _prepare(self, member: Member) -> None:
        description = await self._call(member, "describe", timeout=120.0)
        setup = await asyncio.to_thread(self._task.setup, member.number, {**description, "name": member.name})
        await self._supply.bring(member, load=False)
        prepared = await self._call(member, "prepare", setup=setup)
        member.compile_seconds, member.step_seconds = prepared["compile_seconds"], prepared["step_seconds"]
        member.exchange_seconds, member.exchange_bytes = prepared["exchange_seconds"], prepared["exchange_bytes"]
        member.exchange_seconds, member.exchange_bytes = prepared["exchange_seconds"], prepared["exchange_bytes"]
        member.prepared = True
        member.loaded.clear()
        await self._supply.bring(member)

    async def _stand(self, member: Member, with_slots: bool = True) -> None:
        world = self.world
        standing = Standing(
            weights=wire.pack([w.astype(d) for w, d in zip(world.weights, self._task.dtypes, strict=True)]),
            momentum=wire.pack(world.momentum),
            statistics=wire.pack(world.statistics),
            slots=self._slots if with_slots else None,
            codecs=(self.agreed.delta_codec, self.agreed.merge_codec),
        )
        self._count_sent(member, sum(len(v) for v in vars(standing).values() if isinstance(v, bytes)))
        await self._call(member, "stand", timeout=_SETTLING_SECONDS, standing=vars(standing))

    async def _end_all(self) -> None:
        calls = [self._call(m, "end", timeout=5.0) for m in self._members.values() if not m.lost]
        await asyncio.gather(*calls, return_exceptions=True)

    async def _call(self, member: Member, operation: str, timeout: float | None = None, **message: Any) -> Any:
        if operation not in _OF_THE_HOST:
            message["token"] = self._token
        answer = await self._fleet.call(member.address, f"rudel_{operation}", timeout=timeout, **message)
        if answer is None and operation not in _WITHOUT_ANSWER:  # Dask says so where there is no such handler
            raise LookupError("another training has taken the worker over")
        return answer

    def _count_sent(self, member: Member, count: int) -> None:
        self.sent, member.sent = self.sent + count, member.sent + count

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _cannot(member: Member, error: BaseException) -> ClusterError:
    return ClusterError(f"{member.name} cannot take part: {_reason(error)}.")


def _troubles(members: Iterable[Member]) -> str:
    return "; ".join(f"{member.name}: {member.trouble}" for member in members if member.trouble)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError):
        return "its connection broke off"
    text = " ".join(str(error).split())
    return text[:200] if text else type(error).__name__


def _weighted_sum(sums: list[np.ndarray], values: list[np.ndarray], weight: int) -> list[np.ndarray]:
    weighted = [np.multiply(value, np.float32(weight), dtype=np.float32) for value in values]
    if not sums:
        return weighted
    for into, value in zip(sums, weighted, strict=True):
        into += value
    return sums
