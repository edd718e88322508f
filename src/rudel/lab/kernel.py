"""Calls of the Linux kernel that Python 3.11 has no functions for."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

NEW_MOUNTS, NEW_NAMES, NEW_IPC, NEW_PIDS, NEW_NETWORK = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
"""Kinds of namespaces (CLONE_NEW... in sched.h); a sum of them is several at once."""

BIND, RECURSIVE, FOLLOWING = 0x1000, 0x4000, 1 << 19
"""Flags of `mount`: MS_BIND, MS_REC and MS_SLAVE."""

_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29


def unshare(kinds: int) -> None:
    """Gives this process new namespaces; new process numbers begin with its next child.

    Raises:
        OSError: the kernel refuses.
    """
    _call("unshare", ctypes.c_int(kinds))


def enter(namespace: int, kind: int) -> None:
    """Moves this process into the namespace that the file descriptor is open on.

    Raises:
        OSError: the kernel refuses.
    """
    _call("setns", ctypes.c_int(namespace), ctypes.c_int(kind))


@contextlib.contextmanager
def inside(namespace: int, kind: int, own: str) -> Iterator[None]:
    """Has this process in a namespace while the block runs.

    Args:
        namespace: file descriptor of the namespace.
        kind: its kind.
        own: name of the kind under /proc/self/ns.
    """
    home = os.open(f"/proc/self/ns/{own}", os.O_RDONLY)
    try:
        enter(namespace, kind)
        try:
            yield
        finally:
            enter(home, kind)
    finally:
        os.close(home)


def mount(source: str | Path, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts a file system, or changes how one is mounted; see mount(2).

    Raises:
        OSError: the kernel refuses.
    """
    texts = [os.fsencode(text) for text in (source, target, kind, options)]
    _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3], what=f" {kind} {target}")


def unmount(target: str | Path) -> None:
    """Takes a file system and all that is mounted in it out of sight; it ends when nobody uses it any more.

    Raises:
        OSError: the kernel refuses.
    """
    _call("umount2", os.fsencode(target), ctypes.c_int(_MNT_DETACH))


def die_with_parent(signal: int) -> None:
    """Has the kernel send a signal to this process when the thread that made it ends, however it ends."""
    _call("prctl", ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal))


def wake_exactly() -> None:
    """Has the kernel wake this thread when its timers end, not up to 50 microseconds later."""
    _call("prctl", ctypes.c_int(_PR_SET_TIMERSLACK), ctypes.c_ulong(1))


def _call(name: str, *arguments: object, what: str = "") -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{what}: {os.strerror(number)}")
