"""What can be chosen of the strategy `diloco`, and the defaults that were measured."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from rudel.errors import OptionError
from rudel.train.diloco.lengths import Agreed, Lengths, Speeds
from rudel.train.schedule import check_whole_number

MOST_ROUND_STEPS, FEWEST_ROUNDS, FEWEST_PER_REPLICA = 320, 8, 2
"""What rounds may be like, where the user says nothing: with longer or fewer ones, less is learned; the more replicas,
the more rounds it takes.
"""

LEAST_ROUND_STEPS, ROUND_SECONDS, EXCHANGE_SHARE = 16, 0.5, 0.03
"""Of steps that take long, rounds have no more than fill these seconds, or than keep the share of encoding and merging
small: the fewer steps between two merges, the more is learned.
"""

LEAST_FIRST_STEPS = 64
"""The first rounds are shorter, but no shorter than this, unless all are."""

SLOW_LINK_SHARE, FULL_LINK_SHARE = 0.35, 0.7
"""A link is slow if what a round sends takes more than this share of it; with smaller messages, it may take that."""

_CODEC, _SMALL_CODEC, SMALLER = "topk:0.2:3", "topk:0.1:3", 0.56
"""How changes travel, and how over slow links: as so much less bytes."""


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
        round_steps: local steps of a replica between two merges; None for 320, or fewer where there would not be 8
            rounds, or where steps take long, and for fewer in the first rounds.
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for 0.8 times the square
            root of the number of replicas, at least 1 and at most 3.
        outer: what becomes of the mean delta: `average`, `momentum:LR:MU` or `nesterov:LR:MU`; None for `nesterov:1:MU`
            with a momentum of 1 - 1 / square root of the number of replicas, at most 0.99.
        delta_codec: how deltas travel to the coordinator: `float32`, `float16`, `bfloat16`, `int8`, `int4`,
            `topk:SHARE:BITS` or `topk:SHARE:BITS:KEPT`.
        merge_codec: how the merged delta travels to the replicas, in the same words.
        patience: seconds to wait for a host to come back when all are lost.

    Raises:
        OptionError: a value that makes no sense.

    >>> chosen = Diloco(round_steps=64).chosen_for(replicas=4, total_steps=8192)
    >>> chosen.round_steps, chosen.rate_factor, chosen.outer
    (64, 1.6, 'nesterov:1:0.5')
    """

    name: ClassVar[str] = "diloco"
    needs_hosts: ClassVar[bool] = True
    any_backend: ClassVar[bool] = True

    round_steps: int | None = None
    rate_factor: float | None = None
    outer: str | None = None
    delta_codec: str | None = None
    merge_codec: str | None = None
    patience: float = 120.0

    def __post_init__(self) -> None:
        if self.round_steps is not None:
            check_whole_number("round_steps", self.round_steps)
        from rudel.train.diloco.outer import make_outer

        check_merging(self, make_outer)

    def training(self, *arguments: Any, cluster: Any) -> Any:
        """Makes what trains; see `rudel.train.strategy.Strategy`."""
        from rudel.train.diloco.training import DilocoTraining

        return DilocoTraining(*arguments, cluster=cluster, options=self)

    def chosen_for(self, replicas: int, total_steps: int) -> "Chosen":
        """The same with everything chosen.

        Args:
            replicas: how many train together. A single one has nobody to agree with, and only says how far it is: what
                it sends is exact.
            total_steps: of all of them together.
        """
        root = math.sqrt(replicas)
        longest = MOST_ROUND_STEPS if replicas > 1 else 2 * MOST_ROUND_STEPS
        rounds = max(FEWEST_ROUNDS, FEWEST_PER_REPLICA * replicas)
        codec = _CODEC if replicas > 1 else "float32"
        chosen: dict[str, Any] = {
            "round_steps": max(1, min(longest, total_steps // (replicas * rounds))),
            "rate_factor": min(max(0.8 * root, 1.0), 3.0),
            "outer": f"nesterov:1:{min(1 - 1 / root, 0.99):.2g}",
            "delta_codec": codec,
            "merge_codec": codec,
        }
        given = {name: value for name, value in vars(self).items() if value is not None}
        return Chosen(**chosen | given)

    def agree(self, chosen: "Chosen", replicas: int, speeds: Speeds) -> Agreed:
        """What holds for all rounds, once it is known how fast replicas and links are.

        Where steps take long, rounds have fewer. Where the link is so slow that much of a round is over before its
        predecessor's merge arrives, less is sent, more often; where even that takes too long, rounds are longer.

        Args:
            chosen: what `chosen_for` chose.
            replicas: how many train together.
            speeds: what was measured.

        >>> options = Diloco()
        >>> chosen = options.chosen_for(replicas=4, total_steps=8192)
        >>> options.agree(chosen, 4, Speeds(0.0007, 0.02, 62e3, bytes_per_second=10e6)).lengths
        Lengths(most=256, first=64)
        >>> options.agree(chosen, 4, Speeds(0.03, 0.01, 50e3, bytes_per_second=10e6)).lengths
        Lengths(most=16, first=16)
        >>> options.agree(chosen, 4, Speeds(0.0007, 0.02, 62e3, bytes_per_second=2e6))
        Agreed(lengths=Lengths(most=142, first=64), delta_codec='topk:0.1:3', merge_codec='topk:0.1:3')
        """
        most, codecs = chosen.round_steps, {name: getattr(chosen, name) for name in ("delta_codec", "merge_codec")}
        if replicas == 1:
            return Agreed(Lengths(most, most), **codecs)
        by_time = max(ROUND_SECONDS, speeds.exchange_seconds / EXCHANGE_SHARE) / speeds.step_seconds
        most = min(most, max(LEAST_ROUND_STEPS, 2 ** round(math.log2(by_time))))
        seconds = replicas * speeds.exchange_bytes / speeds.bytes_per_second
        if seconds > SLOW_LINK_SHARE * most * speeds.step_seconds:
            seconds *= SMALLER
            codecs = {name: getattr(self, name) or _SMALL_CODEC for name in codecs}
            most = max(LEAST_ROUND_STEPS, most // 2, round(seconds / (FULL_LINK_SHARE * speeds.step_seconds)))
        if self.round_steps is not None:
            return Agreed(Lengths(self.round_steps, self.round_steps), **codecs)
        return Agreed(Lengths(most, min(most, max(LEAST_FIRST_STEPS, most // 4))), **codecs)


def check_merging(options: Any, make_outer: Callable[[str], Any]) -> None:
    """Refuses what makes no sense in the options that all strategies have whose hosts merge what they learned.

    Args:
        options: with `rate_factor`, `outer`, `delta_codec`, `merge_codec` and `patience`.
        make_outer: what makes an outer optimizer of that strategy by its name.

    Raises:
        OptionError: a value that makes no sense.
    """
    from rudel.train.diloco.codec import make_codec

    if options.rate_factor is not None and not 0 < options.rate_factor <= 100:
        raise OptionError(f"`rate_factor` must be above 0 and at most 100, not {options.rate_factor!r}.")
    if not 0 <= options.patience < float("inf"):
        raise OptionError(f"`patience` must be a number of seconds from 0, not {options.patience!r}.")
    for codec in (options.delta_codec, options.merge_codec):
        if codec is not None:
            make_codec(codec)
    if options.outer is not None:
        make_outer(options.outer)
