"""How long rounds are, and what replicas agree upon once it is known how fast they and their links are."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lengths:
    """How many local steps rounds have, on average over the replicas.

    In the beginning, weights move fastest, and replicas drift apart soonest: the first rounds are shorter.

    Args:
        most: of a round.
        first: of round 0; every later one has twice as many as the one before, up to the most.

    >>> [Lengths(256, first=64).of(number) for number in range(4)]
    [64, 128, 256, 256]
    """

    most: int
    first: int

    def of(self, number: int) -> int:
        """Local steps of a round."""
        return min(self.most, self.first << min(number, 30))


@dataclass(frozen=True)
class Speeds:
    """What was measured before the first round, as means over the replicas.

    Args:
        step_seconds: of a local step.
        exchange_seconds: that a replica needs to encode a delta and to merge one.
        exchange_bytes: of a delta and a merge together.
        bytes_per_second: to all replicas at the same time.
    """

    step_seconds: float
    exchange_seconds: float
    exchange_bytes: float
    bytes_per_second: float


@dataclass(frozen=True)
class Agreed:
    """What holds for all rounds.

    Args:
        lengths: of the rounds.
        delta_codec, merge_codec: names of the codecs of deltas and merges.
    """

    lengths: Lengths
    delta_codec: str
    merge_codec: str
