"""Options of the strategy `async`, and defaults that were measured."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from rudel.replicas.merging_options import CODEC, PLAIN, MergingOptions, rate_factor_for
from rudel.replicas.round_lengths import Agreed

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster
    from rudel.session.engine import Engine
    from rudel.session.job import Job

MOST_STEPS, FEWEST_VISITS = 640, 3
"""Limits of visits where the user gives none and the link is not slow."""

_CODEC_OF_STEPS = "float16"
"""The codec for changes of single steps."""


@dataclass(frozen=True)
class Async(MergingOptions):
    """Local steps on every replica, and nobody waits for anybody; for hosts of very different speeds.

    What is None is chosen by the number of replicas and of steps, by rules that were measured on the job of four
    Raspberry Pis (`benchmarks/convergence.py`).

    Args:
        steps_between: local steps of the fastest replica between two visits to the driver; slower ones
            take fewer. 1 makes the classical parameter server: every step of a replica is one of all. None for what
            lets the hosts learn most in a second.
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for the square
            root of the number of replicas, at most 2; for SGD with momentum 0.8 times that, at least 1; with
            single steps 1.
        outer: what becomes of a delta: `sum` or `nesterov:LR:MU`; None for `nesterov:1:MU` with a momentum
            of half of 1 - 1 / square root of the number of replicas, of 0 where the optimizer is SGD with momentum,
            and for `sum` with single steps.
        delta_codec: how deltas travel to the coordinator: `float32`, `float16`, `int8`, `top8`, `top16` or
            `top32`; None for `top8` (with fewer elements on slow links), and for `float16` with single steps.
        merge_codec: how what others have done travels to a replica, in the same words; None for `top8`, and for
            `float16` with single steps.
        patience: seconds to wait for a host to come back when all are lost.

    Raises:
        OptionError: a value that makes no sense.

    >>> chosen = Async().chosen_for(replicas=4, total_steps=8192, sgd=False)
    >>> chosen.steps, chosen.rate_factor, chosen.outer
    (640, 2.0, 'nesterov:1:0.25')
    >>> Async(steps_between=1).chosen_for(replicas=4, total_steps=8192, sgd=False).outer
    'sum'
    """

    length: ClassVar[str] = "steps_between"
    name: ClassVar[str] = "async"

    steps_between: int | None = field(default=None, metadata={"option": "sync_every"})

    def __post_init__(self) -> None:
        from rudel.replicas.asynchronous.delayed import make_delayed

        self.check(make_delayed)

    def engine(self, job: "Job", cluster: "RunningCluster | None") -> "Engine":
        """Makes what takes the steps; see `rudel.training.strategies.Strategy`."""
        from rudel.replicas.asynchronous.on_arrival import OnArrival
        from rudel.replicas.replicas_engine import ReplicasEngine

        assert cluster is not None  # as `needs_hosts` says
        return ReplicasEngine(job, cluster, self, OnArrival())

    def chosen_for(
        self, replicas: int, total_steps: int, sgd: bool, worth: int | None = None, codec: str = CODEC
    ) -> Agreed:
        """See `MergingOptions`."""
        root, single = math.sqrt(worth or replicas), self.steps_between == 1
        alone = "float32" if replicas == 1 else _CODEC_OF_STEPS if single else None
        return self.completed(
            self.steps_between or max(1, min(MOST_STEPS, total_steps // (replicas * FEWEST_VISITS))),
            1.0 if single else rate_factor_for(worth or replicas, sgd),
            "sum" if single else PLAIN if sgd else f"nesterov:1:{(1 - 1 / root) / 2:.2g}",
            alone or codec,
        )
