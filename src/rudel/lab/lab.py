"""A lab in Python: `with Lab(nodes=2) as lab: ...`."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from rudel.errors import LabError
from rudel.lab import arm64, control, leftovers, running_labs
from rudel.lab.control import Traffic
from rudel.lab.requirements import check_machine, check_user
from rudel.lab.running_labs import Running
from rudel.lab.settings import ARM64, NATIVE, Settings, settings

_STOP_WITHIN = 30.0  # seconds
_NOTICED = 1.0  # seconds until an interrupt is noticed that came when Python was just about to wait


@dataclass(frozen=True)
class _Keeper:
    """The process of a lab that this process has begun; see `rudel.lab.keeper`."""

    process: "subprocess.Popen[bytes]"
    orders: IO[bytes]
    answers: IO[bytes]

    def line(self) -> bytes:
        """Waits for its next line; empty if it has ended."""
        while not select.select([self.answers], (), (), _NOTICED)[0]:
            pass
        return self.answers.readline()

    def answer(self) -> str | None:
        """Waits for its next line: a problem, or None."""
        said = self.line()
        return json.loads(said).get("error") if said else "The lab's keeper was killed: start it again."

    def end(self) -> None:
        """Ends it, and the lab with it; waits until that is done."""
        self.orders.close()
        try:
            self.process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()
        if self.process.returncode < 0:
            with running_labs.exclusive():
                leftovers.sweep()

    def let_go(self) -> None:
        """Lets it go on without this process."""
        self.orders.close()
        self.answers.close()
        self.process.returncode = 0  # it is nobody's to wait for


class Lab:
    """A pretend Wi-Fi cluster: nodes with an sshd each, and this machine as the desktop, on one shared medium.

    Used as a context manager, the lab is up inside the block, and ends with this process however that ends. The
    other way is `start` and `stop`.

    Args:
        nodes: how many.
        cpu: cores that a node may use; one number for all, or one for each.
        rate: Mbit/s of the air.
        latency: ms from the last bit sent to the frame received.
        prefix: what the names of the nodes begin with; several labs need different ones.
        subnet: first three numbers of all addresses; several labs need different ones.
        state: folder of keys and homes; /var/lib/rudel-lab/PREFIX if None. What is in the homes stays there.
        arch: "native" or this machine's own, or "arm64"; one for all, or one for each.

    Raises:
        LabError: such a lab cannot be.
    """

    def __init__(
        self,
        nodes: int = 4,
        cpu: float | Sequence[float] = 0.4,
        rate: float = 100.0,
        latency: float = 1.5,
        prefix: str = "raspi",
        subnet: str = "10.77.0",
        state: str | Path | None = None,
        arch: str | Sequence[str] = NATIVE,
    ) -> None:
        self.settings = settings(nodes, cpu, rate, latency, prefix, subnet, state, arch)
        self._keeper: _Keeper | None = None

    @classmethod
    def attach(cls, prefix: str | None = None) -> "Lab":
        """A lab that is up, begun by somebody else.

        Args:
            prefix: its name; None for the only one.

        Raises:
            LabError: it is not up, or several are.
        """
        check_user()
        return cls._of(running_labs.only() if prefix is None else running_labs.find(prefix))

    @classmethod
    def with_node(cls, name: str) -> "Lab":
        """The lab that is up and has a node of this name.

        Raises:
            LabError: there is none.
        """
        check_user()
        return cls._of(running_labs.with_node(name))

    @classmethod
    def _of(cls, found: Running) -> "Lab":
        lab = cls.__new__(cls)
        lab.settings = found.settings
        lab._keeper = None
        return lab

    @property
    def hosts(self) -> list[str]:
        """Names of the nodes."""
        return list(self.settings.hosts)

    @property
    def desktop(self) -> str:
        """This machine's address in the lab."""
        return self.settings.desktop

    @property
    def ssh_config(self) -> Path:
        """The file for `ssh -F` and `--ssh-config`."""
        return self.settings.ssh_config

    @property
    def known_hosts(self) -> Path:
        """The nodes' host keys."""
        return self.settings.known_hosts

    @property
    def key(self) -> Path:
        """The private key that opens all nodes."""
        return self.settings.key

    def start(self, owned: bool = True, report: Callable[[str], None] = lambda line: None) -> None:
        """Starts the lab; all nodes answer when this returns.

        Args:
            owned: whether it ends with this process. If not, only `stop` ends it.
            report: takes a line for a person, before what takes minutes.

        Raises:
            LabError: it cannot be started.
        """
        check_machine()
        if any(node.arch == ARM64 for node in self.settings.nodes):
            arm64.make_ready(report)
        keeper = _start_keeper(self.settings, owned)
        try:
            problem = keeper.answer()
        except BaseException:
            keeper.end()
            raise
        if problem is not None:
            keeper.end()
            raise LabError(problem)
        if owned:
            self._keeper = keeper
        else:
            keeper.let_go()

    def wait(self) -> None:
        """Waits until the lab is down, whoever stops it.

        Raises:
            LabError: it has ended by itself.
        """
        if self._keeper is not None:
            said = self._keeper.line()
            self.stop()
            if said:
                raise LabError(json.loads(said)["error"])

    def stop(self) -> None:
        """Ends the lab: nothing of it is left but its state folder.

        Raises:
            LabError: it does not end.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            stop(self.settings.prefix)
        else:
            keeper.end()

    def cut(self, name: str) -> None:
        """Cuts a node off: it hears nothing and is not heard, nothing is closed, and no host is notified."""
        control.cut(self._running(), name)

    def heal(self, name: str) -> None:
        """Lets a node that was cut off be heard again."""
        control.heal(self._running(), name)

    def crash(self, name: str) -> None:
        """Kills all processes of a node, as `kill -9` does; they are gone when this returns. It then starts again."""
        control.crash(self._running(), name)

    def stats(self, reset: bool = False) -> dict[str, Traffic]:
        """Traffic that every node and `desktop` have sent.

        Args:
            reset: whether to count from 0 again, from this moment on.
        """
        return control.traffic(self.settings.prefix, reset)

    def set_rate(self, rate: float) -> None:
        """Changes the rate of the air, in Mbit/s."""
        control.change_air(self._running(), rate=rate)

    def set_latency(self, latency: float) -> None:
        """Changes the latency of the air, in ms."""
        control.change_air(self._running(), latency=latency)

    def set_cpu(self, name: str, share: float) -> None:
        """Changes how many cores a node may use, as for one that throttles itself when it gets too hot."""
        control.change_cpu(self._running(), name, share)

    def command(self, name: str, *arguments: str, root: bool = False) -> list[str]:
        """A command for `subprocess` that runs another one in a node, as `pi` or as root, within its quota.

        If what runs it is killed, the process in the node is too.
        """
        return control.command(self._running(), name, arguments, root)

    def run(
        self, name: str, *arguments: str, root: bool = False, timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a node, as `pi` or as root, within its quota.

        Args:
            name: of the node.
            arguments: the command and its arguments.
            root: whether it runs as root.
            timeout: seconds.

        Returns:
            Exit status and output, whatever they are.

        Raises:
            LabError: there is no such node.
            subprocess.TimeoutExpired: it took longer.
        """
        return subprocess.run(
            self.command(name, *arguments, root=root), capture_output=True, text=True, check=False, timeout=timeout
        )

    def __enter__(self) -> "Lab":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Running:
        return running_labs.find(self.settings.prefix)


def stop(prefix: str | None = None) -> list[str]:
    """Ends a lab, also one that is not this process's, and removes what killed ones have left.

    Args:
        prefix: the name of the lab; None for the only one.

    Returns:
        Names of the labs that were ended, or of which something was removed.

    Raises:
        LabError: it does not end; or none is given and several are up.
    """
    check_user()
    ended = []
    if running_labs.labs() if prefix is None else prefix in running_labs.labs():
        lab = running_labs.only() if prefix is None else running_labs.find(prefix)
        _end(lab)
        ended = [lab.name]
    with running_labs.exclusive():
        return [*ended, *leftovers.sweep()]


def _start_keeper(settings: Settings, owned: bool) -> _Keeper:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rudel.lab.keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if owned else subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps({"settings": settings.document(), "owned": owned}).encode() + b"\n")
    return _Keeper(process, process.stdin, process.stdout)


def _end(lab: Running) -> None:
    with contextlib.suppress(ProcessLookupError):
        keeper = os.pidfd_open(lab.keeper)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(keeper, number)
                if select.select([keeper], (), (), _STOP_WITHIN)[0]:
                    break
        finally:
            os.close(keeper)
