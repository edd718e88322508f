"""The part of a coordinator that is the same however work is merged: it brings replicas to where the others are,
notices who is lost, and lets who comes back take part again.

A worker is prepared once: it gets the examples that its cache does not have, the program, and a snapshot to begin
from. A replica that is lost takes nothing with it but what it did since its last answer; its examples are dealt to the
others.

Only what the network does to a host counts as its loss. A host that says why it cannot take part is left out, and any
other error, here or there, ends the training: it is a defect, which trying again would hide.

The event loop only keeps the books. All arithmetic on weights is done in one thread beside it, in the order in which it
was asked for, so that heartbeats are on time however large the model is.

Limit: what was lost with this process itself is what was under way; the caller's checkpoints keep the rest.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rudel.cluster.fleet import TRANSPORT_ERRORS, NoLineError, error_of
from rudel.cluster.guest import Gone
from rudel.errors import ClusterError, NonFiniteError, RudelError
from rudel.replicas.codec.delta_codec import Codec, make_codec
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.dealing import worth_of
from rudel.replicas.link_speeds import LinkSpeeds, measured
from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Answer, Merge, Plan, Snapshot, packed_request, unpacked_answer
from rudel.replicas.round_lengths import Speeds
from rudel.replicas.rounds import Arrival, GlobalState, HostChanged, HostReport, RoundClosed, Task, added
from rudel.replicas.slots_by_pieces import SlotsReceiver
from rudel.replicas.supply import Supply
from rudel.shipping import array_bytes

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet


_SETTLING_SECONDS = 60.0
"""Time for a replica to take over a snapshot, beside what sending takes: it ends the block of steps that it is in."""

_PING_SECONDS = 2.0

_EVEN_SECONDS = 2.0
"""Time between two looks whether some examples have fallen behind."""

_TRY_AGAIN_SECONDS = 300.0
"""After which it is tried out again how fast a replica on standby is."""

_SLOTS_SHARE, _LEAST_PIECE = 0.05, 2**12
"""By how much more all exchange while the slots of one come for a checkpoint; and bytes of their pieces, at least."""

_SOON_SECONDS, _LARGEST_PIECE = 0.5, 2**30
"""Seconds that a piece of slots may take a link where somebody waits for them; and bytes, where none was measured."""

HOST_ERRORS = (*TRANSPORT_ERRORS, RudelError)
"""Errors of the network and of a host itself, which lose that host. Any other error ends the training."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Coordinator(ABC):
    """Runs a task on a fleet; see the module. All methods but `stop` and `want_slots` run in the fleet's event loop.

    Args:
        fleet: the workers.
        task: what to do.
        state: from where to begin.
        slots: packed optimizer variables for replicas to begin with, from a checkpoint.
        on_event: called with `RoundClosed` and `HostChanged` events.
    """

    def __init__(
        self, fleet: "Fleet", task: Task, state: GlobalState, slots: bytes | None, on_event: Callable[[Any], None]
    ) -> None:
        self._fleet, self._task, self.state, self._on_event = fleet, task, state, on_event
        self._members: dict[str, Member] = {}
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()
        self._slots = SlotsReceiver(slots)
        self._delta_bytes = 0  # of the last one that came
        self._supply = Supply(task.pieces, self._members, self._call, self._count_sent)
        self._stopping = self._ended = False
        self._failure: BaseException | None = None
        self._numbers = itertools.count()
        self._arithmetic = ThreadPoolExecutor(1, "rudel-arithmetic")
        self.sent = self.received = 0
        self.lost = self.joined = 0
        self.compile_seconds = 0.0
        self.seconds = 0.0
        self._links = LinkSpeeds()
        self._link_seconds = 0.0  # in which all exchange what a round has to, all at once

    @property
    def delivered(self) -> tuple[int, int] | None:
        """Bytes that have arrived, and all that were sent; None where nothing was, or where that is not known.

        Can be read in any thread.
        """
        sent, delivered = self.sent, self._fleet.delivered()
        return None if delivered is None or not sent else (min(delivered, sent), sent)

    def stop(self) -> None:
        """Ends the training soon; can be called from any thread."""
        self._stopping = True

    def want_slots(self) -> None:
        """Asks for a replica's optimizer slots with the next answers; can be called from any thread."""
        self._slots.want(max(_LEAST_PIECE, int(_SLOTS_SHARE * 2 * len(self._members) * self._delta_bytes)))

    # -- what a way of merging has to say ---------------------------------------------------------------------------

    @abstractmethod
    async def _lead(self) -> None:
        """Trains to the end, with the replicas that have begun."""

    @abstractmethod
    def _plan_first(self, number: int) -> None:
        """Plans what replicas do first, from round `number`."""

    @abstractmethod
    async def _follow(self, member: Member, number: int) -> None:
        """Exchanges with a replica, from round `number`, until it is lost."""

    @abstractmethod
    async def _bring_up_to_date(self, member: Member, with_slots: bool) -> int:
        """Brings a replica up to date and lets it join; returns the round that it begins with."""

    @abstractmethod
    def _plan_for_joined(self, member: Member, number: int) -> None:
        """Plans what a replica that joins does, from round `number`."""

    @abstractmethod
    def _holds_up(self, member: Member, members: Sequence[Member]) -> bool:
        """Whether these members would progress faster without this one of them."""

    # -- beginning and end ------------------------------------------------------------------------------------------

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
        await self._with_all(self._prepare)
        for member in self._holding_up():
            self._set_aside(member)
        for member in self._supply.deal():
            _log.info("%s takes %.4g steps/s, and gets %d pieces", member.name, member.speed, len(member.dealt))
        await self._with_all(self._supply.bring)
        await self._agree([member for member in members if member.active])
        await self._with_all(self._send_snapshot)
        self.compile_seconds = max(member.compile_seconds for member in members)
        self.sent = 0
        for member in members:
            member.sent = 0

    async def run(self) -> None:
        """Trains to the end.

        Raises:
            ClusterError: all replicas were lost, and none came back.
            NonFiniteError: the loss became NaN or infinite.
        """
        first = self.state.round
        members = [member for member in self._members.values() if not member.standby]
        joined = await asyncio.gather(*(self._call_to_join(m, first, []) for m in members), return_exceptions=True)
        self._began = time.perf_counter()
        for member, error in zip(members, joined, strict=True):
            if error is not None and not isinstance(error, TRANSPORT_ERRORS):
                raise error
            if member.lost or error is not None:
                member.lost = False
                await self._lose(member, error)
        for member in self._members.values():
            if member.standby:
                self._tell_host(member, "standby", self._why_standby(member))
        self._plan_first(first)
        for member in members:
            if member.active:
                self._begin_to_follow(member, first)
        self._spawn(self._watch())
        self._spawn(self._keep_even())
        try:
            await self._lead()
        finally:
            self._ended = True
            async with self._changed:
                self._changed.notify_all()
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            self._arithmetic.shutdown(wait=False)

    async def _agree(self, members: Sequence[Member]) -> None:
        """Measures the links, and lets it be decided how rounds shall be."""
        self._links = links = await measured(members, self._probe)
        speed, size = (sum(getattr(m, name) for m in members) / len(members) for name in ("speed", "exchange_bytes"))
        exchange = statistics.median(member.exchange_seconds for member in members)
        slowest, worth = max(member.step_seconds for member in members), worth_of([m.speed for m in members])
        self.agreed = self._task.agree(
            len(members),
            Speeds(1 / speed, exchange, size, links.rate, links.round_trip, slowest, self._task.layout.size, worth),
        )
        _log.info("agreed with %d hosts, at %.3g bytes/s to all: %s", len(members), links.rate, self.agreed)
        self._link_seconds = len(members) * size / links.rate
        self._delta_codec, self._merge_codec = make_codec(self.agreed.delta_codec), make_codec(self.agreed.merge_codec)
        for codec in (self._delta_codec, self._merge_codec):  # so that it is fast when the first round ends
            await self._compute(_try_out, codec, self.state.weights, self._task.layout)

    async def _with_all(self, step: Callable[[Member], Awaitable[None]]) -> None:
        """Does something with all members at once; those that are lost meanwhile take no part.

        Raises:
            RudelError: one cannot take part, or none is left.
            Exception: a defect.
        """
        members = [member for member in self._members.values() if not (member.lost or member.standby)]
        results = await asyncio.gather(*map(step, members), return_exceptions=True)
        for member, error in zip(members, results, strict=True):
            if isinstance(error, TRANSPORT_ERRORS):
                member.lost, member.trouble = True, _reason(error)
                _log.info("%s takes no part: %s", member.name, error)
            elif error is not None:
                raise error
            member.active = error is None
        if not any(member.active for member in members):
            troubles = _troubles(self._members.values())
            raise ClusterError(f"No host could be prepared: {troubles}. Check them, and try again.")

    # -- answers ----------------------------------------------------------------------------------------------------

    def _begin_to_follow(self, member: Member, number: int) -> None:
        member.follower = self._spawn(self._follow(member, number))

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Waits until something holds, or the training has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or reached())

    def _count_received(self, member: Member, answer: Answer) -> None:
        received = sum(len(v) for v in vars(answer).values() if isinstance(v, bytes))
        self.received, member.received = self.received + received, member.received + received

    def _learn(self, member: Member, answer: Answer) -> None:
        """Remembers how fast a replica was, and what it has trained on and sent of its slots."""
        self._supply.dealing.trained(member, answer.steps * self._task.batch_size)
        member.answered(answer.steps, answer.seconds - answer.waited, time.perf_counter())
        self._delta_bytes = len(answer.delta)
        self._slots.take(member.name, answer)

    def _ask_for_slots(self, members: Sequence[Member], number: int) -> None:
        """Lets the fastest of these replicas send its slots, if they are wanted, from a round that was just planned."""
        giver = max(members, key=lambda member: member.speed, default=None)
        if giver and (most := self._slots.ask(giver.name)):
            giver.plans[number] = replace(giver.plans[number], slots=most)

    def _check_patience(self, alone_since: float, now: float) -> None:
        """Ends a training that nobody takes part in any more, when it is time to.

        Raises:
            ClusterError: says what became of the replicas.
        """
        troubles = _troubles(self._members.values())
        if now - alone_since > self._task.patience:
            raise ClusterError(
                f"All hosts were lost, and none came back within {self._task.patience:g} s "
                f"({troubles}): check them{self._task.to_continue}."
            )
        if all(m.refused for m in self._members.values()):
            raise ClusterError(f"No host can continue: {troubles}.")

    def _report(self, answers: Sequence[tuple[str, Answer]], arrivals: Sequence[Arrival]) -> None:
        """Tells what was merged.

        Args:
            answers: of replicas, by name, as they came; one may have several.
            arrivals: what of them the journal has to keep.
        """
        metrics = functools.reduce(added, (array_bytes.unpack(answer.metrics) for _, answer in answers))
        self._on_event(
            RoundClosed(
                self.state,
                self.seconds,
                replicas=self._host_reports(answers),
                metrics=metrics,
                logs=array_bytes.unpack(answers[-1][1].logs),
                sent=self.sent,
                received=self.received,
                slots=self._slots.news(),
                arrivals=tuple(arrivals),
            )
        )

    def _host_reports(self, answers: Iterable[tuple[str, Answer]]) -> list[HostReport]:
        """A report for each of the hosts, by name."""
        reports: dict[str, HostReport] = {}
        for name, answer in answers:
            member = self._members[name]
            before = reports.get(name, HostReport(name, 0, 0.0, 0.0, 0, 0, 0.0, 0, 0, answers=0))
            reports[name] = HostReport(
                name,
                steps=before.steps + answer.steps,
                seconds=before.seconds + answer.seconds,
                waited=before.waited + answer.waited,
                merged_at=answer.merged_at,
                memory=answer.memory,
                cpu=before.cpu + answer.cpu,
                sent=member.sent,
                received=member.received,
                answers=before.answers + 1,
                computed=before.computed + answer.computed,
            )
        return [reports[name] for name in sorted(reports)]

    # -- replicas that come and go ----------------------------------------------------------------------------------

    async def _lose(self, member: Member, error: BaseException | None) -> None:
        """Continues without a replica.

        Args:
            member: whose.
            error: what the network did, or why its host cannot take part, which then is not tried again; None if that
                is known.
        """
        if self._ended or member.lost:
            return
        self.lost += 1
        member.lost, member.active = True, False
        self._drop_plans(member)
        if error:
            self._blame(member, error)
        if member.follower not in (None, asyncio.current_task()):
            member.follower.cancel()
        self._fleet.forget(member.address)
        self._tell_host(member, "lost", member.trouble)
        self._spawn(self._share_out())
        async with self._changed:
            self._changed.notify_all()

    def _drop_plans(self, member: Member) -> None:
        """What a replica is doing counts no more, nor what it was sending."""
        member.plans.clear()
        self._slots.lose(member.name)

    def _blame(self, member: Member, error: BaseException) -> None:
        member.trouble, member.refused = _reason(error), isinstance(error, RudelError)
        _log.info("%s was lost: %s: %s", member.name, type(error).__name__, error)

    def _fail(self, error: BaseException) -> None:
        """Ends the training by an error."""
        self._failure = self._failure or error

    def _tell_host(self, member: Member, event: str, reason: str) -> None:
        _log.info("%s at %s: %s %s", member.name, member.address, event, reason)
        self._on_event(HostChanged(member.name, event, time.perf_counter() - self._began, reason))

    async def _share_out(self) -> None:
        """Deals the examples again to all replicas that take part, and sends them there."""
        await asyncio.gather(*map(self._bring, self._supply.deal()))

    async def _keep_even(self) -> None:
        """Deals the examples again whenever some have fallen behind."""
        while not self._ended:
            await asyncio.sleep(_EVEN_SECONDS)
            for slow in self._holding_up():
                if slow.known:
                    self._stand_by(slow)
                    self._spawn(self._share_out())
            if behind := self._supply.dealing.behind():
                before = {name: set(member.dealt) for name, member in self._members.items()}
                await self._share_out()
                moved = sum(len(m.dealt - before.get(name, set())) for name, m in self._members.items())
                if moved:
                    _log.info("%d pieces of the data had fallen behind, %d were moved", len(behind), moved)

    async def _bring(self, member: Member) -> None:
        try:
            await self._supply.bring(member)
        except HOST_ERRORS as error:
            await self._lose(member, error)

    async def _watch(self) -> None:
        """Notices workers that are there and take no part, new ones and lost ones, and lets them join."""
        while not self._ended:
            await asyncio.sleep(0.5)
            try:
                addresses = await self._fleet.members()
            except (*TRANSPORT_ERRORS, ClusterError) as error:  # it may be gone for a while
                _log.info("the scheduler did not answer: %s", error)
                continue
            for name, address in addresses.items():
                member = self._members.get(name)
                if member is None:
                    member = self._members[name] = Member(name, address, next(self._numbers), lost=True)
                if address != member.address:
                    member.refused = False
                if member.standby and (address != member.address or not self._anybody_trains()):
                    member.standby, member.prepared, member.lost = False, False, True
                if member.standby and time.monotonic() - member.tried_at > _TRY_AGAIN_SECONDS:
                    member.tried_at = math.inf  # one try at a time, however long it takes
                    self._spawn(self._try_again(member))
                if member.lost and not member.joining and not member.refused:
                    member.joining = True
                    if address != member.address or not member.prepared:
                        self._tell_host(member, "joining", "")
                    self._spawn(self._join(member, address))

    def _anybody_trains(self) -> bool:
        return any(member.active or member.joining for member in self._members.values())

    def _holding_up(self) -> list[Member]:
        """Members without which the others would progress faster."""
        active = [member for member in self._members.values() if member.active]
        return [member for member in active if self._holds_up(member, active)]

    def _why_standby(self, member: Member) -> str:
        fastest = max((m.steady_speed for m in self._members.values() if m.active), default=member.steady_speed)
        times = f"{fastest / member.steady_speed:.0f} times slower than the fastest host"
        return f"it is {times}, and the others would wait for it; it takes part when they are lost"

    def _set_aside(self, member: Member) -> None:
        member.standby, member.active, member.tried_at = True, False, time.monotonic()

    def _stand_by(self, member: Member) -> None:
        """Lets a replica take part only if all others are lost, or if it has become faster."""
        self._set_aside(member)
        self._drop_plans(member)
        if member.follower:
            member.follower.cancel()
        self._tell_host(member, "standby", self._why_standby(member))

    async def _try_again(self, member: Member) -> None:
        """Lets a replica on standby join if it has become so fast that nobody would wait for it."""
        with contextlib.suppress(*HOST_ERRORS):
            await self._prepare(member)
            member.lately = 0.0, 0.0
            others = [other for other in self._members.values() if other.active]
            if member.standby and not self._holds_up(member, [*others, member]):
                member.standby, member.prepared, member.lost = False, False, True
        member.tried_at = time.monotonic()

    async def _join(self, member: Member, address: str) -> None:
        """Brings a worker to where the others are, and lets it take part."""
        try:
            known = address == member.address and member.prepared
            member.address = address
            about = await self._call(member, "describe", timeout=_PING_SECONDS if known else 60.0)
            known = known and about["prepared"]
            if not known:
                await self._prepare(member)
            self._supply.deal([member])
            await self._supply.bring(member)
            if not known and self._slots.newest is None:
                await self._fresh_slots()
            number = await self._bring_up_to_date(member, with_slots=not known)
            was_lost, member.lost, member.active = member.lost, False, True
            member.pieces_changed = True
            self._drop_plans(member)
            self._plan_for_joined(member, number)
            if was_lost:
                self.joined += 1
                self._tell_host(member, "joined", "")
            self._begin_to_follow(member, number)
            self._spawn(self._share_out())
        except HOST_ERRORS as error:
            self._fleet.forget(member.address)
            member.lost = True
            self._blame(member, error)
            if member.refused:
                self._tell_host(member, "lost", member.trouble)
            self._spawn(self._share_out())
        finally:
            member.joining = False

    async def _call_to_join(self, member: Member, number: int, merges: Sequence[dict[str, Any]]) -> None:
        if not member.lost or member.joining:
            await self._call(member, "join", timeout=_SETTLING_SECONDS, round=number, merges=merges)

    async def _fresh_slots(self) -> None:
        self._slots.want(int(min(_SOON_SECONDS * self._links.rate, _LARGEST_PIECE)))
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await self._changed.wait_for(lambda: self._slots.newest is not None)

    async def _prepare(self, member: Member) -> None:
        description = await self._call(member, "describe", timeout=120.0)
        about = {**description, "name": member.name}
        setup, member.room = await asyncio.to_thread(self._task.setup, member.number, about)
        prepared = await self._call(member, "prepare", setup=setup)
        member.compile_seconds, member.step_seconds = prepared["compile_seconds"], prepared["step_seconds"]
        member.exchange_seconds, member.exchange_bytes = prepared["exchange_seconds"], prepared["exchange_bytes"]
        member.prepared = True
        self._supply.dealing.count()
        member.lose_pieces()

    async def _send_snapshot(self, member: Member, with_slots: bool = True) -> None:
        snapshot = await self._compute(self._snapshot_for, member, self.state, with_slots)
        size = sum(len(v) for v in vars(snapshot).values() if isinstance(v, bytes))
        self._count_sent(member, size)
        sending = 2 * len(self._members) * size / self._links.rate  # all may be sent theirs, while others exchange
        await self._call(member, "restore", timeout=_SETTLING_SECONDS + sending, snapshot=vars(snapshot))

    def _snapshot_for(self, member: Member, state: GlobalState, with_slots: bool) -> Snapshot:
        """From where a replica begins; strategies whose replicas differ go by the member. Computed in the thread."""
        return Snapshot(
            weights=array_bytes.pack([state.weights]),
            statistics=array_bytes.pack(state.statistics),
            slots=self._slots.newest if with_slots else None,
            codecs=(self.agreed.delta_codec, self.agreed.merge_codec),
        )

    async def _probe(self, member: Member, content: bytes) -> None:
        await self._call(member, "probe", timeout=_SETTLING_SECONDS, content=content)

    async def _call(self, member: Member, operation: str, timeout: float | None = None, **message: object) -> Any:
        return await self._fleet.call(member.address, operation, timeout=timeout, **message)

    async def _exchange(
        self, member: Member, number: int, plans: Iterable[tuple[int, Plan]], merges: Iterable[tuple[int, Merge]]
    ) -> Answer:  # fmt: skip
        """Hands a replica plans and merges by the number of their round; returns its answer of one round.

        Raises:
            OSError: the network failed.
            RudelError: the replica raised it.
            OperationError: it failed by another error.
        """
        request = packed_request(number, plans, merges)
        while True:
            try:
                message = await self._fleet.ask(member.address, request)
            except NoLineError:
                message = await self._call(member, "exchange", request=request)
            answered, fields = unpacked_answer(message)
            if "error" in fields:
                raise error_of(fields, member.name)
            if answered == number:
                return Answer(**fields)
            request = packed_request(number, [], [])  # that was of a round before the replica began again

    def _count_sent(self, member: Member, count: int) -> None:
        self.sent, member.sent = self.sent + count, member.sent + count

    def _compute(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Has arithmetic done in the thread for it, after all earlier requests.

        It is done even if the caller is cancelled, so what depends on its order need not wait.
        """
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._arithmetic, work, *arguments))

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[Any]:
        """Begins a task of which nobody waits for the end; one that fails ends the training."""
        task = asyncio.ensure_future(coroutine)
        self._background.add(task)
        task.add_done_callback(self._ended_task)
        return task

    def _ended_task(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._fail(error)


def _try_out(codec: Codec, weights: np.ndarray, layout: Layout) -> None:
    message, _ = codec.encode(weights, layout)
    codec.weighted_sum([(message, 1)], layout)


def not_finite(member: Member, round: str, answer: Answer, why: str) -> NonFiniteError:
    """The error for a loss that became NaN.

    Args:
        member: whose.
        round: in which of its rounds, in words.
        answer: what it said.
        why: what may have made it so, or what to do.
    """
    return NonFiniteError(
        f"The loss became NaN or infinite on {member.name}, in {round}, local step {answer.bad_step + 1:,}: {why}."
    )


def _troubles(members: Iterable[Member]) -> str:
    return "; ".join(f"{member.name}: {member.trouble}" for member in members if member.trouble)


def _reason(error: BaseException) -> str:
    if isinstance(error, Gone):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError):
        return "its connection was closed"
    text = " ".join(str(error).split())
    return text[:200] if text else type(error).__name__
