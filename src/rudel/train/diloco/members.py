"""Replicas as the coordinator knows them, and who has which examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rudel.train.diloco.messages import Plan

_MEMORY = 0.5
"""How much of a new measurement of speed counts against what was known."""


@dataclass(frozen=True)
class Piece:
    """A piece of the data set.

    Args:
        name: of its content.
        span: its examples, first and last (exclusive).
        content: makes its compressed bytes.
    """

    name: str
    span: tuple[int, int]
    content: Callable[[], bytes] = field(compare=False, hash=False)


@dataclass(eq=False)
class Member:
    """A replica.

    Args:
        name: of its host.
        address: of its worker.
        number: of the replica; stays the same when it comes back.
        active: takes part in rounds.
        lost: its worker does not answer, or not in time.
        joining: is being brought to where the others are.
        prepared: the worker at this address has the program.
        failures: how often its worker failed by itself since its last answer.
        trouble: why it was lost last.
        follower: the task that exchanges with it.
        step_seconds, exchange_seconds: how long a local step takes, and encoding and merging of a delta.
        exchange_bytes: of a delta and a merge.
        answered_at: when it last did, on this computer's clock.
        early: seconds by which it ended the last round before the others did, on average.
        correction: seconds by which the last plan that was made changes that.
        plans: by round, as far as they are not answered.
        dealt: pieces that it shall have.
        loaded: pieces that it has in memory.
        pieces: those that it takes examples from.
        pieces_changed: whether the next plan has to say so.
        sent, received: payload bytes to and from it.
    """

    name: str
    address: str
    number: int
    active: bool = False
    lost: bool = False
    joining: bool = False
    prepared: bool = False
    failures: int = 0
    trouble: str = ""
    follower: Any = None
    compile_seconds: float = 0.0
    step_seconds: float = 1e-3
    exchange_seconds: float = 0.0
    exchange_bytes: float = 0.0
    answered_at: float = 0.0
    early: float = 0.0
    correction: float = 0.0
    plans: dict[int, Plan] = field(default_factory=dict)
    dealt: set[Piece] = field(default_factory=set)
    loaded: set[Piece] = field(default_factory=set)
    pieces: set[Piece] = field(default_factory=set)
    pieces_changed: bool = False
    sent: int = 0
    received: int = 0

    @property
    def speed(self) -> float:
        """Steps a second."""
        return 1.0 / max(self.step_seconds, 1e-9)

    def answered(self, steps: int, seconds: float, now: float) -> None:
        """Learns from a round how fast it is."""
        self.answered_at = now
        if steps and seconds > 0:
            self.step_seconds += _MEMORY * (seconds / steps - self.step_seconds)

    def take_dealt(self) -> None:
        """Uses the pieces that were dealt and have been loaded."""
        wanted = self.dealt & self.loaded
        self.pieces_changed |= wanted != self.pieces
        self.pieces = wanted


def deal(pieces: Sequence[Piece], members: Sequence[Member]) -> None:
    """Deals all pieces to members as evenly as can be; who has a piece keeps it if that is fair.

    What a member takes examples from changes when it takes what was dealt, so that nobody gives up a piece before its
    new owner has it.

    >>> a, b = Member("a", "", 0), Member("b", "", 1)
    >>> parts = [Piece(str(i), (i, i + 1), bytes) for i in range(4)]
    >>> deal(parts, [a, b]); sorted(p.name for p in a.dealt), sorted(p.name for p in b.dealt)
    (['0', '2'], ['1', '3'])
    >>> deal(parts, [b]); len(b.dealt)
    4
    """
    most = -(-len(pieces) // len(members))
    kept: dict[Member, list[Piece]] = {}
    taken: set[Piece] = set()
    for member in members:
        own = sorted((piece for piece in member.dealt if piece not in taken), key=lambda piece: piece.span)[:most]
        kept[member] = own
        taken.update(own)
    for piece in pieces:
        if piece not in taken:
            least = min(members, key=lambda member: (len(kept[member]), member.number))
            kept[least].append(piece)
    for member in members:
        member.dealt = set(kept[member])
