"""The length of rounds, and the other options that follow from the measured speeds of replicas and links."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

_LEAST_STEPS = 4
"""Of a round or a visit, where the user says nothing. With 4 instead of 8, four replicas took 7 to 18 % fewer steps to
a target on digits, photographs, movements and, with a convolutional net, drawings (`benchmarks/convergence.py`).
"""

_DRIFT_SHARE = 1 / 5
"""Of the steps that a replica takes in the whole training. In rounds of so many, replicas would drift so far apart that
they took twice as many steps to learn as much; with shorter ones, it is less in proportion: each step by which rounds
are longer costs about five, in a short training as in a long one. Steps of a replica to the target of drawings
(`benchmarks/convergence.py`, three to six seeds): of 4,096, two replicas in rounds of 40 and 80 take 1,600 and 1,840;
of 2,048, four in rounds of 16, 32 and 46 880, 1,024 and 1,104; of 1,024, eight in rounds of 16, 24, 32 and 40 744, 792,
864 and 992; of 512, four in rounds of 8, 16, 32 and 64 304, 328, 416 and never, to an easier target; of 192, an MLP of
4.9 million weights in rounds of 8, 16, 24 and 32 112, 144, 168 and 192.
"""

_DRIFT_STEPS, _DRIFT_STEPS_SGD = 200, 50
"""The same at most, and with SGD with momentum. The first was chosen by the time that nodes of a lab with 0.2 of a
core took to learn drawings (`benchmarks/evaluate.py`). Four, in rounds of 16, 24, 32 and 44 steps (four seeds), came to
accuracies of 0.77 to 0.80 after 3.45, 3.37, 3.35 and 3.61 s, and ended at 0.819, 0.818, 0.816 and 0.814. With 400, two
came to 0.80 after 7.1 s and not 6.0 s; four at 20 Mbit/s after 4.7 s in both cases, with 10 % more steps (three seeds).
With SGD, in rounds of 4, 8, 16 and 32 steps, four replicas end at 0.822, 0.812, 0.790 and 0.749 with a CNN on drawings
after 1,024 steps, an MLP at 0.733, 0.712, 0.676 and 0.590 (`benchmarks/convergence.py`).
"""

_LEAST_OF_SLOWEST = 2
"""Steps of a round of the slowest replica."""

_MORE_FOR_ALL = 2.0
"""How many times as long messages with all weights may be under way as the usual ones."""

_MOST_BY_LINK = 2
"""How many times as long as otherwise rounds may be for a slow link: fewer rounds converge badly."""

SPARSER = {"top8": 1.0, "top16": 1 / 2, "top32": 1 / 4}
"""Codecs of the largest elements, by their bytes in relation to those of the first, which replicas try out."""

_LONGER_BY_LINK = 1.5
"""How many times as long as without it a slow link may make rounds before fewer elements travel.

Where the link says how long rounds are, half the elements in rounds of half the length teach more (steps to a target,
`benchmarks/convergence.py`, three seeds): drawings, four replicas 1,344, 1,176 and, with a quarter, 1,280; eight end at
0.780, 0.784 and 0.790; an MLP of 4.9 million weights 192, 168 and 144; digits 192, 144 and 128; movements 64, 56 and
56. In rounds of the same length, it is the other way: 1,000, 1,000 and 1,240; the large MLP 144 and 168; digits 112 and
144.
"""

_OVERLAP = 0.85
"""Share of a round that may be over before the merge of the last one is there; a merge that comes later holds steps up.

