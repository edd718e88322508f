"""What can be chosen of the strategy `async`, and the defaults that were measured."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from rudel.train.diloco.lengths import Agreed, Lengths, Speeds
from rudel.train.diloco.options import check_merging
from rudel.train.schedule import check_whole_number

MOST_STEPS, FEWEST_VISITS = 640, 3
"""What visits may be like, where the user says nothing."""

LEAST_STEPS, VISIT_SECONDS, EXCHANGE_SHARE = 16, 1.0, 0.03
"""Of steps that take long, a visit has no more than fill these seconds, or than keep encoding and merging cheap."""

LINK_SHARE = 0.5
"""Visits are longer where what is sent would take more than this share of the link."""

LEAST_FIRST_STEPS = 64
"""The first visits are shorter, but no shorter than this, unless all are."""

DENSE_SHARE = 0.3
"""Where every change in full, in few bits, takes less than this share of the link, it is sent so: it is faster to
encode, and teaches a little more.
"""

_CODEC, _CODEC_OF_STEPS = "topk:0.2:3", "float16"
"""How changes travel, and how those of single steps."""

_DENSE, DENSE_BYTES = "int4", 4.0
"""How changes travel over fast links, and by how much more that is."""


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
            take fewer. 1 makes the classical parameter server: every step of a replica is one of all. None for 640, or
            fewer where a replica would not come 3 times, or where steps take long, and for fewer at first.
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for 0.8 times the square
            root of the number of replicas, at least 1 and at most 3, and for 1 with single steps.
        outer: what becomes of a delta: `sum`, `average` or `nesterov:LR:MU`; None for `nesterov:1:MU` with a momentum
            of half of 1 - 1 / square root of the number of replicas, and for `sum` with single steps.
        delta_codec: how deltas travel to the coordinator: `float32`, `float16`, `bfloat16`, `int8`, `int4`,
            `topk:SHARE:BITS` or `topk:SHARE:BITS:KEPT`.
        merge_codec: how what others have done travels to a replica, in the same words.
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

    steps_between: int | None = None
    rate_factor: float | None = None
    outer: str | None = None
    delta_codec: str | None = None
    merge_codec: str | None = None
    patience: float = 120.0

    def __post_init__(self) -> None:
        if self.steps_between is not None:
            check_whole_number("steps_between", self.steps_between)
        from rudel.train.asynchronous.delayed import make_delayed

        check_merging(self, make_delayed)

    def training(self, *arguments: Any, cluster: Any) -> Any:
        """Makes what trains; see `rudel.train.strategy.Strategy`."""
        from rudel.train.asynchronous.training import AsyncTraining

        return AsyncTraining(*arguments, cluster=cluster, options=self)

    def chosen_for(self, replicas: int, total_steps: int) -> Chosen:
        """The same with everything chosen.

        Args:
            replicas: how many train together.
            total_steps: of all of them together.
        """
        root, single = math.sqrt(replicas), self.steps_between == 1
        codec = "float32" if replicas == 1 else _CODEC_OF_STEPS if single else _CODEC
        chosen: dict[str, Any] = {
            "steps_between": max(1, min(MOST_STEPS, total_steps // (replicas * FEWEST_VISITS))),
            "rate_factor": 1.0 if single else min(max(0.8 * root, 1.0), 3.0),
            "outer": "sum" if single else f"nesterov:1:{(1 - 1 / root) / 2:.2g}",
            "delta_codec": codec,
            "merge_codec": codec,
        }
        given = {name: value for name, value in vars(self).items() if value is not None}
        return Chosen(**chosen | given)

    def agree(self, chosen: Chosen, replicas: int, speeds: Speeds) -> Agreed:
        """What holds for all visits, once it is known how fast replicas and links are.

        Args:
            chosen: what `chosen_for` chose.
            replicas: how many train together.
            speeds: what was measured.

        >>> options = Async()
        >>> chosen = options.chosen_for(replicas=4, total_steps=8192)
        >>> options.agree(chosen, 4, Speeds(0.0007, 0.02, 62e3, bytes_per_second=30e6))
        Agreed(lengths=Lengths(most=640, first=320), delta_codec='int4', merge_codec='int4')
        >>> options.agree(chosen, 4, Speeds(0.0007, 0.02, 62e3, bytes_per_second=5e6))
        Agreed(lengths=Lengths(most=640, first=320), delta_codec='topk:0.2:3', merge_codec='topk:0.2:3')
        >>> options.agree(chosen, 4, Speeds(0.0007, 0.02, 62e3, bytes_per_second=1e6)).lengths
        Lengths(most=709, first=354)
        """
        most, codecs = chosen.steps_between, (chosen.delta_codec, chosen.merge_codec)
        if self.steps_between is not None or replicas == 1:
            return Agreed(Lengths(most, most), *codecs)
        by_time = max(VISIT_SECONDS, speeds.exchange_seconds / EXCHANGE_SHARE) / speeds.step_seconds
        most = min(most, max(LEAST_STEPS, round(by_time)))
        by_link = replicas * speeds.exchange_bytes / (speeds.bytes_per_second * speeds.step_seconds)
        if DENSE_BYTES * by_link < DENSE_SHARE * most and codecs == (_CODEC, _CODEC):
            codecs = self.delta_codec or _DENSE, self.merge_codec or _DENSE
        most = max(most, math.ceil(by_link / LINK_SHARE))
        return Agreed(Lengths(most, min(most, max(LEAST_FIRST_STEPS, most // 2))), *codecs)
