"""The air is as slow as it was ordered, for all together."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from rudel.errors import LabError
from rudel.lab import Lab

PYTHON = "/usr/bin/python3"
_SENDER = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
input()
connection.sendall(bytes(int(sys.argv[3])))
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
"""


def round_trip(lab: Lab, name: str) -> float:
    """The fastest of some connections to a node's sshd, in ms: what a packet there and one back take."""
    address = next(node.address for node in lab.settings.nodes if node.name == name)
    times = []
    for _ in range(5):
        began = time.monotonic()
        socket.create_connection((address, 22), timeout=10).close()
        times.append(time.monotonic() - began)
    return min(times) * 1e3


def seconds_to_send(lab: Lab, names: Sequence[str], length: int, desktop: str = "") -> float:
    """Has nodes send bytes to an address of the desktop, all at once."""
    desktop = desktop or lab.desktop
    family = socket.AF_INET6 if ":" in desktop else socket.AF_INET
    with socket.create_server((desktop, 0), family=family) as server:
        port = str(server.getsockname()[1])
        senders = [
            subprocess.Popen(
                lab.command(name, PYTHON, "-c", _SENDER, desktop, port, str(length)), stdin=subprocess.PIPE
            )
            for name in names
        ]
        connections = [server.accept()[0] for _ in names]
        for sender in senders:
            assert sender.stdin is not None
            sender.stdin.write(b"\n")
            sender.stdin.close()
        began = time.monotonic()
        readers = [threading.Thread(target=_read, args=(connection, length)) for connection in connections]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        seconds = time.monotonic() - began
    assert [sender.wait() for sender in senders] == [0] * len(names)
    return seconds


def _read(connection: socket.socket, length: int) -> None:
    with connection:
        while length > 0:
            part = len(connection.recv(1 << 16))
            assert part
            length -= part


@contextmanager
def changed(lab: Lab, rate: float = 100.0, latency: float = 1.5) -> Iterator[None]:
    lab.set_rate(rate)
    lab.set_latency(latency)
    yield
    lab.set_rate(100.0)
    lab.set_latency(1.5)


@pytest.mark.parametrize("latency", [0.0, 10.0, 40.0])
def test_a_packet_takes_the_latency_each_way(lab: Lab, latency: float) -> None:
    with changed(lab, latency=latency):
        assert 2 * latency <= round_trip(lab, lab.hosts[0]) <= 2 * latency + 8


@pytest.mark.parametrize(("rate", "length"), [(5.0, 300_000), (20.0, 1_000_000), (100.0, 4_000_000)])
def test_bytes_take_their_time_on_the_air(lab: Lab, rate: float, length: int) -> None:
    with changed(lab, rate=rate):
        seconds = seconds_to_send(lab, lab.hosts[:1], length)
    assert 0.5 * rate <= length * 8 / 1e6 / seconds <= 1.05 * rate


def test_nodes_share_the_air(lab: Lab) -> None:
    with changed(lab, rate=20.0):
        seconds = seconds_to_send(lab, lab.hosts, 700_000)
    assert 0.5 * 20.0 <= 2 * 700_000 * 8 / 1e6 / seconds <= 1.05 * 20.0


def test_what_is_sent_is_counted_at_once(lab: Lab) -> None:
    first, second = lab.hosts
    lab.stats(reset=True)
    seconds_to_send(lab, [first], 1_000_000)
    sent = lab.stats()
    assert 1_000_000 < sent[first].bytes < 1_080_000
    assert 1_000_000 / 1514 < sent[first].frames < 900
    assert sent["desktop"].bytes < 150_000
    assert sent[second].bytes < 5_000
    lab.stats(reset=True)
    assert lab.stats()[first].bytes < 5_000


def test_ipv6_takes_its_time_on_the_air_and_is_counted(lab: Lab) -> None:
    first, second = lab.hosts
    lab.stats(reset=True)
    with changed(lab, rate=20.0):
        seconds = seconds_to_send(lab, [first], 1_000_000, lab.settings.desktop_ipv6)
    assert 0.5 * 20.0 <= 8 * 1_000_000 / 1e6 / seconds <= 1.05 * 20.0
    sent = lab.stats()
    assert 1_000_000 * (1 + 74 / 1440) < sent[first].bytes < 1_090_000
    assert 1_000_000 / 1514 < sent[first].frames < 900
    assert sent[second].bytes < 5_000


def test_a_silent_air_carries_nothing(lab: Lab) -> None:
    lab.stats(reset=True)
    round_trip(lab, lab.hosts[0])
    assert sum(each.frames for each in lab.stats().values()) < 60


def test_an_air_that_cannot_be_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="cannot carry 0 Mbit/s"):
        lab.set_rate(0)
    with pytest.raises(LabError, match="cannot be -1 ms"):
        lab.set_latency(-1)
