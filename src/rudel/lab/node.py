"""A node: the processes below one sshd, in namespaces of their own.

What a node has of its own: network, host name, process numbers, shared memory, /proc, /sys, /run, /dev/shm, /home/pi,
and /etc, in which there is a user `pi` with that home and a file `hosts` of the lab. Of these, only /home/pi is kept;
the others are forgotten when the node ends, as its processes are. All other folders are this machine's, and what is
written there is written on this machine. A node of another architecture has a whole root file system of its own, as a
layer over one that is kept elsewhere, with this machine's devices in it; there, `pi` may use sudo.
"""

import contextlib
import math
import os
import pwd
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rudel.errors import LabError
from rudel.lab import kernel
from rudel.lab.settings import Node, Settings

USER = "pi"
HOME = "/home/pi"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OWN_ID = 61000  # in no range that Linux distributions use

_SSHD_CONFIG = """\
Port 22
HostKey /run/rudel/host_key
PidFile none
UsePAM no
PasswordAuthentication no
StrictModes no
PrintMotd no
MaxStartups 100
MaxSessions 100
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Place:
    """The place where a node runs.

    Args:
        network: descriptor of its network namespace.
        group: file of the control group to join; see `rudel.lab.quota`.
        root: its root file system; None for this machine's own.
    """

    network: int
    group: Path
    root: Path | None


def home_of(settings: Settings, node: Node) -> Path:
    """The folder that a node has at /home/pi. It belongs to the node's user `pi`, whatever number that has."""
    return settings.folder(node) / "home"


def prepare(settings: Settings, node: Node) -> None:
    """Makes the folder of a node: its home, and the key by which it is known. Both are kept if they are there.

    The home's owner gets the number of this machine's user `pi` if it has one, else a number that nobody has.

    Raises:
        OSError: the folder cannot be written.
    """
    home = home_of(settings, node)
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    (ssh / "authorized_keys").write_bytes(settings.key.with_suffix(".pub").read_bytes())
    make_key(settings.folder(node) / "host_key", node.name)
    own = _user_id()
    known = (home.stat().st_uid, home.stat().st_gid) == own
    for path in (ssh, *ssh.iterdir(), home) if known else (*home.rglob("*"), home):
        os.chown(path, *own, follow_symlinks=False)


