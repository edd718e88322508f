"""Processes that tests start, which end with them and whose pipes are closed, and interrupts of the one they run in."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

LONG = 240.0
"""Seconds to wait for what takes moments: so long that no slow or busy computer needs them, and a hang still ends."""


def until(reached: Callable[[], Any], seconds: float = LONG) -> Any:
    """Waits until this is true; returns what it then is."""
    deadline = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < deadline, "this did not happen"
        time.sleep(0.02)
    return found


def answers(address: str, port: int) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def started(command: Sequence[Any], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that talks text; it is killed at the end of the block, if it has not ended by then."""
    with subprocess.Popen(command, text=True, **how) as process:
        try:
            yield process
        finally:
            process.kill()


def set_up_by_rudel(lab: Any, hosts: Sequence[str], *options: str) -> None:
    """Sets up hosts of a simulated network by the command line, without an index of packages."""
    command = [str(Path(sys.executable).with_name("rudel")), "hosts", "setup", ",".join(hosts), "--offline", *options]
    done = subprocess.run([*command, "--ssh-config", str(lab.ssh_config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def interrupted(when: threading.Event) -> Iterator[None]:
    """Inside the block, the main thread gets an interrupt as soon as this is set, and the block ends by it."""

    def interrupt() -> None:
        when.wait(LONG)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()
