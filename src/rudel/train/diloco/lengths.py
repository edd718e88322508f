"""How long rounds are."""

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
