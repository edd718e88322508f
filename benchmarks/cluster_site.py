"""Where a cluster benchmark takes place: in a lab made for it, or on computers that there are.

Everything on the nodes goes through the system's `ssh`. What is started there ends when its connection does (see
`contestants/cluster_tied.py`), so nothing stays behind when a benchmark is stopped, however that happens.
"""

import contextlib
import io
import json
import queue
import shlex
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import BenchmarkError

from rudel.cluster.hosts import REMOTE_PYTHON, Host, parse_hosts

FOLDER = "rudel-benchmark"
"""Where the benchmark keeps its files on a node, below the home folder."""

TIED = "cluster_tied.py"

_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "LogLevel=ERROR")


@dataclass(frozen=True)
class Air:
    """The network of a lab.

    Args:
        rate: Mbit/s, shared by all.
        latency: ms one way.
    """

    rate: float = 100.0
    latency: float = 1.5


def _nothing() -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Site:
    """Nodes to measure on.

    Args:
        hosts: as Rudel knows them.
        ssh_config: what `ssh -F` takes; None for the user's own.
        lab: the lab that they are in, if they are in one.
        begin: called when all is ready, before the clock of a rival runs.
        end: called when it has stopped.
    """

    hosts: Sequence[Host]
    ssh_config: Path | None
    lab: Any = None
    begin: Callable[[], None] = _nothing
    end: Callable[[], None] = _nothing

    def command(self, node: int, *words: str) -> list[str]:
        """A command for `subprocess` that runs another one on a node, in the benchmark's folder there."""
        host = self.hosts[node]
        config = ["-F", str(self.ssh_config)] if self.ssh_config else []
        port = ["-p", str(host.port)] if host.port else []
        user = ["-l", host.user] if host.user else []
        inside = f"mkdir -p {FOLDER} && cd {FOLDER} && exec {shlex.join(words)}"
        return ["ssh", *config, *_SSH, *port, *user, host.name, inside]

    def python(self, node: int) -> str:
        """The interpreter on a node that has Rudel, seen from the benchmark's folder there."""
        given = (self.hosts[node].python or REMOTE_PYTHON).removeprefix("~/")
        return given if "/" not in given or given.startswith("/") else f"../{given}"

    def call(self, node: int, *words: str, given: bytes | None = None, seconds: float = 120.0) -> bytes:
        """Runs a command on a node and returns what it wrote.

        Raises:
            BenchmarkError: it failed, or did not end in time.
        """
        where = self.hosts[node]
        try:
            done = subprocess.run(
                self.command(node, *words), input=given, capture_output=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"`{words[0]}` on {where} did not end within {seconds:g} s.") from error
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise BenchmarkError(f"`{words[0]}` on {where} ended with code {done.returncode} ({last[0]}).")
        return done.stdout

    def send(self, node: int, files: Mapping[str, bytes]) -> None:
        """Puts files into the benchmark's folder on a node."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(content), int(time.time())
                archive.addfile(entry, io.BytesIO(content))
        self.call(node, "tar", "-xf", "-", given=packed.getvalue())

    def send_once(self, node: int, name: str, content: str, files: Callable[[], Mapping[str, bytes]]) -> None:
        """Puts files on a node unless a mark of this name there says that it has this content already."""
        mark = f"{name}.content"
        with contextlib.suppress(BenchmarkError):
            if self.call(node, "cat", mark).decode() == content:
                return
        self.send(node, {**files(), mark: content.encode()})

    def address(self, node: int) -> str:
        """The IPv4 address of a node."""
        host = self.hosts[node]
        config = ["-F", str(self.ssh_config)] if self.ssh_config else []
        said = subprocess.run(["ssh", *config, "-G", host.name], capture_output=True, text=True, check=True).stdout
        name = next(line.split()[1] for line in said.splitlines() if line.startswith("hostname "))
        return socket.gethostbyname(name)

    def desktop(self) -> str:
        """The address of this computer as the nodes see it."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.address(0), 22))
            return probe.getsockname()[0]

    def on_air(self) -> int | None:
        """Bytes of all frames on the air so far; None where nobody counts them."""
        return None if self.lab is None else sum(sent.bytes for sent in self.lab.stats().values())

    @contextlib.contextmanager
    def hosts_file(self, nodes: int) -> Iterator[Path]:
        """A hosts file with the first so many nodes."""
        with tempfile.NamedTemporaryFile("w", prefix="hosts-", suffix=".txt") as file:
            for host in self.hosts[:nodes]:
                file.write(f"{host}{f' python={host.python}' if host.python else ''}\n")
            file.flush()
            yield Path(file.name)


