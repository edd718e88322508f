"""The air: one half-duplex medium that all stations of a lab share, as computers on one Wi-Fi channel do.

Model. A frame is on the air for its length over the rate, only one frame is on the air at a time, and it arrives
`latency` after its last bit was sent. Stations that have something to send take turns, a burst each; a burst is what
the kernel hands over at once, at most BURST seconds of TCP segments and counted as the segments that it stands for.
A station that is cut off hears nothing and is heard by nobody, and its own network device does not notice.

Limits. No frame is lost on the air, so there are no repetitions and no collisions; headers of Wi-Fi itself are not
counted; a queue that overflows is the sender's, as with a real device.

The process waits in `select` until something is to be read or has arrived, so a silent air costs nothing. It runs with
real-time priority where it may, so that busy nodes do not make the air slow.
"""

import contextlib
import dataclasses
import gc
import json
import os
import select
import signal
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from rudel.lab import kernel

BURST = 0.0005
"""Seconds of air time that a burst may take."""

_FRAME = 1514
_LONGEST = 70_000  # bytes of the longest burst, and some more
_LONG = 3600.0
_AHEAD = 0.0005  # seconds of air time that are taken from the queues ahead, at most
_IN_TIME = 0.00015  # and at least, where a frame is to be delivered in between: one wait for both
_EARLY = 0.00003  # a frame that is due within this many seconds is delivered now rather than after another wait
_HEADER = 10  # bytes of the virtio_net_hdr before every frame
_BURST_FIELDS = struct.Struct("<4xHH")  # in it: payload of a segment, and where the transport header begins


@dataclass(frozen=True)
class Physics:
    """Properties of the simulated radio.

    Args:
        rate: bit/s.
        latency: seconds from the last bit sent to the frame received.
    """

    rate: float
    latency: float


def segments_per_burst(rate: float) -> int:
    """Number of full frames that fit into a burst.

    >>> [segments_per_burst(megabits * 1e6) for megabits in (5, 20, 100, 1000)]
    [1, 1, 4, 41]
    """
    return max(1, min(int(rate * BURST / (8 * _FRAME)), 44))


