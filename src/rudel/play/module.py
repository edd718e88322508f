"""The model as WebAssembly, made beside the server while that guesses already, and kept for the next time."""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import rudel
from rudel.cache import cache_folder
from rudel.errors import ServeError

NEEDS = ("tensorflow", "ziglang")
"""Packages that are needed, by the names under which they are imported."""


def missing_packages() -> list[str]:
    """Those of `NEEDS` that are not installed; none is imported."""
    return [name for name in NEEDS if importlib.util.find_spec(name) is None]


def what_is_missing() -> str | None:
    """A sentence that says what to install so that the page guesses; None where nothing is missing."""
    missing = missing_packages()
    if not missing:
        return None
    return (
        f"The server guesses: to let the page do it, install {' and '.join(missing)} by "
        "`pip install 'rudel[export,micro]'`."
    )


class PageModule:
    """The module of a run: from the cache, or being made by a process of its own.

    Args:
        model: the run's model.keras.
        command: makes the page in a folder that is given to it: the words of a command line.
    """

    def __init__(self, model: Path, command: Callable[[Path], Sequence[str]]) -> None:
        self._lock = threading.RLock()
        digest = hashlib.sha256(rudel.__version__.encode() + model.read_bytes()).hexdigest()[:32]
        self._kept = cache_folder() / "play" / digest
        self._process: subprocess.Popen[bytes] | None = None
        self._workshop: Path | None = None
        self._problem: str | None = None  # why nothing is made
        if self._kept.is_dir():
            return
        if missing := missing_packages():
            packages = " and ".join(missing)
            self._problem = (
                f"The page needs {packages} to run this model: install them by `pip install 'rudel[export,micro]'`."
            )
            return
        try:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            self._workshop = Path(tempfile.mkdtemp(prefix=".making-", dir=self._kept.parent))
        except OSError as error:
            self._problem = (
                f"The page needs a place for this model, and {cache_folder()} cannot be written ({error.strerror}): "
                "make room there, or set RUDEL_CACHE."
            )
            return
        self._process = subprocess.Popen(
            command(self._workshop / "page"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def __call__(self) -> Path | None:
        """The folder of the module, once it is there; requests call this from threads of their own."""
        with self._lock:
            if self._process is not None and self._workshop is not None and self._process.poll() == 0:
                with contextlib.suppress(OSError):  # by then, another process may have put its own there
                    (self._workshop / "page/model").replace(self._kept)
                self.close()
        return self._kept if self._kept.is_dir() else None

    def wait(self) -> Path:
        """Waits until it is made, and returns its folder.

        Raises:
            ServeError: it cannot be made.
        """
        if self._problem:
            raise ServeError(self._problem)
        if self._process is not None:
            self._process.wait()
        if (made := self()) is None:
            raise ServeError("The model cannot be compiled for the page: `rudel export RUN --to page` says why.")
        return made

    def close(self) -> None:
        """Ends the process, if it is still at work, and removes what it has half made."""
        with self._lock:
            if self._process is not None:
                if self._process.poll() is None:
                    os.killpg(self._process.pid, signal.SIGTERM)
                    try:
                        self._process.wait(5)
                    except subprocess.TimeoutExpired:
                        os.killpg(self._process.pid, signal.SIGKILL)
                        self._process.wait()
                self._process = None
            if self._workshop is not None:
                shutil.rmtree(self._workshop, ignore_errors=True)
                self._workshop = None
