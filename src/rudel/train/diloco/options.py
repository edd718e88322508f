"""What can be chosen of the strategy `diloco`, and the defaults that were measured."""

from dataclasses import dataclass

from rudel.errors import OptionError
from rudel.train.schedule import check_whole_number


@dataclass(frozen=True)
class Diloco:
    """Local steps on every replica, then a compressed exchange; for links that are slow.

    The defaults learn as well as one computer from the same number of examples, on the job for which they were measured
    (`benchmarks/convergence.py`).

    Args:
        round_steps: local steps of a replica between two merges.
        rate_factor: by what the optimizer's learning rate is multiplied in local steps; None for the square root of the
            number of replicas, at most 2.
        outer: what becomes of the mean delta: `average`, `momentum:LR:MU` or `nesterov:LR:MU`.
        delta_codec: how deltas travel to the coordinator: `float32`, `bfloat16`, `int8`, `int4` or `topk:SHARE:BITS`.
        merge_codec: how the merged delta travels to the replicas, in the same words.
        patience: seconds to wait for a host to come back when all are lost.

    Raises:
        OptionError: a value that makes no sense.

    >>> Diloco(round_steps=64).outer
    'nesterov:1:0.5'
    """

    round_steps: int = 128
    rate_factor: float | None = None
    outer: str = "nesterov:1:0.5"
    delta_codec: str = "topk:0.1:2"
    merge_codec: str = "topk:0.1:2"
    patience: float = 120.0

    def __post_init__(self) -> None:
        check_whole_number("round_steps", self.round_steps)
        if self.rate_factor is not None and not 0 < self.rate_factor <= 100:
            raise OptionError(f"`rate_factor` must be above 0 and at most 100, not {self.rate_factor!r}.")
        if not 0 <= self.patience < float("inf"):
            raise OptionError(f"`patience` must be a number of seconds from 0, not {self.patience!r}.")
        from rudel.train.diloco.codec import make_codec
        from rudel.train.diloco.outer import make_outer

        make_outer(self.outer)
        make_codec(self.delta_codec)
        make_codec(self.merge_codec)

    def factor(self, replicas: int) -> float:
        """By what the learning rate is multiplied with this many replicas."""
        return min(2.0, replicas**0.5) if self.rate_factor is None else self.rate_factor
