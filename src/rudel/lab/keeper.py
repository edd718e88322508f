"""The process that keeps a lab: it makes everything, starts crashed nodes again, and removes everything.

Started by `rudel.lab.lab.Lab` with the settings as a JSON document, one line on standard input. One line on standard
output says that all nodes answer, `{}`, or why not, `{"error": "..."}`. The lab lives until SIGTERM, or until standard
input ends where the document says `"owned": true`; so it ends with whoever holds the other end, however that ends.

What the keeper makes dies with it. What does not (see `rudel.lab.leftovers`) it removes at its end.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator

from rudel.errors import LabError, RudelError
from rudel.lab import air, arm64, kernel, leftovers, names_file, node, quota, running_labs, tap
from rudel.lab.settings import ARM64, DESKTOP, Node, Settings, from_document

_INPUT, _OUTPUT = 0, 1
_REBOOT = 0.2  # seconds until a node that has crashed is started again
_ANSWER_WITHIN = 120.0  # seconds
_AGAIN = 0.02  # seconds between two looks whether a node answers


class Keeper:
    """A lab in the making, and up."""

    def __init__(self, settings: Settings, groups: quota.Groups, owned: bool) -> None:
        """Makes nothing yet.

        Args:
            settings: what the lab is to be.
            groups: where control groups are made.
            owned: whether the lab ends when standard input does.
        """
        self._settings = settings
        self._groups = groups
        self._wake = _woken_by_signals()
        self._watched = [self._wake, _INPUT] if owned else [self._wake]
        self._places: dict[str, node.Place] = {}
        self._processes: dict[int, Node] = {}
        self._air = 0
        self._stopped = False
        self._starts: dict[str, float] = {}

    def build(self, alive: socket.socket, control: socket.socket) -> None:
        """Makes the lab and waits until all nodes answer.

        Args:
            alive: the socket of this process, which nothing else may have open.
            control: the socket of its air.

        Raises:
            LabError: something cannot be made, or a node does not answer.
            OSError: the kernel refuses something.
        """
        settings = self._settings
        names_file.check_free(settings.hosts)
        tap.check_free(settings.subnet)
        _write_keys(settings)
        burst = air.segments_per_burst(settings.rate * 1e6)
        taps = [tap.open_tap(settings.tap)]
        tap.configure(settings.tap, settings.mac(0), f"{settings.desktop}/24", f"{settings.desktop_ipv6}/64", burst)
        for place, each in enumerate(settings.nodes, 1):
            network, device = _network(each, settings.mac(place), burst)
            taps.append(device)
            self._groups.create(settings.prefix, each.name, each.cpu)
            group = self._groups.member_file(settings.prefix, each.name)
            root = arm64.ROOT if each.arch == ARM64 else None
            self._places[each.name] = node.Place(network, group, root)
        self._air = _start_air(settings, taps, alive, control)
        control.close()
        for device in taps:
            os.close(device)
        names_file.add(settings.prefix, settings.names_file())
        for each in settings.nodes:
            self._start(each)
        self._wait_for_answers()
        self._record()

    def keep(self) -> None:
        """Starts nodes again that end, until the lab is to end.

        Raises:
            LabError: the air has ended.
        """
        while not self._stopped:
            due = min(self._starts.values(), default=None)
            self._look(None if due is None else max(0.0, due - time.monotonic()))
            for each in self._settings.nodes:
                if self._starts.get(each.name, float("inf")) <= time.monotonic() and not self._stopped:
                    self._start(each)
                    self._record()

    def remove(self) -> None:
        """Ends all processes, and removes what does not end with them."""
        for process in self._processes:
            os.kill(process, signal.SIGKILL)
        if self._air:
            os.kill(self._air, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        with running_labs.exclusive():
            leftovers.remove(self._settings.prefix, self._groups)

    def _start(self, each: Node) -> None:
        self._starts.pop(each.name, None)
        self._processes[node.start(self._settings, each, self._places[each.name])] = each

    def _record(self) -> None:
        processes = {each.name: process for process, each in self._processes.items()}
        running_labs.record(running_labs.Running(self._settings, os.getpid(), processes))

    def _look(self, timeout: float | None) -> None:
        """Waits until something has happened, and takes note of it."""
        ready, _, _ = select.select(self._watched, (), (), timeout)
        if self._wake in ready:
            received = os.read(self._wake, 1 << 10)
            self._stopped |= any(number != signal.SIGCHLD for number in received)
        if _INPUT in ready and not os.read(_INPUT, 1 << 10):
            self._stopped = True
        for ended in _ended_children():
            if ended == self._air:
                self._air = 0
                raise LabError("The network of the lab has stopped: start the lab again.")
            if each := self._processes.pop(ended, None):
                self._record()
                self._starts[each.name] = time.monotonic() + _REBOOT

    def _wait_for_answers(self) -> None:
        deadline = time.monotonic() + _ANSWER_WITHIN
        for each in self._settings.nodes:
            while not _answers(each.address):
                self._look(_AGAIN)
                if self._stopped:
                    raise LabError("The lab was stopped before all of its nodes answered: start it again.")
                if each.name in self._starts or time.monotonic() > deadline:
                    log = (self._settings.folder(each) / "log").read_text(errors="replace").strip().splitlines()
                    raise LabError(f"The node `{each.name}` does not answer, as its sshd says: {''.join(log[-1:])}.")


def main() -> None:
    """Keeps the lab that standard input describes."""
    document = json.loads(_first_line())
    try:
        problem = _keep(from_document(document["settings"]), document["owned"])
    except (RudelError, OSError) as error:
        problem = str(error) if isinstance(error, RudelError) else f"The lab cannot be built, as Linux says: {error}."
    if problem:
        _answer({"error": problem})
        sys.exit(2)


def _keep(settings: Settings, owned: bool) -> str | None:
    groups = quota.groups()
    with running_labs.exclusive():
        leftovers.sweep()
        alive, control = running_labs.begin(settings.prefix)
    keeper = Keeper(settings, groups, owned)
    try:
        keeper.build(alive, control)
        _answer({})
        keeper.keep()
    except LabError as error:
        return str(error)
    finally:
        keeper.remove()
    return None


def _answer(document: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(_OUTPUT, json.dumps(document).encode() + b"\n")


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(_INPUT, 1)):
        line += byte
    return line


def _woken_by_signals() -> int:
    """A descriptor from which the numbers of received signals can be read."""
    receive, send = os.pipe()
    for descriptor in (receive, send):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(send)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda number, frame: None)
    return receive


def _ended_children() -> Iterator[int]:
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitpid(-1, os.WNOHANG)[0]:
            yield ended


def _network(each: Node, mac: str, burst: int) -> tuple[int, int]:
    """A new network with one device in it: descriptors of both."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        kernel.unshare(kernel.NEW_NETWORK)
        try:
            network = os.open("/proc/self/ns/net", os.O_RDONLY)
            device = tap.open_tap(tap.DEVICE)
            tap.configure(tap.DEVICE, mac, f"{each.address}/24", f"{each.ipv6}/64", burst)
        finally:
            kernel.enter(own, kernel.NEW_NETWORK)
    finally:
        os.close(own)
    return network, device


