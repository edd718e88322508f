"""Links between hosts: when messages arrive.

All messages go over one medium, one after the other, as on a Wi-Fi channel, in the order in which they are ready; a
link of one's own to a switch is a medium that is never the bottleneck. A single connection is also limited by its own
link, and by what is lost on it: M. Mathis, J. Semke, J. Mahdavi, T. Ott, *The Macroscopic Behavior of the TCP
Congestion Avoidance Algorithm* (1997), whose constant for acknowledged segments, one by one, is the root of 3/2.
"""

import math
from dataclasses import dataclass

import numpy as np

_SEGMENT = 1448
"""Bytes of payload of a full TCP segment over Ethernet, with time stamps."""

_OVERHEAD = 1514 / _SEGMENT
"""Bytes on the air for a byte of payload, acknowledgements apart."""

_WINDOW = 10 * _SEGMENT
"""Bytes that an idle connection sends before it waits for an acknowledgement; then twice as many, and so on."""

TRIAL_BYTES = 2**16
"""What a training sends to each host to see how fast the link is."""


@dataclass(frozen=True)
class Links:
    """What lies between the hosts and the computer that coordinates them.

    Args:
        rate: bytes of payload a second that the medium carries for all of them together.
        own: bytes of payload a second that a single connection carries.
        latency: seconds from the last bit sent to the message received, one way.
        loss: share of segments that are lost, below 1.
        trials: for how many hosts at the same time the trial message of a training was sent, and the seconds that it
            took, for each; by these, it chooses the length of rounds and what is sent.
    """

    rate: float
    own: float
    latency: float
    loss: float = 0.0
    trials: tuple[tuple[int, float], ...] = ()

    @property
    def connection(self) -> float:
        """Bytes a second of a single connection, with what is lost on it.

        >>> round(Links(1e7, 1e7, latency=0.04, loss=0.01).connection)
        221679
        """
        if self.loss <= 0:
            return min(self.own, self.rate)
        return min(self.own, self.rate, math.sqrt(1.5 / self.loss) * _SEGMENT / (2 * self.latency or 1e-3))

    def delay(self, size: np.ndarray | float) -> np.ndarray | float:
        """Seconds from the last bit sent to the message received, with the waits of a connection that was idle.

        >>> Links(1e9, 1e9, latency=0.1).delay(np.array([1e3, 50e3])).round(3)
        array([0.1, 0.5])
        """
        waits = np.ceil(np.log2(np.asarray(size, float) / _WINDOW + 1)) - 1
        return self.latency * (1 + 2 * np.clip(waits, 0, None) * (self.latency > 0))

    def trial(self, hosts: int) -> float:
        """Bytes a second to so many hosts at the same time, as a training finds it when it looks."""
        if not self.trials:
            seconds = 2 * self.latency + float(self.delay(TRIAL_BYTES)) - self.latency
            return hosts * TRIAL_BYTES / (seconds + max(hosts * TRIAL_BYTES / self.rate, TRIAL_BYTES / self.connection))
        counts, seconds = zip(*sorted(self.trials), strict=True)
        return hosts * TRIAL_BYTES / float(np.interp(hosts, counts, seconds))

    def arrivals(self, ready: np.ndarray, size: np.ndarray | float, free: float = 0.0) -> tuple[np.ndarray, float]:
        """When messages arrive.

        Args:
            ready: seconds, float64 (N,): when each is handed over.
            size: bytes, of each or of all.
            free: seconds: from when on the medium has nothing older to carry.

        Returns:
            Seconds, float64 (N,), and from when on the medium is free again.

        >>> links = Links(rate=100.0, own=100.0, latency=0.5)
        >>> links.arrivals(np.array([0.0, 0.0, 9.0]), 100.0)
        (array([ 1.5,  2.5, 10.5]), 10.0)
        """
        sizes = np.broadcast_to(np.asarray(size, float), ready.shape)
        order = np.argsort(ready, kind="stable")
        taken = sizes[order] / self.rate
        so_far = np.cumsum(taken)
        ends = so_far + np.maximum.accumulate(np.maximum(ready[order], free) - (so_far - taken))
        arrived = np.empty_like(ends)
        arrived[order] = np.maximum(ends, ready[order] + sizes[order] / self.connection) + self.delay(sizes[order])
        return arrived, float(ends[-1]) if len(ends) else free


def links_of(bits_per_second: float, latency: float, loss: float = 0.0) -> Links:
    """A medium of that many bits a second, headers included, as the makers of networks count them.

    Args:
        bits_per_second: on the air.
        latency: seconds, one way.
        loss: share of segments that are lost, and sent again.

    >>> round(links_of(1e6, 0.0).rate), round(links_of(1e6, 0.0, loss=0.5).rate)
    (119551, 59775)
    """
    payload = (1 - loss) * bits_per_second / 8 / _OVERHEAD
    return Links(payload, payload, latency, loss)