Bytes are worth more than a fresh merge (`benchmarks/convergence.py`, drawings, four replicas, three seeds, steps to a
target and final accuracy): what a link carries in 40 steps, one element in 32, comes in rounds of 68 steps with 1,972
(0.800) and in rounds of 45 with 1,755 (0.806); twice as many elements in rounds of 68 with 1,564 (0.807).
"""


@dataclass(frozen=True)
class Speeds:
    """What is known before the first round, of measurements the means over the replicas.

    Args:
        step_seconds: of a local step.
        exchange_seconds: that a replica needs to encode a delta and to merge one.
        exchange_bytes: of a delta and a merge together.
        bytes_per_second: to all replicas at the same time.
        round_trip: seconds of a message without content, there and back.
        slowest_seconds: of a local step of the slowest replica.
        weights: elements of the model.
        worth: how many hosts of equal speed these are worth, see `rudel.replicas.dealing.worth_of`.
        sgd: see `rudel.replicas.keras_rates.is_momentum_sgd`.
    """

    step_seconds: float
    exchange_seconds: float
    exchange_bytes: float
    bytes_per_second: float
    round_trip: float = 0.0
    slowest_seconds: float = 0.0
    weights: float = math.inf
    worth: int = 1
    sgd: bool = False


@dataclass(frozen=True)
class Agreed:
    """Options that hold for all rounds, none of them open.

    Args:
        steps: of a replica between two exchanges, on average over the replicas.
        rate_factor: by which the learning rate of local steps is multiplied.
        outer: name of the outer optimizer.
        delta_codec, merge_codec: names of the codecs of deltas and merges.
    """

    steps: int
    rate_factor: float
    outer: str
    delta_codec: str
    merge_codec: str


def best_steps(each: float, step: Any, exchange: Any, sgd: bool) -> Any:
    """Steps between two exchanges with the fastest progress in time, however fast the links are.

    Args:
        each: steps that a replica takes in the whole training.
        step: seconds of one; a number or an array.
        exchange: likewise, in which no steps are taken.
        sgd: see `Speeds`.
    """
    drift = min(_DRIFT_STEPS_SGD if sgd else _DRIFT_STEPS, _DRIFT_SHARE * each)
    return np.maximum(_LEAST_STEPS, np.sqrt(drift * exchange / step))


def best_length(replicas: int, total_steps: int, most: int, speeds: Speeds) -> int:
    """Steps of a round with the fastest progress in time.

    The shorter rounds are, the less replicas drift apart, and the more of their time exchanges take: with a cost of c
    steps for each, rounds of the root of 200 c steps are best; with SGD of 50 c, and likewise of less where a replica
    takes fewer than 1,000 steps in the whole training. But the slowest replica is to take a few steps, too. A merge is
    to come before most of the next round is over, or it comes too late to be of use: on slow links, rounds are as long
    as that takes, up to twice as long as they are otherwise at most.

    Args:
        replicas: how many train together.
        total_steps: of all of them together.
        most: steps of a round otherwise.
        speeds: what was measured.

    >>> best_length(4, 8192, 320, Speeds(0.0007, 0.002, 20e3, bytes_per_second=10e6))
    24
    >>> best_length(4, 8192, 320, Speeds(0.0007, 0.002, 20e3, bytes_per_second=1e6))
    135
    >>> best_length(8, 8192, 320, Speeds(0.0007, 0.002, 20e3, bytes_per_second=20e6))
    24
    >>> best_length(4, 8192, 320, Speeds(0.03, 0.002, 20e3, bytes_per_second=10e6))
    4
    """
    by_cost = round(float(best_steps(total_steps / replicas, speeds.step_seconds, speeds.exchange_seconds, speeds.sgd)))
    by_slowest = math.ceil(_LEAST_OF_SLOWEST * speeds.slowest_seconds / speeds.step_seconds)
    return max(min(most, max(by_cost, by_slowest)), least_by_link(replicas, most, speeds))


def least_by_link(replicas: int, most: int, speeds: Speeds) -> int:
    """Steps of a round, at least, so that a merge comes before most of the next one is over.

    Args:
        replicas, most, speeds: see `best_length`.

    >>> least_by_link(1, 640, Speeds(0.0007, 0.002, 1.6e6, bytes_per_second=2.3e6))
    1170
    """
    by_link = math.ceil(_network_seconds(replicas, speeds.exchange_bytes, speeds) / (_OVERLAP * speeds.step_seconds))
    return min(_MOST_BY_LINK * most, by_link)


def best_codec(replicas: int, total_steps: int, most: int, speeds: Speeds) -> tuple[str, int]:
    """The codec with the fastest progress in time, and the steps of a round with it.

    Args:
        replicas, total_steps, most: see `best_length`.
        speeds: what was measured, with the first codec of `SPARSER`.

    >>> best_codec(4, 8192, 320, Speeds(0.0007, 0.002, 20e3, bytes_per_second=10e6))
    ('top8', 24)
    >>> best_codec(4, 8192, 320, Speeds(0.0007, 0.002, 20e3, bytes_per_second=2e6))
    ('top16', 34)
    >>> best_codec(4, 8192, 320, Speeds(0.0007, 0.002, 20e3, bytes_per_second=0.5e6))
    ('top32', 68)
    """
    job = replicas, total_steps, most
    enough = _LONGER_BY_LINK * best_length(*job, replace(speeds, bytes_per_second=math.inf))
    lengths = {
        codec: best_length(*job, replace(speeds, exchange_bytes=share * speeds.exchange_bytes))
        for codec, share in SPARSER.items()
    }
    return next((item for item in lengths.items() if item[1] <= enough), [*lengths.items()][-1])


def goes_in_full(replicas: int, speeds: Speeds) -> bool:
    """Whether a byte for every weight, there and back, takes hardly longer on its way than what is sent otherwise.

    Then nothing needs to be left for later, as of small models, which learn fast and have few rounds. SGD with momentum
    learns more where nothing is left, so there it may take as long as the shortest round. Four replicas, steps to a
    target or final accuracy by one element in 8 and in full (`benchmarks/convergence.py`): a CNN on drawings 172 and
    148, with group normalisation 0.648 and 0.683; an MLP 0.712 and 0.722; but with Adam, an MLP on drawings 976 and
    1,216.

    Args:
        replicas: how many train together.
        speeds: what was measured.

    >>> goes_in_full(4, Speeds(0.0007, 0.002, 400, bytes_per_second=10e6, round_trip=0.003, weights=4096))
    True
    >>> goes_in_full(4, Speeds(0.0007, 0.002, 30e3, bytes_per_second=10e6, round_trip=0.003, weights=200e3))
    False
    >>> goes_in_full(4, Speeds(0.045, 0.002, 30e3, bytes_per_second=10e6, round_trip=0.003, weights=200e3, sgd=True))
    True
    """
    enough = _MORE_FOR_ALL * _network_seconds(replicas, speeds.exchange_bytes, speeds)
    if speeds.sgd:
        enough = max(enough, _LEAST_STEPS * speeds.step_seconds)
    return _network_seconds(replicas, 2 * speeds.weights, speeds) <= enough


def _network_seconds(replicas: int, size: float, speeds: Speeds) -> float:
    """In which all replicas exchange messages of this size, there and back together, at the same time."""
    return speeds.round_trip + replicas * size / speeds.bytes_per_second
