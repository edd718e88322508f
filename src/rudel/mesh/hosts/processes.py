"""`Processes`: number, count and coordinator of the processes of a training that spans several hosts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as one of them knows them.

    Args:
        number: of this process, from 0; process 0 keeps the run and shows what happens.
        count: of all processes.
        coordinator: `host:port` at which process 0 lets the others find each other; IPv6 in brackets. None where JAX
            finds it out by itself.
        source: what says so, such as `TF_CONFIG`.
        address: the host of this process as the others reach it; None if that is not known.
        device: which of the GPUs of this host belongs to this process; None for all.

    >>> Processes(2, 4, "10.0.0.1:2222", "TF_CONFIG").description
    '4 processes, this is number 2: TF_CONFIG says so'
    """

    number: int
    count: int
    coordinator: str | None
    source: str
    address: str | None = None
    device: int | None = None

    @property
    def description(self) -> str:
        """Describes the processes and how they are known, in a sentence without a full stop."""
        return f"{self.count} processes, this is number {self.number}: {self.source} says so"
