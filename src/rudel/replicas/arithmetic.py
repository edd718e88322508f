"""`Arithmetic`: all arithmetic on weights, in one thread beside the event loop, in the order in which it was requested.

So the event loop only keeps the books, and heartbeats are on time however large the model is.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Arithmetic:
    """See the module."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "rudel-arithmetic")

    def compute(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Requests some work, after all earlier requests.

        It is done even if the caller is cancelled, so what depends on its order need not wait.
        """
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments))

    def close(self) -> None:
        """Ends the thread after what was requested."""
        self._thread.shutdown(wait=False)
