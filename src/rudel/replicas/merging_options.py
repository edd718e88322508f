"""Options that the strategies which merge replicas, `diloco` and `async`, have in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from rudel.errors import OptionError, option
from rudel.loop.schedule import check_whole_number
from rudel.replicas.round_lengths import Agreed, Speeds, best_codec, best_length, goes_in_full, least_by_link
from rudel.session.plain_numbers import use_plain_numbers

CODEC = "top8"
"""The codec of changes, there and back; slow links have fewer elements (`rudel.replicas.round_lengths.best_codec`)."""

IN_FULL = "int8"
"""The codec of small models, where that takes hardly longer."""

PLAIN = "nesterov:1:0"
"""The outer optimizer where the optimizer is SGD with momentum: the mean of the changes, applied.

An outer momentum costs there. Steps of one of four replicas to a target, and final accuracy, with nesterov:1.25:0.5 and
with the mean (`benchmarks/convergence.py`, two or three seeds): a CNN on drawings, rounds of 8, in full never (0.803),
168 (0.824), one element in 8 240 (0.802) and 228 (0.812); rounds of 4, 232 (0.815) and 148 (0.842), never (0.804) and
172 (0.822); an MLP, final 0.610 and 0.722, 0.630 and 0.712. With adaptive optimizers and changes that travel in full it
depends: digits 88 and 56, movements 32 and 32, but a table 28 and 42; there, the rate is lower instead. Where nobody
waits, with nesterov:1:0.25 and the mean: an MLP 0.719 and 0.727, in visits of 8 steps 0.702 and 0.709; the CNN 184 and
180.
"""


@dataclass(frozen=True, kw_only=True)
class MergingOptions(ABC):
    """Options that `diloco` and `async` share; their classes say what each of them means there.

    Attributes:
        length: the option with the local steps between two exchanges, a field of the class.
    """

    length: ClassVar[str]
    needs_hosts: ClassVar[bool] = True
    any_backend: ClassVar[bool] = True

    rate_factor: float | None = None
    outer: str | None = None
    delta_codec: str | None = None
    merge_codec: str | None = None
    patience: float = field(default=120.0, metadata={"option": "host_timeout"})

    @abstractmethod
    def chosen_for(
        self, replicas: int, total_steps: int, sgd: bool, worth: int | None = None, codec: str = CODEC
    ) -> Agreed:
        """Returns the options with everything chosen, as far as nothing has to be measured for it.

        Args:
            replicas: how many train together. A single one has nobody to agree with, and only says how far it is: what
                it sends is exact.
            total_steps: of all of them together.
            sgd: see `rudel.replicas.keras_rates.is_momentum_sgd`.
            worth: see `Speeds`; None for as many as there are replicas.
            codec: of the changes of several replicas, where the user names none.
        """

    def check(self, make_outer: Callable[[str], Any]) -> None:
        """Checks all values, of which numbers of NumPy become Python's.

        Args:
            make_outer: what makes an outer optimizer of the strategy by its name, or raises.

        Raises:
            OptionError: a value that makes no sense.
        """
        from rudel.replicas.codec.delta_codec import make_codec

        use_plain_numbers(self)
        if (steps := getattr(self, self.length)) is not None:
            check_whole_number(self.length, steps)
        if self.rate_factor is not None and not 0 < self.rate_factor <= 100:
            raise OptionError(f"{option('rate_factor')} must be above 0 and at most 100, not {self.rate_factor!r}.")
        if not 0 <= self.patience < float("inf"):
            raise OptionError(f"{option('patience')} must be a number of seconds from 0, not {self.patience!r}.")
        for codec in (self.delta_codec, self.merge_codec):
            if codec is not None:
                make_codec(codec)
        if self.outer is not None:
            make_outer(self.outer)

    def completed(self, steps: int, rate_factor: float, outer: str, codec: str) -> Agreed:
        """Fills these values in where the user gave none; the codec is for both directions."""
        return Agreed(
            steps=steps,
            rate_factor=rate_factor if self.rate_factor is None else self.rate_factor,
            outer=self.outer or outer,
            delta_codec=self.delta_codec or codec,
            merge_codec=self.merge_codec or codec,
        )

    def agree(self, replicas: int, total_steps: int, speeds: Speeds) -> Agreed:
        """Settles what was left open by the speeds of replicas and links.

        A host that is much slower than the others adds little: with learning rates and momentum for as many hosts as
        there are, the training would progress more slowly than without it.

        Args:
            replicas: how many train together.
            total_steps: of all of them together.
            speeds: what was measured.
        """
        codec = IN_FULL if goes_in_full(replicas, speeds) else CODEC
        chosen = self.chosen_for(replicas, total_steps, speeds.sgd, speeds.worth, codec)
        steps = chosen.steps
        steps_are_given = getattr(self, self.length) is not None
        if not steps_are_given and replicas > 1:
            steps = best_length(replicas, total_steps, steps, speeds)
        elif not steps_are_given:  # nothing drifts apart, and all weights travel
            steps = max(steps, least_by_link(replicas, steps, speeds))
        if not steps_are_given and self.delta_codec is self.merge_codec is None and chosen.delta_codec == CODEC:
            codec, steps = best_codec(replicas, total_steps, chosen.steps, speeds)
            chosen = replace(chosen, delta_codec=codec, merge_codec=codec)
        return replace(chosen, steps=steps)


def rate_factor_for(worth: int, sgd: bool) -> float:
    """By what learning rates of local steps are multiplied.

    It grows with the root of the number of replicas up to four. Steps to a target and final accuracy on drawings: four
    in rounds of 28 steps 999 with a factor of 1.6 and 907 with 2, of 20 steps 927, 868 and, with 2.5, 930; two 1,512
    (0.823) with 1.13 and 1,368 (0.824) with 1.41; eight in rounds of 16 714 (0.811) with 1.9 and 710 (0.808) with 2.38.
    Four take 87 and 81 on digits, and end at 0.965 and 0.977 on movements (`benchmarks/convergence.py`, four to six
    seeds). With SGD with momentum it is less: a CNN ends at 0.840 with 1.6 and at 0.832 with 2 (four hosts of a lab,
    three seeds).

    Args:
        worth: how many equal replicas they are worth.
        sgd: see `rudel.replicas.keras_rates.is_momentum_sgd`.

    >>> rate_factor_for(1, False), rate_factor_for(4, False), rate_factor_for(100, False), rate_factor_for(4, True)
    (1.0, 2.0, 2.0, 1.6)
    """
    return max(1.0, (0.8 if sgd else 1.0) * math.sqrt(min(worth, 4)))
