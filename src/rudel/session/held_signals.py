"""Ctrl-C and SIGTERM, held back until the training is at a point from which it can be resumed exactly.

A handler of the user's own is left alone: it runs at once, as in a training by Keras. Those of Python, of `asyncio.run`
and of Rudel, such as those of a training around this one, wait.
"""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While it is entered, the first SIGINT or SIGTERM is only noted; a second one, or one that the user handles, acts.

    Limit: Python delivers signals to the main thread alone; in other threads nothing changes.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if _can_wait(signal.getsignal(number)):
                    self._usual[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def received(self) -> bool:
        """Whether a signal came."""
        return self._received is not None

    def act(self, message: str) -> None:
        """Does what the signal requests.

        Args:
            message: what a person should know, for the message of the interrupt.

        Raises:
            KeyboardInterrupt: for SIGINT.
            SystemExit: for SIGTERM, with the exit code that shells expect; the message is on standard error.
        """
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt(message)
        if self._received is not None:
            print(message, file=sys.stderr, flush=True)
            raise SystemExit(128 + self._received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)
        self._usual = {}


def _can_wait(handler: Any) -> bool:
    """Whether a handler is not the user's, but Python's default, or a function or method of Rudel or `asyncio.run`."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    module = getattr(getattr(handler, "func", handler), "__module__", None) or ""  # that of asyncio is a partial
    return module == "asyncio.runners" or module.partition(".")[0] == "rudel"
