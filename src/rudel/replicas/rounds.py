"""Data classes of a training in rounds: its task, its global state, and its reports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rudel.array_types import Float32
from rudel.replicas.averages import Averages
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.members import Piece
from rudel.replicas.round_lengths import Agreed, Speeds

_NONE = np.empty(0, np.float32)
_VECTORS = ("weights", "momentum", "residual", "recent", "average")


@dataclass(frozen=True)
class GlobalState:
    """Everything that a round changes, on the coordinator's side.

    Args:
        round: rounds closed.
        steps: local steps that were merged.
        weights, momentum: float32 vectors: the weights, and the outer optimizer's state.
        residual: by how much the weights are to move that replicas have not heard of: float32, as long as the weights,
            or empty where that is known by replica.
        statistics: non-trainable variables that the replicas agree on, see `rudel.replicas.shared_variables`.
        recent: the mean of the weights over the last steps, see `rudel.replicas.averages`; empty before the first
            round, and where there is none.
        average: the exponential average of the weights, where the model's optimizer has one; empty before the first
            round, and where it has none.
    """

    round: int
    steps: int
    weights: Float32[np.ndarray, "weights"]
    momentum: Float32[np.ndarray, "memory"]
    residual: Float32[np.ndarray, "residual"]
    statistics: list[np.ndarray]
    recent: Float32[np.ndarray, "recent"] = field(default_factory=lambda: _NONE)
    average: Float32[np.ndarray, "average"] = field(default_factory=lambda: _NONE)

    def averaged(self, before: "GlobalState", averages: Averages, steps: float) -> "GlobalState":
        """The same with means over time.

        Args:
            before: the state that it came from.
            averages: which means there are.
            steps: local steps of a replica between the two.
        """
        recent = averages.recently(before.recent, self.weights, before.steps, self.steps)
        return replace(self, recent=recent, average=averages.exponential(before.average, self.weights, steps))

    @property
    def evaluated(self) -> Float32[np.ndarray, "weights"]:
        """The weights that are evaluated and kept: their mean over the last steps, where there is one."""
        return self.recent if self.recent.size else self.weights

    @property
    def nbytes(self) -> int:
        """Bytes of all vectors."""
        return sum(getattr(self, name).nbytes for name in _VECTORS)

    def to_evaluate(self) -> "GlobalState":
        """The same without the vectors that only the next round needs."""
        return replace(self, weights=self.evaluated, momentum=_NONE, residual=_NONE, recent=_NONE)

    def without_weights(self) -> "GlobalState":
        """The same without any vector."""
        return replace(self, **dict.fromkeys(_VECTORS, _NONE))


@dataclass(frozen=True)
class HostReport:
    """A replica's round, for logs and displays.

    Args:
        name: of the host.
        steps: local steps.
        seconds, waited: the round's length and the part of it that the replica waited.
        merged_at: local steps taken before the last merge came.
        memory: bytes that the worker has held at most.
        cpu: seconds of processor time, of all threads of the worker.
        sent, received: payload bytes to and from it since the training began.
        answers: how many this adds up.
        computed: seconds of these in which steps were taken; what is neither that nor waited is encoding and merging.
    """

    name: str
    steps: int
    seconds: float
    waited: float
    merged_at: int
    memory: int
    cpu: float
    sent: int
    received: int
    answers: int = 1
    computed: float = 0.0


@dataclass(frozen=True)
class Arrival:
    """The pseudo-gradient of one replica, as it arrived.

    Args:
        delta: as it came.
        steps: that it stands for.
        weight, fresh: how much it counted, where nobody waits for others: for its share of a cycle, and for its age.
    """

    delta: bytes
    steps: int
    weight: float = 1.0
    fresh: float = 1.0


@dataclass(frozen=True)
class RoundClosed:
    """A round is over, or some replicas have come.

    Args:
        state: the global state after it.
        seconds: since the training began.
        replicas: who took part.
        metrics: sums over the replicas of the metrics variables of this round.
        logs: of a replica's last step.
        sent, received: payload bytes since the training began.
        slots: packed optimizer variables of a replica, if some were requested.
        arrivals: in the order in which they came.
    """

    state: GlobalState
    seconds: float
    replicas: list[HostReport]
    metrics: list[np.ndarray]
    logs: list[np.ndarray]
    sent: int
    received: int
    slots: bytes | None
    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True)
class HostChanged:
    """A replica was lost, is being brought to where the others are, joined, or is set on standby.

    Args:
        name: of the host.
        event: one of `rudel.report.hosts_words.EVENTS`.
        seconds: since the training began.
        reason: one sentence.
    """

    name: str
    event: str
    seconds: float
    reason: str


@dataclass(frozen=True)
class Counts:
    """What is counted from the beginning of a training, also of one that is continued.

    Args:
        sent, received: payload bytes.
        lost, joined: how often a host was lost, or joined.
    """

    sent: int = 0
    received: int = 0
    lost: int = 0
    joined: int = 0

    def after(self, event: RoundClosed | HostChanged, before: "Counts") -> "Counts":
        """The counts after an event.

        Args:
            event: of a coordinator, which counts bytes from its own beginning.
            before: counts until that.
        """
        if isinstance(event, RoundClosed):
            return replace(self, sent=before.sent + event.sent, received=before.received + event.received)
        lost, joined = event.event == "lost", event.event == "joined"
        return replace(self, lost=self.lost + lost, joined=self.joined + joined)


@dataclass(frozen=True)
class Task:
    """The task of a coordinator.

    Args:
        total_steps: local steps of all replicas together.
        agree: what holds for all rounds, by the number of replicas, and how fast they and their links are.
        batch_size: examples a step.
        layout: of the trainable variables.
        pieces: of the data set.
        setup: (number, description of the worker) -> fields of a `Setup`, and how much of the data set the host can
            hold, as a share.
        patience: seconds to wait for a replica to come back when all are lost.
        rates: (first, last, count) -> float32 (count,) learning rates for that many local steps, spread over the steps
            first to last of the training.
        why_not_finite: what to say of a loss that became NaN: what may have made it so, or what to do.
        averages: means over time of the weights.
        to_continue: the way to continue the training, as the end of a sentence.
    """

    total_steps: int
    agree: Callable[[int, Speeds], Agreed]
    batch_size: int
    layout: Layout
    pieces: Sequence[Piece]
    setup: Callable[[int, dict[str, Any]], tuple[dict[str, Any], float]]
    rates: Callable[[int, int, int], np.ndarray]
    why_not_finite: Callable[[], str]
    patience: float = 120.0
    averages: Averages = field(default_factory=Averages)
    to_continue: str = ""


def added(sums: Sequence[np.ndarray], more: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Sums of metrics variables, and more of them added.

    >>> added([np.float32(1), np.arange(2)], [np.float32(2), np.arange(2)])
    [np.float32(3.0), array([0, 2])]
    """
    return [a + b for a, b in zip(sums, more, strict=True)]