@contextlib.contextmanager
def lab_site(cpu: Sequence[float], air: Air, python: str | None, prefix: str, subnet: str) -> Iterator[Site]:
    """A lab for as long as the block lasts; nothing runs on its nodes before, and nothing after.

    Args:
        cpu: cores of each node.
        air: the network.
        python: the interpreter on the nodes that has Rudel.
        prefix: what names of nodes begin with.
        subnet: first three numbers of all addresses.
    """
    from rudel.lab import Lab

    with Lab(len(cpu), list(cpu), air.rate, air.latency, prefix, subnet) as lab:
        yield Site([Host(name, "pi", python=python) for name in lab.hosts], lab.ssh_config, lab)


def own_site(hosts: str, ssh_config: Path | None) -> Site:
    """Computers that there are, from a hosts file."""
    return Site(parse_hosts(hosts), ssh_config)


@dataclass
class Program:
    """A program that runs on a node and talks in lines of JSON.

    Args:
        name: for messages.
        process: the `ssh` that holds it.
    """

    name: str
    process: subprocess.Popen[bytes]
    errors: list[str] = field(default_factory=list)
    _said: "queue.SimpleQueue[dict[str, Any] | None]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._listen_to_errors, daemon=True).start()

    def wait_for(self, event: str, seconds: float, may_fail: bool = False) -> dict[str, Any]:
        """The next document of this event.

        Args:
            event: its name.
            seconds: to wait at most.
            may_fail: whether the program may end with another code than 0, which its `exited` tells.

        Raises:
            BenchmarkError: the program ended, or was silent for too long.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                said = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise BenchmarkError(
                    f"{self.name} said nothing of `{event}` within {seconds:g} s ({self.last_error})."
                ) from None
            if said is None:
                raise BenchmarkError(f"{self.name} ended before `{event}` ({self.last_error}).")
            if said.get("event") == "exited" and said["code"] and not may_fail:
                raise BenchmarkError(f"{self.name} ended with code {said['code']} ({self.last_error}).")
            if said.get("event") == event:
                return said

    def tell(self, line: str) -> None:
        """Sends it a line."""
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def end(self) -> None:
        """Closes the connection, which ends the program."""
        with contextlib.suppress(OSError):
            assert self.process.stdin
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def last_error(self) -> str:
        """What it last wrote on standard error."""
        lines = [line for line in self.errors if line.strip()]
        return lines[-1].strip() if lines else "it said nothing else"

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                said = None
            if isinstance(said, dict):
                self._said.put(said)
            else:
                self.errors.append(line.decode(errors="replace"))
        self._said.put(None)

    def _listen_to_errors(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.errors.append(line.decode(errors="replace"))


def start_on_node(site: Site, node: int, name: str, python: str, *words: str) -> Program:
    """Starts a program on a node; it ends when its connection does.

    Args:
        site: where.
        node: which node.
        name: for messages.
        python: an interpreter there that holds the program; any will do.
        words: the command.
    """
    return Program(f"{name} on {site.hosts[node]}", _popen(site.command(node, python, TIED, *words)))


def start_here(
    name: str, *words: str, environment: Mapping[str, str] | None = None, folder: str | None = None
) -> Program:
    """Starts a program on this computer; it shall end when its standard input does."""
    return Program(f"{name} on this computer", _popen(list(words), environment, folder))


def _popen(
    words: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None
) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=folder)
