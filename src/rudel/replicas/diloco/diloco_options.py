"""Options of the strategy `diloco`, and defaults that were measured."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rudel.errors import OptionError
from rudel.loop.schedule import check_whole_number
from rudel.replicas.round_lengths import Agreed, Speeds, best_codec, best_length, goes_in_full

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster
    from rudel.session.engine import Engine
    from rudel.session.job import Job

MOST_ROUND_STEPS, FEWEST_ROUNDS, FEWEST_PER_REPLICA = 320, 8, 2
"""What rounds may be like, where the user says nothing and the link is not slow: with longer or fewer ones, less is
learned; the more replicas, the more rounds it takes.
"""

CODEC = "top8"
"""How changes travel, there and back; on slow links, fewer elements do (`rudel.replicas.round_lengths.best_codec`)."""

OUTER_RATE = 1.25
"""Outer learning rate of several replicas: more than 1, as a merge comes when some of the next round is over.

Steps of a replica to a target and final accuracy, with 1 and with 1.25 (`benchmarks/convergence.py`, three seeds,
merges a third to half a round late): drawings, 1,184 (0.816) and 1,024 (0.819); with one element in 16, 1,664 (0.808)
and 1,472 (0.812); on two replicas 1,856 and 1,536, on eight 928 and 928; an MLP of 4.9 million weights, never (0.726)
and 192 (0.738); movements 88 (0.946) and 80 (0.954). Where a merge is hardly late: digits 80 and 80; a CNN on drawings
224 (0.797) and 232 (0.792), four seeds.
"""

IN_FULL = "int8"
"""How those of small models do, where that takes hardly longer."""


@dataclass(frozen=True)
class Chosen:
    """What `Diloco` says, with everything chosen."""

    round_steps: int
    rate_factor: float
    outer: str
    delta_codec: str
    merge_codec: str
    patience: float


@dataclass(frozen=True)
class Diloco:
    """Local steps on every replica, then a compressed exchange; for links that are slow.

    What is None is chosen by the number of replicas and of steps, by rules that were measured on the job of four
    Raspberry Pis (`benchmarks/convergence.py`): there, they learn as well as one computer does from the same examples.

    Args:
        round_steps: local steps of a replica between two merges; None for the number with the fastest progress,
            by the speed of steps, exchanges and links (see `rudel.replicas.round_lengths`).
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for 0.8 times the square
            root of the number of replicas, at least 1 and at most 3.
        outer: what becomes of the mean delta: `average` or `nesterov:LR:MU`; None for `nesterov:1.25:MU`
            with a momentum of 1 - 1 / square root of the number of replicas, at most 0.99.
        delta_codec: how deltas travel to the coordinator: `float32`, `float16`, `int8`, `top8`, `top16` or
            `top32`; None for `int8` where that takes hardly longer on its way, else `top8`, or fewer elements where
            links are slow.
        merge_codec: how the merged delta travels to the replicas, in the same words; None for the same choice.
        patience: seconds to wait for a host to come back when all are lost.

    Raises:
        OptionError: a value that makes no sense.

    >>> chosen = Diloco(round_steps=64).chosen_for(replicas=4, total_steps=8192)
    >>> chosen.round_steps, chosen.rate_factor, chosen.outer
    (64, 1.6, 'nesterov:1.25:0.5')
    """

    name: ClassVar[str] = "diloco"
    needs_hosts: ClassVar[bool] = True
    any_backend: ClassVar[bool] = True

    round_steps: int | None = field(default=None, metadata={"option": "sync_every"})
    rate_factor: float | None = None
    outer: str | None = None
    delta_codec: str | None = None
    merge_codec: str | None = None
    patience: float = field(default=120.0, metadata={"option": "host_timeout"})

    def __post_init__(self) -> None:
        if self.round_steps is not None:
            check_whole_number("round_steps", self.round_steps)
        from rudel.replicas.outer_optimizer import make_outer

        check_merging(self, make_outer)

    def engine(self, job: "Job", cluster: "RunningCluster | None") -> "Engine":
        """Makes what takes the steps; see `rudel.training.strategies.Strategy`."""
        from rudel.replicas.diloco.in_rounds import InRounds
        from rudel.replicas.replicas_engine import ReplicasEngine

        assert cluster is not None  # as `needs_hosts` says
        return ReplicasEngine(job, cluster, self, InRounds())

    def chosen_for(self, replicas: int, total_steps: int, worth: int | None = None) -> "Chosen":
        """The same with everything chosen.

        Args:
            replicas: how many train together. A single one has nobody to agree with, and only says how far it is: what
                it sends is exact.
            total_steps: of all of them together.
            worth: see `Speeds`; None for as many as there are replicas.
        """
        root = math.sqrt(worth or replicas)
        longest = MOST_ROUND_STEPS if replicas > 1 else 2 * MOST_ROUND_STEPS
        rounds = max(FEWEST_ROUNDS, FEWEST_PER_REPLICA * replicas)
        chosen: dict[str, Any] = {
            "round_steps": max(1, min(longest, total_steps // (replicas * rounds))),
            "rate_factor": min(max(0.8 * root, 1.0), 3.0),
            "outer": f"nesterov:{OUTER_RATE if root > 1 else 1:g}:{min(1 - 1 / root, 0.99):.2g}",
            "delta_codec": CODEC if replicas > 1 else "float32",
            "merge_codec": CODEC if replicas > 1 else "float32",
        }
        given = {name: value for name, value in vars(self).items() if value is not None}
        return Chosen(**chosen | given)

    def agree(self, replicas: int, total_steps: int, speeds: Speeds) -> Agreed:
        """What holds for all rounds, once it is known how fast replicas and links are.

        A host that is much slower than the others adds little: with learning rates and momentum for as many hosts as
        there are, the training would progress more slowly than without it.

        Args:
            replicas: how many train together.
            total_steps: of all of them together.
            speeds: what was measured.
        """
        chosen = self.chosen_for(replicas, total_steps, speeds.worth)
        return agreed(self, chosen, self.round_steps, chosen.round_steps, replicas, speeds)


def agreed(given: Any, chosen: Any, requested: int | None, most: int, replicas: int, speeds: Speeds) -> Agreed:
    """What holds for all rounds or visits, once it is known how fast replicas and links are.

    Args:
        given: options of a strategy, of which `delta_codec` and `merge_codec` count.
        chosen: the same with everything chosen.
        requested: steps between two exchanges, as the user gave them; None where they are to be chosen.
        most: steps that were chosen before anything was measured.
        replicas: how many train together.
        speeds: what was measured.
    """
    codecs, best = (chosen.delta_codec, chosen.merge_codec), CODEC
    steps = best_length(replicas, most, speeds) if requested is None and replicas > 1 else most
    if codecs == (CODEC, CODEC):
        if goes_in_full(replicas, speeds):
            best = IN_FULL
        elif requested is None and given.delta_codec is given.merge_codec is None:
            best, steps = best_codec(replicas, most, speeds)
        codecs = given.delta_codec or best, given.merge_codec or best
    return Agreed(steps, chosen.rate_factor, chosen.outer, *codecs)


def check_merging(options: Any, make_outer: Callable[[str], Any]) -> None:
    """Refuses what makes no sense in the options of all strategies that merge replicas.

    Args:
        options: with `rate_factor`, `outer`, `delta_codec`, `merge_codec` and `patience`.
        make_outer: what makes an outer optimizer of that strategy by its name.

    Raises:
        OptionError: a value that makes no sense.
    """
    from rudel.replicas.codec.delta_codec import make_codec

    if options.rate_factor is not None and not 0 < options.rate_factor <= 100:
        raise OptionError(f"`rate_factor` must be above 0 and at most 100, not {options.rate_factor!r}.")
    if not 0 <= options.patience < float("inf"):
        raise OptionError(f"`patience` must be a number of seconds from 0, not {options.patience!r}.")
    for codec in (options.delta_codec, options.merge_codec):
        if codec is not None:
            make_codec(codec)
    if options.outer is not None:
        make_outer(options.outer)
