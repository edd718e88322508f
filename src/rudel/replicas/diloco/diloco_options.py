"""Options of the strategy `diloco`, and defaults that were measured."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from rudel.replicas.merging_options import CODEC, PLAIN, MergingOptions, rate_factor_for
from rudel.replicas.round_lengths import SPARSER, Agreed

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster
    from rudel.session.engine import Engine
    from rudel.session.job import Job

MOST_ROUND_STEPS, FEWEST_ROUNDS, FEWEST_PER_REPLICA = 320, 8, 2
"""Limits of rounds where the user gives none and the link is not slow: with longer or fewer ones, less is
learned; the more replicas, the more rounds it takes.
"""

OUTER_RATE = 1.25
"""Outer learning rate of several replicas whose deltas have some of the weights, and leave the others for later.

Steps of a replica to a target and final accuracy, with 1 and with 1.25 (`benchmarks/convergence.py`, three seeds,
merges a third to half a round late): drawings, 1,184 (0.816) and 1,024 (0.819); with one element in 16, 1,664 (0.808)
and 1,472 (0.812); on two replicas 1,856 and 1,536, on eight 928 and 928; an MLP of 4.9 million weights, never (0.726)
and 192 (0.738); movements 88 (0.946) and 80 (0.954). Where a merge is hardly late: digits 80 and 80; a CNN on drawings
224 (0.797) and 232 (0.792), four seeds.

Of all weights, it is the other way, with merges a quarter of a round to a whole one late (three to five seeds): digits
68 and 96, 80 and 128, 68 and 110 steps, on two replicas 80 and 96, on eight 60 and 144; movements 75 (0.977) and 90
(0.946); drawings 1,024 (0.817) and 1,088 (0.815), in a quarter of the training 320 and 328; the MLP of 4.9 million
weights 132 (0.750) and never (0.708); a curve ends at an error of 0.257 and 0.276, tables at an accuracy of 0.833 and
0.817 and at an error of 0.598 and 0.646.
"""


@dataclass(frozen=True)
class Diloco(MergingOptions):
    """Local steps on every replica, then a compressed exchange; for links that are slow.

    What is None is chosen by the number of replicas and of steps, by rules that were measured on the job of four
    Raspberry Pis (`benchmarks/convergence.py`): there, they learn as well as one computer does from the same examples.

    Args:
        round_steps: local steps of a replica between two merges; None for the number with the fastest progress,
            by the speed of steps, exchanges and links (see `rudel.replicas.round_lengths`).
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for the square
            root of the number of replicas, at most 2; for SGD with momentum 0.8 times that, at least 1.
        outer: what becomes of the mean delta: `nesterov:LR:MU`; None for `nesterov:1.25:MU`, or `nesterov:1:MU` where
            deltas have all weights, with a momentum of 1 - 1 / square root of the number of replicas, at most 0.99;
            for SGD with momentum, `nesterov:1:0`.
        delta_codec: how deltas travel to the coordinator: `float32`, `float16`, `int8`, `top8`, `top16` or
            `top32`; None for `int8` where that takes hardly longer on its way, else `top8`, or fewer elements where
            links are slow.
        merge_codec: how the merged delta travels to the replicas, in the same words; None for the same choice.
        patience: seconds to wait for a host to come back when all are lost.

    Raises:
        OptionError: a value that makes no sense.

    >>> chosen = Diloco(round_steps=64).chosen_for(replicas=4, total_steps=8192, sgd=False)
    >>> chosen.steps, chosen.rate_factor, chosen.outer
    (64, 2.0, 'nesterov:1.25:0.5')
    >>> Diloco().chosen_for(replicas=4, total_steps=8192, sgd=False, codec="int8").outer
    'nesterov:1:0.5'
    """

    length: ClassVar[str] = "round_steps"
    name: ClassVar[str] = "diloco"

    round_steps: int | None = field(default=None, metadata={"option": "sync_every"})

    def __post_init__(self) -> None:
        from rudel.replicas.outer_optimizer import make_outer

        self.check(make_outer)

    def engine(self, job: "Job", cluster: "RunningCluster | None") -> "Engine":
        """Makes what takes the steps; see `rudel.training.strategies.Strategy`."""
        from rudel.replicas.diloco.in_rounds import InRounds
        from rudel.replicas.replicas_engine import ReplicasEngine

        assert cluster is not None  # as `needs_hosts` says
        return ReplicasEngine(job, cluster, self, InRounds())

    def chosen_for(
        self, replicas: int, total_steps: int, sgd: bool, worth: int | None = None, codec: str = CODEC
    ) -> Agreed:
        """See `MergingOptions`."""
        root = math.sqrt(worth or replicas)
        longest = MOST_ROUND_STEPS if replicas > 1 else 2 * MOST_ROUND_STEPS
        rounds = max(FEWEST_ROUNDS, FEWEST_PER_REPLICA * replicas)
        codec = codec if replicas > 1 else "float32"
        rate = OUTER_RATE if (self.delta_codec or codec) in SPARSER else 1.0
        return self.completed(
            self.round_steps or max(1, min(longest, total_steps // (replicas * rounds))),
            rate_factor_for(worth or replicas, sgd),
            PLAIN if sgd or root == 1 else f"nesterov:{rate:g}:{min(1 - 1 / root, 0.99):.2g}",
            codec,
        )
