"""`CountedContext`: a change of what a whole process shares, for as long as any thread needs it."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class CountedContext:
    """A context that several threads may be in at a time, and one thread more than once.

    The first to enter makes the change, and the last to leave undoes it, in whatever order they leave.

    Args:
        make: makes the context manager that changes something and undoes that.

    Examples:
        >>> import contextlib, io
        >>> out, context = io.StringIO(), CountedContext(lambda: contextlib.redirect_stdout(out))
        >>> with context, context:
        ...     print("kept")
        >>> out.getvalue()
        'kept\\n'
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make, self._lock, self._inside = make, threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._context = self._make()
                self._context.__enter__()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._context.__exit__(None, None, None)
