"""Links between hosts: when messages arrive.

All messages go over one medium, one after the other, as on a Wi-Fi channel, in the order in which they are ready; a
link of one's own to a switch is a medium that is never the bottleneck. A single connection is also limited by its own
link, and by what is lost on it: M. Mathis, J. Semke, J. Mahdavi, T. Ott, *The Macroscopic Behavior of the TCP
Congestion Avoidance Algorithm* (1997), whose constant for acknowledged segments, one by one, is the root of 3/2.

Limits: there is one medium, and both directions share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rudel.planning.forecast import Speed

_SEGMENT = 1448
"""Bytes of payload of a full TCP segment over Ethernet, with time stamps."""

_OVERHEAD = 1514 / _SEGMENT
"""Bytes on the air for a byte of payload, acknowledgements apart."""

_WINDOW = 10 * _SEGMENT
"""Bytes that an idle connection sends before it waits for an acknowledgement; then twice as many, and so on."""

TRIAL_BYTES = 2**16
"""Bytes that a training sends to each host to measure the link."""

Each = float | np.ndarray
"""A number for all hosts, or float64 (N,): one for each."""


@dataclass(frozen=True)
class Links:
    """The network between the hosts and the driver, which coordinates them.

    Args:
        rate: bytes of payload a second that the medium carries for all of them together.
        own: bytes of payload a second that a single connection carries.
        latency: seconds from the last bit sent to the message received, one way.
        loss: share of segments that are lost, below 1.
        trials: for how many hosts at the same time the trial message of a training was sent, and the seconds that it
            took, for each; by these, it chooses the length of rounds and what is sent.
        upwards: `rate` and `own` of what hosts send to the coordinator, where that is not as fast; None for the same.
    """

    rate: float
    own: Each
    latency: Each
    loss: float = 0.0
    trials: tuple[tuple[int, float], ...] = ()
    upwards: tuple[float, Each] | None = None

    def to(self, hosts: Sequence[Speed]) -> "Links":
        """Links to these hosts: each has its own, where all have been measured.

        >>> hosts = [Speed("a", 1.0, 0.0, 0.0, 0.0)]
        >>> Links(1e7, 1e6, latency=0.1).to(hosts).own
        1000000.0
        """
        own = [host.link for host in hosts if host.link is not None]
        if len(own) < len(hosts):
            return self
        down, up, latency = np.array([(link.rate, link.rate_up, link.latency) for link in own]).T
        return replace(self, own=down, latency=latency, upwards=(self.up.rate, up))

    @property
    def up(self) -> "Links":
        """The same for what hosts send to the coordinator."""
        if self.upwards is None:
            return self
        rate, own = self.upwards
        return replace(self, rate=rate, own=own, upwards=None)

    @property
    def connection(self) -> Each:
        """Bytes a second of a single connection, with what is lost on it.

        >>> round(Links(1e7, 1e7, latency=0.04, loss=0.01).connection)
        221679
        """
        most = np.minimum(self.own, self.rate)
        if self.loss <= 0:
            return most
        round_trip = np.where(np.asarray(self.latency) > 0, 2 * self.latency, 1e-3)
        return np.minimum(most, np.sqrt(1.5 / self.loss) * _SEGMENT / round_trip)

    @property
    def slowest(self) -> float:
        """Bytes a second of the slowest connection, in its slower direction.

        >>> Links(9e6, np.array([2e6, 4e6]), 0.0, upwards=(9e6, np.array([2e6, 1e6]))).slowest
        1000000.0
        """
        return float(min(np.min(self.connection), np.min(self.up.connection)))

    def delay(self, size: Each) -> Each:
        """Seconds from the last bit sent to the message received, with the waits of a connection that was idle.

        >>> Links(1e9, 1e9, latency=0.1).delay(np.array([1e3, 50e3])).round(3)
        array([0.1, 0.5])
        """
        waits = np.ceil(np.log2(np.asarray(size, float) / _WINDOW + 1)) - 1
        return self.latency * (1 + 2 * np.clip(waits, 0, None))

    def busy(self, sent: float) -> float:
        """Seconds that the medium takes to carry so many bytes, of which each direction has half."""
        return sent / 2 / self.rate + sent / 2 / self.up.rate

    def trial(self, hosts: int) -> float:
        """Bytes a second to so many hosts at the same time, as a training finds it when it looks."""
        if not self.trials:
            seconds = self.latency + self.delay(TRIAL_BYTES)
            seconds = seconds + np.maximum(hosts * TRIAL_BYTES / self.rate, TRIAL_BYTES / self.connection)
            return hosts * TRIAL_BYTES * float(np.mean(1 / seconds))
        counts, seconds = zip(*sorted(self.trials), strict=True)
        return hosts * TRIAL_BYTES / float(np.interp(hosts, counts, seconds))

    def arrivals(self, ready: np.ndarray, size: Each, free: float = 0.0) -> tuple[np.ndarray, float]:
        """When messages to hosts arrive; of `up`, those from them.

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
        if not len(ready):
            return ready, free
        sizes = np.broadcast_to(np.asarray(size, float), ready.shape)
        order = np.argsort(ready, kind="stable")
        taken = sizes[order] / self.rate
        so_far = np.cumsum(taken)
        ends = np.empty_like(taken)
        ends[order] = so_far + np.maximum.accumulate(np.maximum(ready[order], free) - (so_far - taken))
        return np.maximum(ends, ready + sizes / self.connection) + self.delay(sizes), float(ends[order[-1]])


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
