"""Reading ahead: values made in a thread, a little before they are needed.

Guarantee: they come in order; an error of the maker is raised where the next thing is requested; after `close`, the
thread has ended. At most one thing is ready and one more in the making, so that memory is bounded.
"""

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

_LOOK_SECONDS = 0.1


class Ahead(Generic[T]):
    """An iterator whose items are made in a thread.

    Args:
        items: makes them; runs in the thread alone.
        interrupted: called while nothing is ready; True to stop waiting, with no item.

    >>> with Ahead(iter("ab")) as letters:
    ...     list(letters)
    ['a', 'b']
    """

    def __init__(self, items: Iterator[T], interrupted: Callable[[], bool] = lambda: False) -> None:
        self.wait_seconds = 0.0
        self._items, self._interrupted = items, interrupted
        self._ready: list[T] = []
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="reader", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Ahead[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """The next item; ends the iteration where there is none, or where somebody has interrupted the wait."""
        began = time.perf_counter()
        try:
            with self._changed:
                while not (self._ready or self._ended or self._interrupted()):
                    self._changed.wait(_LOOK_SECONDS)
                if self._ready:
                    self._changed.notify_all()
                    return self._ready.pop()
                if self._error:
                    raise self._error
                raise StopIteration
        finally:
            self.wait_seconds += time.perf_counter() - began

    @property
    def ready(self) -> bool:
        """Whether the next item can be had without waiting."""
        return bool(self._ready or self._ended)

    def close(self) -> None:
        """Ends the thread, after the item that it is making."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    return
                del item  # or the thread would hold it while it makes the next one
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._ready)
            if not self._closed:
                self._ready.append(item)
                self._changed.notify_all()
            return not self._closed
