"""What Rudel claims to be on several computers, and whether some rounds bear it out."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import measure
from claims import ARTICLE_STEPS, Claim, Verdict, judged
from cluster_job import SAMPLES

NODE, FOUR, FOUR_SLOW = "rudel-node", "rudel-4@100", "rudel-4@20"
CNN_NODE, CNN_FOUR = "rudel-node-cnn", "rudel-4-cnn@20"
SLOW_NODE, UNEVEN = "rudel-slow-node", "rudel-uneven@100"
LOCAL_SGD, FLOWER, MIRRORED = "torch-postlocalsgd@100", "flower@100", "tf-mwms@100"

_TIME = "train_seconds"

_CLAIMS = (
    Claim("4 nodes are at least 3.5 times as fast as 1, at 100 Mbit/s", _TIME, NODE, FOUR, 3.5),
    Claim("4 nodes are at least 3 times as fast as 1, at 20 Mbit/s", _TIME, NODE, FOUR_SLOW, 3.0),
    Claim("4 nodes are at least 3.7 times as fast as 1 with the CNN, at 20 Mbit/s", _TIME, CNN_NODE, CNN_FOUR, 3.7),
    Claim("at least 500 times as fast as MultiWorkerMirroredStrategy", _TIME, MIRRORED, FOUR, 500),
    Claim("at least 2.3 times as fast as PyTorch's PostLocalSGD", _TIME, LOCAL_SGD, FOUR, 2.3),
    Claim("at least 13 times as fast as Flower", _TIME, FLOWER, FOUR, 13),
    Claim("at most 10 MB on the air for the job", "air_bytes", FOUR, largest=10e6, needs_job=True),
    Claim("a worker takes at most 450 MB", "peak_bytes", FOUR, largest=450e6),
)

_WITHIN = 0.005
_SHARE_OF_SPEEDS = 0.85


def verdicts(rounds: measure.Rounds, samples: int) -> list[Verdict]:
    """A verdict on every claim.

    Args:
        rounds: numbers by contestant, a round for every seed.
        samples: of the job; of a shorter one than the article's, not everything can be said.
    """
    whole = samples >= SAMPLES
    return [
        *judged(_CLAIMS, rounds, ARTICLE_STEPS if whole else 0),
        _accuracy(rounds, "4 nodes are as accurate as 1, within 0.5 points", FOUR, NODE, -_WITHIN, whole),
        _accuracy(rounds, "the same at 20 Mbit/s", FOUR_SLOW, NODE, -_WITHIN, whole),
        _accuracy(rounds, "more accurate than PyTorch's PostLocalSGD", FOUR, LOCAL_SGD, 0.0, whole),
        _uneven(rounds),
    ]


def _accuracy(rounds: measure.Rounds, text: str, one: str, other: str, least: float, whole: bool) -> Verdict:
    """Compares means over all seeds; the median of a verdict is their difference."""
    means = [statistics.fmean(found) for name in (one, other) if (found := measure.values(rounds, name, "accuracy"))]
    if len(means) < 2:
        return Verdict(text, None, None)
    difference = means[0] - means[1]
    return Verdict(text, difference, difference >= least if whole else None)


def _uneven(rounds: measure.Rounds) -> Verdict:
    shares = [share for numbers in rounds if (share := share_of_speeds(numbers)) is not None]
    text = "two nodes at 0.4 core and two at 0.2 reach 85 % of the sum of their speeds"
    if not shares:
        return Verdict(text, None, None)
    median = measure.spread(shares).median
    return Verdict(text, median, median >= _SHARE_OF_SPEEDS)


def share_of_speeds(numbers: Mapping[str, Mapping[str, Any]]) -> float | None:
    """How fast two nodes and two slower ones are together, as a share of what they do one by one.

    >>> one = {"samples": 100, "train_seconds": 10.0}
    >>> share_of_speeds({"rudel-node": one, "rudel-slow-node": one, "rudel-uneven@100": one | {"samples": 300}})
    0.75
    """
    speeds = [_speed(numbers.get(name)) for name in (UNEVEN, NODE, SLOW_NODE)]
    together, fast, slow = speeds
    if together is None or fast is None or slow is None:
        return None
    return together / (2 * fast + 2 * slow)


def _speed(numbers: Mapping[str, Any] | None) -> float | None:
    return numbers["samples"] / numbers["train_seconds"] if numbers else None


def seconds_to(curve: Sequence[Sequence[float]], accuracy: float) -> float | None:
    """The first moment at which somebody looked and found this accuracy.

    >>> seconds_to([[1.0, 0.7], [2.0, 0.79], [3.0, 0.81]], 0.78)
    2.0
    """
    return next((seconds for seconds, reached in curve if reached >= accuracy), None)
