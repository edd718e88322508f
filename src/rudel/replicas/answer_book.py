"""`AnswerBook`: learns from answers how fast replicas are and what they have trained on; reports what was merged."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rudel.replicas.dealing import Dealing
from rudel.replicas.host_calls import HostCalls
from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Answer
from rudel.replicas.rounds import Arrival, GlobalState, HostReport, RoundClosed, added
from rudel.replicas.slots_by_pieces import SlotsReceiver
from rudel.shipping import array_bytes

_SLOTS_SHARE, _LEAST_PIECE = 0.05, 2**12
"""By how much more all exchange while the slots of one come for a checkpoint; and bytes of their pieces, at least."""


class AnswerBook:
    """See the module.

    Args:
        members: by name.
        calls: which count bytes.
        dealing: of the examples.
        slots: what replicas send of theirs.
        batch_size: examples a step.
        on_event: called with `RoundClosed` events.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        calls: HostCalls,
        dealing: Dealing,
        slots: SlotsReceiver,
        batch_size: int,
        on_event: Callable[[RoundClosed], None],
    ) -> None:
        self._members, self._calls, self._dealing, self._slots = members, calls, dealing, slots
        self._batch_size, self._on_event = batch_size, on_event
        self._delta_bytes = 0  # of the last one that came

    def learn(self, member: Member, answer: Answer) -> None:
        """Remembers how fast a replica was, and what it has trained on and sent of its slots."""
        self._dealing.trained(member, answer.steps * self._batch_size)
        member.answered(answer.steps, answer.seconds - answer.waited, time.perf_counter())
        self._delta_bytes = len(answer.delta)
        self._slots.take(member.name, answer)

    def want_slots(self) -> None:
        """Asks for a replica's optimizer slots with the next answers; can be called from any thread."""
        self._slots.want(max(_LEAST_PIECE, int(_SLOTS_SHARE * 2 * len(self._members) * self._delta_bytes)))

    def ask_for_slots(self, members: Sequence[Member], number: int) -> None:
        """Lets the fastest of these replicas send its slots, if they are wanted, from a round that was just planned."""
        giver = max(members, key=lambda member: member.speed, default=None)
        if giver and (most := self._slots.ask(giver.name)):
            giver.plans[number] = replace(giver.plans[number], slots=most)

    def report(
        self,
        state: GlobalState,
        seconds: float,
        answers: Sequence[tuple[str, Answer]],
        arrivals: Sequence[Arrival],
    ) -> None:
        """Reports what was merged.

        Args:
            state: after it.
            seconds: since the training began.
            answers: of replicas, by name, as they came; one may have several.
            arrivals: what of them the journal has to keep.
        """
        metrics = functools.reduce(added, (array_bytes.unpack(answer.metrics) for _, answer in answers))
        self._on_event(
            RoundClosed(
                state,
                seconds,
                replicas=self._host_reports(answers),
                metrics=metrics,
                logs=array_bytes.unpack(answers[-1][1].logs),
                sent=self._calls.sent,
                received=self._calls.received,
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
