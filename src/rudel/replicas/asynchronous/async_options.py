"""Options of the strategy `async`, and defaults that were measured."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rudel.loop.schedule import check_whole_number
from rudel.replicas.diloco.diloco_options import CODEC, agreed, check_merging
from rudel.replicas.round_lengths import Agreed, Speeds

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster
    from rudel.session.engine import Engine
    from rudel.session.job import Job

MOST_STEPS, FEWEST_VISITS = 640, 3
"""What visits may be like, where the user says nothing and the link is not slow."""

_CODEC_OF_STEPS = "float16"
"""How changes of single steps travel."""


@dataclass(frozen=True)
class Chosen:
    """What `Async` says, with everything chosen."""

    steps_between: int
    rate_factor: float
    outer: str
    delta_codec: str
    merge_codec: str
    patience: float


@dataclass(frozen=True)
class Async:
    """Local steps on every replica, and nobody waits for anybody; for hosts of very different speeds.

    What is None is chosen by the number of replicas and of steps, by rules that were measured on the job of four
    Raspberry Pis (`benchmarks/convergence.py`).

    Args:
        steps_between: local steps of the fastest replica between two visits to the computer that drives; slower ones
            take fewer. 1 makes the classical parameter server: every step of a replica is one of all. None for what
            lets the hosts learn most in a second.
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for 0.8 times the square
            root of the number of replicas, at least 1 and at most 3, and for 1 with single steps.
        outer: what becomes of a delta: `sum`, `average` or `nesterov:LR:MU`; None for `nesterov:1:MU` with a momentum
            of half of 1 - 1 / square root of the number of replicas, and for `sum` with single steps.
        delta_codec: how deltas travel to the coordinator: `float32`, `float16`, `int8`, `top8`, `top16` or
            `top32`; None for `top8` (with fewer elements on slow links), and for `float16` with single steps.
        merge_codec: how what others have done travels to a replica, in the same words; None for `top8`, and for
            `float16` with single steps.
        patience: seconds to wait for a host to come back when all are lost.

    Raises:
        OptionError: a value that makes no sense.

    >>> chosen = Async().chosen_for(replicas=4, total_steps=8192)
    >>> chosen.steps_between, chosen.rate_factor, chosen.outer
    (640, 1.6, 'nesterov:1:0.25')
    >>> Async(steps_between=1).chosen_for(replicas=4, total_steps=8192).outer
    'sum'
    """

    name: ClassVar[str] = "async"
    needs_hosts: ClassVar[bool] = True
    any_backend: ClassVar[bool] = True

    steps_between: int | None = field(default=None, metadata={"option": "sync_every"})
    rate_factor: float | None = None
    outer: str | None = None
    delta_codec: str | None = None
    merge_codec: str | None = None
    patience: float = field(default=120.0, metadata={"option": "host_timeout"})

    def __post_init__(self) -> None:
        if self.steps_between is not None:
            check_whole_number("steps_between", self.steps_between)
        from rudel.replicas.asynchronous.delayed import make_delayed

        check_merging(self, make_delayed)

    def engine(self, job: "Job", cluster: "RunningCluster | None") -> "Engine":
        """Makes what takes the steps; see `rudel.training.strategies.Strategy`."""
        from rudel.replicas.asynchronous.on_arrival import OnArrival
        from rudel.replicas.replicas_engine import ReplicasEngine

        assert cluster is not None  # as `needs_hosts` says
        return ReplicasEngine(job, cluster, self, OnArrival())

    def chosen_for(self, replicas: int, total_steps: int, worth: int | None = None) -> Chosen:
        """The same with everything chosen; see `Diloco.chosen_for`."""
        root, single = math.sqrt(worth or replicas), self.steps_between == 1
        alone = "float32" if replicas == 1 else _CODEC_OF_STEPS if single else None
        chosen: dict[str, Any] = {
            "steps_between": max(1, min(MOST_STEPS, total_steps // (replicas * FEWEST_VISITS))),
            "rate_factor": 1.0 if single else min(max(0.8 * root, 1.0), 3.0),
            "outer": "sum" if single else f"nesterov:1:{(1 - 1 / root) / 2:.2g}",
            "delta_codec": alone or CODEC,
            "merge_codec": alone or CODEC,
        }
        given = {name: value for name, value in vars(self).items() if value is not None}
        return Chosen(**chosen | given)

    def agree(self, replicas: int, total_steps: int, speeds: Speeds) -> Agreed:
        """What holds for all visits, once it is known how fast replicas and links are; see `Diloco.agree`."""
        chosen = self.chosen_for(replicas, total_steps, speeds.worth)
        return agreed(self, chosen, self.steps_between, chosen.steps_between, replicas, speeds)
