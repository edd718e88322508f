"""Ctrl-C that is not lost, and SIGTERM that ends a command as Ctrl-C does.

Python raises KeyboardInterrupt wherever the main thread happens to be. Where that is a callback of the garbage
collector (JAX has one), or the end of an object, nobody can catch it: Python reports it and goes on.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_SOON = 0.02
"""Seconds until a lost interrupt comes again; one that is lost once more comes once more."""

TERMINATED = 128 + signal.SIGTERM
"""The exit code that shells expect of what SIGTERM has ended."""

_terminations: list[int] = []


def end_on_sigterm() -> None:
    """From now on, SIGTERM does what Ctrl-C does, so that what was begun is ended as well; see `terminated`.

    A signal that is ignored when the command starts stays ignored, SIGINT too, as is the custom for what a shell starts
    with `nohup`, or with `&` in a script; SIGTERM is what ends such a command.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _terminate)


def terminated() -> bool:
    """Whether it was SIGTERM that interrupted."""
    return bool(_terminations)


def _terminate(number: int, frame: FrameType | None) -> None:
    _terminations.append(number)
    interrupt = signal.getsignal(signal.SIGINT)  # of an event loop, which ends its tasks first
    if not callable(interrupt):
        interrupt = signal.default_int_handler
    interrupt(signal.SIGINT, frame)


@contextlib.contextmanager
def ending_at_once(opened: contextlib.ExitStack) -> Iterator[None]:
    """In the block, Ctrl-C and SIGTERM close what is open, print one line and end the process.

    For servers that start: an interrupt that is raised within an import or a compilation may be lost there, or stop
    native code half-way. A signal that is ignored stays ignored.

    Args:
        opened: what is open; may be empty at first.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        try:
            opened.close()
            os.write(2, f"{ending(number == signal.SIGTERM)}\n".encode())
        finally:
            leave(128 + number)

    both = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in both.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ending(terminated: bool) -> str:
    """How a process says that it was ended by SIGTERM, or by Ctrl-C."""
    return "Ended by SIGTERM." if terminated else "Interrupted."


def leave(code: int) -> NoReturn:
    """Ends the process without taking Python down, in which threads of native code, such as JAX's, may crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed, or interrupted while it writes
            stream.flush()
    os._exit(code)


def insist_on_interrupts() -> None:
    """From now on, an interrupt that was raised where nobody could catch it is raised again in the main thread.

    Several that are lost before it comes again are one: a second Ctrl-C would break off what the first one ends.
    """
    usual, pending = sys.unraisablehook, False

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        nonlocal pending
        if not issubclass(unraisable.exc_type, KeyboardInterrupt) or sys.is_finalizing():
            usual(unraisable)
        elif not pending:
            again = threading.Timer(_SOON, interrupt)
            again.daemon = True
            pending = True
            with contextlib.suppress(RuntimeError):  # no threads any more: the process ends anyway
                again.start()

    def interrupt() -> None:
        nonlocal pending
        pending = False  # first: this one may be lost, too
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # then it was SIGTERM that interrupted
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM if ignored else signal.SIGINT)

    sys.unraisablehook = hook
