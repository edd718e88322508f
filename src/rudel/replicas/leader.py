"""`Leader`: what a coordinator leaves to a way of merging, and the `Desk` that it works with.

Leaders are in `diloco.round_leader` and `asynchronous.arrival_leader`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rudel.errors import NonFiniteError
from rudel.replicas.answer_book import AnswerBook
from rudel.replicas.arithmetic import Arithmetic
from rudel.replicas.codec.delta_codec import Codec
from rudel.replicas.host_calls import HostCalls
from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Answer, Merge
from rudel.replicas.round_lengths import Agreed
from rudel.replicas.rounds import GlobalState, Task
from rudel.replicas.team import Team


@dataclass(frozen=True)
class Desk:
    """What a leader works with.

    Args:
        task: what to do.
        team: who takes part.
        calls: to their hosts.
        book: of their answers.
        arithmetic: for all that passes over weights.
    """

    task: Task
    team: Team
    calls: HostCalls
    book: AnswerBook
    arithmetic: Arithmetic


class Leader(Protocol):
    """Plans what replicas do, and merges what they answer. All methods run in the fleet's event loop.

    Attributes:
        state: the global state.
    """

    state: GlobalState

    def begin(self, agreed: Agreed, codecs: tuple[Codec, Codec], link_seconds: float) -> None:
        """Takes over what was agreed for all rounds.

        Args:
            agreed: the outer optimizer and the length of rounds, among others.
            codecs: of deltas, and of merges.
            link_seconds: in which all replicas exchange what a round has to, all at once.
        """
        ...

    def plan_first(self, number: int) -> None:
        """Plans what replicas do first, from round `number`."""
        ...

    async def lead(self) -> None:
        """Trains to the end, with the replicas that have begun.

        Raises:
            ClusterError: all replicas were lost, and none came back.
            NonFiniteError: the loss became NaN or infinite.
        """
        ...

    async def follow(self, member: Member, number: int) -> None:
        """Exchanges with a replica, from round `number`, until the training ends or the replica is too late to go on.

        Raises:
            OSError, RudelError: the replica is lost.
        """
        ...

    def join(self, member: Member, snapshot: GlobalState) -> tuple[int, Sequence[Merge]]:
        """Says from where a replica joins that has this snapshot.

        Returns:
            The round that it begins with, and the merges that it needs before.

        Raises:
            TimeoutError: these are no longer known.
        """
        ...

    def plan_for_joined(self, member: Member, number: int) -> None:
        """Plans what a replica that has joined does, from round `number`."""
        ...

    def holds_up(self, member: Member, members: Sequence[Member]) -> bool:
        """Whether these members would progress faster without this one of them."""
        ...


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