def on_the_air(frame: bytes) -> tuple[int, int]:
    """Bytes and frames that a frame of a device, or a burst of them, is on the air.

    >>> on_the_air(bytes(10) + bytes(60))
    (60, 1)
    >>> burst = bytearray(bytes(10) + bytes(14 + 20 + 20 + 2500))
    >>> burst[:10] = bytes([1, 1]) + struct.pack("<HHHH", 54, 1000, 34, 16)
    >>> burst[10 + 34 + 12] = 5 << 4  # a TCP header of 5 words
    >>> on_the_air(bytes(burst)) == (3 * 54 + 2500, 3)
    True
    """
    length = len(frame) - _HEADER
    if frame[1] == 0:
        return length, 1
    segment, transport = _BURST_FIELDS.unpack_from(frame)
    headers = transport + (frame[_HEADER + transport + 12] >> 4) * 4
    segments = -(-(length - headers) // segment)
    return length + (segments - 1) * headers, segments


class Air:
    """The medium, its stations, and what they have sent."""

    def __init__(self, taps: Sequence[int], names: Sequence[str], physics: Physics) -> None:
        """Makes an air that nothing has been sent on.

        Args:
            taps: descriptors of the devices; see `rudel.lab.tap`.
            names: of the stations, in the same order. The last byte of a station's Ethernet address is its place in it.
            physics: rate and latency.
        """
        self._physics = physics
        self._taps = list(taps)
        self._names = list(names)
        self._cut: set[int] = set()
        self._bytes = [0] * len(taps)
        self._frames = [0] * len(taps)
        self._flying: deque[tuple[float, Sequence[int], bytes]] = deque()  # when it arrives, at which stations, what
        self._free_at = 0.0
        self._last_arrival = 0.0
        self._turn = 0

    def carry(self, control: socket.socket) -> None:
        """Carries frames until the process ends.

        Args:
            control: a non-blocking datagram socket, on which requests come and are answered; see `answer`.
        """
        requests = control.fileno()
        everything, stations = [requests, *self._taps], {tap: place for place, tap in enumerate(self._taps)}
        while True:
            now = monotonic()
            self._deliver_until(now + _EARLY)
            free = self._free_at - now < _AHEAD
            wake_at = self._flying[0][0] if self._flying else now + _LONG
            if not free and wake_at > self._free_at - _IN_TIME:
                wake_at = self._free_at - _AHEAD
            ready, _, _ = select.select(everything if free else [requests], (), (), max(0.0, wake_at - now))
            if requests in ready:
                self._serve(control)
                ready.remove(requests)
            self._take(sorted((stations[tap] - self._turn) % len(self._taps) for tap in ready))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carries out a request, and describes the state after it.

        Args:
            request: any of `rate` (bit/s), `latency` (seconds), `cut` and `heal` (names of stations), and `reset`
                (whether to count from 0 again, after this answer).

        Returns:
            `rate`, `latency`, `cut`: names of the stations that are cut off, and `sent`: bytes and frames by station.
        """
        changes = {name: request[name] for name in ("rate", "latency") if name in request}
        self._physics = dataclasses.replace(self._physics, **changes)
        self._cut |= {self._names.index(name) for name in request.get("cut", [])}
        self._cut -= {self._names.index(name) for name in request.get("heal", [])}
        sent = {
            name: {"bytes": length, "frames": count}
            for name, length, count in zip(self._names, self._bytes, self._frames, strict=True)
        }
        if request.get("reset"):
            self._bytes = [0] * len(self._taps)
            self._frames = [0] * len(self._taps)
        cut = [self._names[place] for place in sorted(self._cut)]
        return dataclasses.asdict(self._physics) | {"cut": cut, "sent": sent}

    def _take(self, turns: list[int]) -> None:
        """Takes a burst each from stations that have something to send, as long as the air is free.

        Args:
            turns: how many stations have their turn before each of them, ascending.
        """
        now, first = monotonic(), self._turn
        for turn in turns:
            if self._free_at - now >= _AHEAD:
                return
            sender = (first + turn) % len(self._taps)
            self._turn = sender + 1
            try:
                frame = os.read(self._taps[sender], _LONGEST)
            except OSError:  # a device that is down
                continue
            if sender not in self._cut:
                self._send(sender, frame, now)

    def _send(self, sender: int, frame: bytes, now: float) -> None:
        length, count = on_the_air(frame)
        self._bytes[sender] += length
        self._frames[sender] += count
        self._free_at = max(self._free_at, now) + length * 8 / self._physics.rate
        self._last_arrival = max(self._last_arrival, self._free_at + self._physics.latency)
        self._flying.append((self._last_arrival, self._receivers(sender, frame), frame))

    def _deliver_until(self, moment: float) -> None:
        while self._flying and self._flying[0][0] <= moment:
            _, receivers, frame = self._flying.popleft()
            for place in receivers:
                if place not in self._cut:
                    with contextlib.suppress(OSError):
                        os.write(self._taps[place], frame)

    def _receivers(self, sender: int, frame: bytes) -> Sequence[int]:
        receiver = frame[_HEADER + 5]  # the last byte of the address that it is for
        if frame[_HEADER] & 1 or receiver >= len(self._taps):
            return [place for place in range(len(self._taps)) if place != sender]
        return (receiver,)

    def _serve(self, control: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a client that has gone away
            request, sender = control.recvfrom(1 << 16)
            control.sendto(json.dumps(self.answer(json.loads(request))).encode(), sender)


def run(air: Air, control: socket.socket) -> None:
    """Carries frames in a process of its own: with priority, and no longer than its parent lives."""
    kernel.die_with_parent(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    kernel.wake_exactly()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
    gc.collect()
    gc.freeze()
    gc.disable()
    air.carry(control)
