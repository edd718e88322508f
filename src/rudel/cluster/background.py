"""An event loop in a thread of its own, for what goes on while the main thread waits or computes."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Runs coroutines beside the caller.

    Examples:
        >>> with Background("example") as background:
        ...     background.run(asyncio.sleep(0, "done"))
        'done'
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Begins a coroutine; the future can be waited for in any thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end; an interrupt cancels it, and is raised when it has ended."""
        future = self.start(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            concurrent.futures.wait([future], timeout=10)
            raise

    def stop(self) -> None:
        """Ends the loop and whatever still runs in it."""
        if self.loop.is_closed():
            return
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        others = [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
