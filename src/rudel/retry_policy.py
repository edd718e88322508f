"""How often, and after which pauses, something that fails is tried again."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """A retry policy with exponential backoff.

    Args:
        timeout: seconds without a byte after which a connection counts as stalled.
        attempts: attempts in a row that bring nothing new, after which all has failed.
        first_delay: seconds of pause before the second attempt; twice as long before each further one.
        longest_delay: seconds; no pause is longer, whatever the server asks for.
    """

    timeout: float = 20.0
    attempts: int = 6
    first_delay: float = 0.5
    longest_delay: float = 60.0

    def delay(self, failures: int, requested: float = 0.0) -> float:
        """Seconds of pause after this many failures in a row; `requested` by the server is the least."""
        return min(max(self.first_delay * 2 ** min(failures - 1, 30), requested), self.longest_delay)
