"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. Where that is a callback of the garbage
collector (JAX has one), or the end of an object, nobody can catch it: Python reports it and goes on.
"""

import contextlib
import signal
import sys
import threading
from typing import Any

_SOON = 0.02
"""Seconds until a lost interrupt comes again; one that is lost once more comes once more."""


def insist_on_interrupts() -> None:
    """From now on, an interrupt that was raised where nobody could catch it is raised again in the main thread."""
    usual = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt) or sys.is_finalizing():
            usual(unraisable)
            return
        again = threading.Timer(_SOON, _interrupt)
        again.daemon = True
        with contextlib.suppress(RuntimeError):  # no threads any more: the process ends anyway
            again.start()

    sys.unraisablehook = hook


def _interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
