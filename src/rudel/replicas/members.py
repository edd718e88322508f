"""Replicas as the coordinator knows them."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from rudel.replicas.replica_messages import Plan

_MEMORY = 0.5
"""The weight of a new measurement of speed against earlier ones."""

_STEADY_SECONDS = 30.0
"""Over which a replica's steady speed is averaged; what is older counts less and less."""

_KNOWN_SECONDS = 10.0
"""Of training, after which it is."""


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
        refused: its host said why it cannot take part, and is not tried again.
        standby: it is so slow that others would wait for it, and takes part only if they are lost.
        tried_at: when it was last tried out whether that is still so, on this computer's clock; infinite while it is.
        tried_again: whether it was tried out again since the first time.
        trouble: why it was lost last.
        follower: the task that exchanges with it.
        step_seconds, exchange_seconds: how long a local step takes, and encoding and merging of a delta.
        exchange_bytes: of a delta and a merge.
        lately: steps and seconds of what it has answered, faded by age.
        answered_at: when it last did, on this computer's clock.
        early: seconds by which it ended the last round before the others did, on average.
        correction: seconds by which the last plan that was made changes that.
        plans: by round, as far as they are not answered.
        room: how much of the data set its host can hold, as a share.
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
    refused: bool = False
    standby: bool = False
    tried_at: float = 0.0
    tried_again: bool = False
    trouble: str = ""
    follower: asyncio.Task[None] | None = None
    compile_seconds: float = 0.0
    step_seconds: float = 1e-3
    exchange_seconds: float = 0.0
    exchange_bytes: float = 0.0
    lately: tuple[float, float] = (0.0, 0.0)
    answered_at: float = 0.0
    early: float = 0.0
    correction: float = 0.0
    plans: dict[int, Plan] = field(default_factory=dict)
    room: float = 1.0
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

    @property
    def measured(self) -> bool:
        """Whether its speed is that of steps of the training, and not of a try-out."""
        return self.lately[0] > 0

    @property
    def known(self) -> bool:
        """Whether it has trained for so long that its steady speed is no accident."""
        return self.lately[1] >= _KNOWN_SECONDS

    @property
    def steady_speed(self) -> float:
        """Steps a second, without the ups and downs of single rounds."""
        steps, seconds = self.lately
        return steps / seconds if self.measured else self.speed

    def answered(self, steps: int, seconds: float, now: float) -> None:
        """Learns from a round how fast it is."""
        self.answered_at = now
        if steps and seconds > 0:
            self.step_seconds += _MEMORY * (seconds / steps - self.step_seconds)
            kept = math.exp(-seconds / _STEADY_SECONDS)
            self.lately = kept * self.lately[0] + steps, kept * self.lately[1] + seconds

    def lose_pieces(self) -> None:
        """Has no pieces, as a worker that has just begun: none is in its memory, whatever an earlier one had."""
        self.loaded, self.pieces = set(), set()

    def take_dealt(self) -> None:
        """Uses the pieces that were dealt and have been loaded; those that it has until there are such ones."""
        wanted = self.dealt & self.loaded or self.pieces
        self.pieces_changed |= wanted != self.pieces
        self.pieces = wanted
