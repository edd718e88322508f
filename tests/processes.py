"""Processes that tests start: whatever happens to a test, they end with it, and their pipes are closed."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

LONG = 240.0
"""Seconds to wait for what takes moments: so long that no slow or busy computer needs them, and a hang still ends."""


@contextlib.contextmanager
def started(command: Sequence[Any], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that talks text; it is killed at the end of the block, if it has not ended by then."""
    with subprocess.Popen(command, text=True, **how) as process:
        try:
            yield process
        finally:
            process.kill()