def _start_air(settings: Settings, taps: list[int], alive: socket.socket, control: socket.socket) -> int:
    names = [DESKTOP, *settings.hosts]
    process = os.fork()
    if process == 0:
        try:
            alive.close()
            physics = air.Physics(settings.rate * 1e6, settings.latency / 1e3)
            air.run(air.Air(taps, names, physics), control)
        finally:
            os._exit(1)
    return process


def _write_keys(settings: Settings) -> None:
    """Makes the keys of the lab, and the files by which `ssh` finds its nodes."""
    node.make_key(settings.key, f"lab {settings.prefix}")
    if "SUDO_UID" in os.environ:  # the user who starts the lab is to log in to it
        os.chown(settings.key, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    known, ssh_config = "", ""
    for each in settings.nodes:
        node.prepare(settings, each)
        (settings.folder(each) / "log").write_bytes(b"")
        key = (settings.folder(each) / "host_key.pub").read_text().rsplit(" ", 1)[0]
        known += f"{each.name},{each.address},{each.ipv6} {key}\n"
        ssh_config += (
            f"Host {each.name}\n  HostName {each.address}\n"
            f'Host {each.name} {each.address} {each.ipv6}\n  User {node.USER}\n  IdentityFile "{settings.key}"\n'
            f'  IdentitiesOnly yes\n  UserKnownHostsFile "{settings.known_hosts}"\n  StrictHostKeyChecking yes\n'
        )
    settings.known_hosts.write_text(known)
    settings.ssh_config.write_text(ssh_config)


def _answers(address: str) -> bool:
    """Whether an SSH server greets at an address."""
    try:
        with socket.create_connection((address, 22), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


if __name__ == "__main__":
    os.umask(0o022)
    os.chdir("/")
    main()