def make_key(path: Path, comment: str) -> None:
    """Makes a pair of SSH keys, if it is not there.

    Raises:
        LabError: ssh-keygen refuses.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"No key could be made at {path}, as ssh-keygen says: {done.stderr.strip()}.")


def start(settings: Settings, node: Node, place: Place) -> int:
    """Starts a node. Its processes end when its first one does, which ends when the caller's thread does.

    Args:
        settings: of the lab.
        node: which node.
        place: where it runs.

    Returns:
        The number of the first process, a child of the caller.

    Raises:
        LabError: it cannot be started.
    """
    reading, writing = os.pipe()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        kernel.unshare(kernel.NEW_PIDS)
        child = os.fork()
        if child == 0:
            _become(settings, node, place, writing)
        kernel.enter(own, kernel.NEW_PIDS)
    finally:
        os.close(own)
        os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(child, 0)
        raise LabError(f"The node `{node.name}` cannot be started: {problem}.")
    return child


def _user_id() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        return _OWN_ID, _OWN_ID
    return entry.pw_uid, entry.pw_gid


def _become(settings: Settings, node: Node, place: Place, tell: int) -> NoReturn:
    """Turns this process into the sshd of a node; writes a problem to a descriptor, closed on success."""
    try:
        kernel.die_with_parent(signal.SIGKILL)
        os.setsid()
        _connect_log(settings.folder(node) / "log")
        place.group.write_text("0")
        os.sched_setaffinity(0, _own_cores(settings, node))
        kernel.enter(place.network, kernel.NEW_NETWORK)
        kernel.unshare(kernel.NEW_NAMES | kernel.NEW_IPC | kernel.NEW_MOUNTS)
        socket.sethostname(node.name)
        _arrange_files(settings, node, place.root)
        _restore_signals()
        sshd = shutil.which("sshd", path=PATH) or "sshd"
        os.execve(sshd, [sshd, "-D", "-e", "-f", "/run/rudel/sshd_config"], {"PATH": PATH})
    except BaseException as error:
        problem = error.strerror if isinstance(error, OSError) and not error.filename else error
        os.write(tell, str(problem).encode())
    os._exit(1)


def _own_cores(settings: Settings, node: Node) -> set[int]:
    """The cores of this machine on which a node runs: as many as it needs, dealt to the nodes in turn.

    A quota alone lets the kernel crowd three nodes of 0.4 cores on one core for seconds, while another one idles.
    """
    cores = sorted(os.sched_getaffinity(0))
    first = settings.nodes.index(node)
    return {cores[(first + i) % len(cores)] for i in range(math.ceil(node.cpu))}


def _connect_log(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, target)


def _restore_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def _arrange_files(settings: Settings, node: Node, root: Path | None) -> None:
    host_key = (settings.folder(node) / "host_key").read_bytes()
    home = os.open(home_of(settings, node), os.O_PATH)
    owner = os.fstat(home)
    kernel.mount("none", "/", flags=kernel.FOLLOWING | kernel.RECURSIVE)
    if root is None:
        _own_home(home)
    else:
        _change_root(root, home)
    kernel.mount("proc", "/proc", "proc")
    _mount_sys()
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", options="mode=1777")
    kernel.mount("tmpfs", "/run", "tmpfs", options="mode=755")
    if root is None:
        _lay_over(Path("/etc"), Path("/run/rudel/etc"), Path("/etc"))
    for folder in ("/run/sshd", "/run/lock", "/run/rudel"):
        Path(folder).mkdir(exist_ok=True)
    Path("/run/lock").chmod(0o1777)
    _write(Path("/run/rudel/host_key"), host_key, 0o600)
    _write(Path("/run/rudel/sshd_config"), _SSHD_CONFIG.encode(), 0o644)
    _write_etc(settings, node, owner.st_uid, owner.st_gid)
    if root is not None:
        _write(Path("/etc/sudoers.d/pi"), f"{USER} ALL=(ALL) NOPASSWD: ALL\n".encode(), 0o440)
    os.chdir("/")


def _mount_sys() -> None:
    """Lets /sys show the devices of this network, with the control groups of the machine where they were."""
    groups = os.open("/sys/fs/cgroup", os.O_PATH)
    try:
        kernel.mount("sysfs", "/sys", "sysfs")
        kernel.mount(f"/proc/self/fd/{groups}", "/sys/fs/cgroup", flags=kernel.BIND | kernel.RECURSIVE)
    finally:
        os.close(groups)


def _lay_over(lower: Path, layer: Path, target: Path) -> None:
    """Mounts a folder with an empty layer over it, which takes all changes."""
    for name in ("changes", "work"):
        (layer / name).mkdir(parents=True)
    options = f"lowerdir={lower},upperdir={layer / 'changes'},workdir={layer / 'work'}"
    kernel.mount("overlay", target, "overlay", options=options)


def _write_etc(settings: Settings, node: Node, user: int, group: int) -> None:
    """Makes `pi` a user with these numbers, and the lab's names the only ones that can be looked up."""
    entries = {
        "passwd": (f"{USER}:x:{user}:{group}::{HOME}:/bin/bash", 0o644),
        "shadow": (f"{USER}:*:19000:0:99999:7:::", 0o600),
        "group": (f"{USER}:x:{group}:", 0o644),
    }
    for name, (line, mode) in entries.items():
        path = Path("/etc", name)
        _write(path, _with_entry(path.read_text(), line).encode(), mode)
    names = ["127.0.0.1 localhost", "::1 localhost", *settings.names_file()]
    _write(Path("/etc/hosts"), "".join(f"{line}\n" for line in names).encode(), 0o644)
    _write(Path("/etc/hostname"), f"{node.name}\n".encode(), 0o644)
    _write(Path("/etc/resolv.conf"), b"", 0o644)


def _with_entry(text: str, line: str) -> str:
    name = line.partition(":")[0]
    others = [other for other in text.splitlines() if other.partition(":")[0] != name]
    return "".join(f"{entry}\n" for entry in [*others, line])


def _own_home(home: int) -> None:
    """Puts a folder at /home/pi; where there is none, a new /home gets it and all that is in the old one."""
    if not Path(HOME).is_dir():
        old = os.open("/home", os.O_PATH)
        kernel.mount("tmpfs", "/home", "tmpfs", options="mode=755")
        for path in Path(f"/proc/self/fd/{old}").iterdir():
            if path.is_dir() and not path.is_symlink():
                Path("/home", path.name).mkdir()
                kernel.mount(path, Path("/home", path.name), flags=kernel.BIND | kernel.RECURSIVE)
        Path(HOME).mkdir()
    kernel.mount(f"/proc/self/fd/{home}", HOME, flags=kernel.BIND)


def _write(path: Path, content: bytes, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    path.chmod(mode)


def _change_root(root: Path, home: int) -> None:
    """Makes a layer over another root file system the root, with this machine's devices in it, and a folder as home."""
    kernel.mount("tmpfs", "/run", "tmpfs", options="mode=755")
    new = Path("/run/root")
    new.mkdir()
    _lay_over(root, Path("/run/layer"), new)
    for folder in ("dev", "sys"):
        kernel.mount(Path("/", folder), new / folder, flags=kernel.BIND | kernel.RECURSIVE)
    (new / HOME[1:]).mkdir(parents=True)
    kernel.mount(f"/proc/self/fd/{home}", new / HOME[1:], flags=kernel.BIND)
    os.chdir(new)
    subprocess.run(["pivot_root", ".", "."], check=True)
    kernel.unmount(".")
    os.chdir("/")
