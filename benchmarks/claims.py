"""What Rudel claims to be on one computer, and whether some rounds bear it out."""

from collections.abc import Sequence
from dataclasses import dataclass

import measure

RUDEL, FIRST = "rudel", "rudel, first run"
ARTICLE_STEPS = 8192


@dataclass(frozen=True)
class Claim:
    """A bound on the median of a number, or of its ratio within each round.

    Args:
        text: the claim in words.
        number: which of a contestant's numbers.
        contestant: whose.
        over: the contestant to divide by; empty for the number itself.
        least: the lower bound, or None.
        largest: the upper bound, or None.
        needs_job: whether it is about the whole job, and says nothing of a shorter one.
    """

    text: str
    number: str
    contestant: str = RUDEL
    over: str = ""
    least: float | None = None
    largest: float | None = None
    needs_job: bool = False


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        text: the claim in words.
        median: of the number that it is about; None where it was not measured.
        holds: whether it holds; None where that cannot be said.
    """

    text: str
    median: float | None
    holds: bool | None


MLP = (
    Claim("at least 5 times the steps per second of Keras on TensorFlow", "step_seconds", "keras-tensorflow", RUDEL, 5),
    Claim("at least 1.3 times the steps per second of Keras on JAX", "step_seconds", "keras-jax", RUDEL, 1.3),
    Claim("a step takes at most 1.8 times its matrix products", "step_seconds", RUDEL, "numpy-floor", largest=1.8),
    Claim("compiled within 3 s at the first run", "compile_seconds", FIRST, largest=3),
    Claim("compiled within 1 s at later runs", "compile_seconds", largest=1),
    Claim("at most 450 MB at the first run", "peak_bytes", FIRST, largest=450e6),
    Claim("at most 450 MB at later runs", "peak_bytes", largest=450e6),
    Claim("0.805 of the held-out drawings right", "accuracy", least=0.805, needs_job=True),
)

CNN: tuple[Claim, ...] = ()


def judged(claims: Sequence[Claim], rounds: measure.Rounds, steps: int) -> list[Verdict]:
    """A verdict on each claim."""
    return [_verdict(claim, rounds, steps) for claim in claims]


def _verdict(claim: Claim, rounds: measure.Rounds, steps: int) -> Verdict:
    if claim.over:
        found = measure.paired_ratios(rounds, claim.number, claim.contestant, claim.over)
    else:
        found = measure.values(rounds, claim.contestant, claim.number)
    if not found:
        return Verdict(claim.text, None, None)
    median = measure.spread(found).median
    if claim.needs_job and steps < ARTICLE_STEPS:
        return Verdict(claim.text, median, None)
    holds = (claim.least is None or median >= claim.least) and (claim.largest is None or median <= claim.largest)
    return Verdict(claim.text, median, holds)
