"""Waiting for what runs asynchronously, from code that does not."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def wait_for(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs a coroutine to its end and returns its result, also where an event loop runs already, as in a notebook.

    Ctrl-C cancels the coroutine, which cleans up after itself, and is raised as KeyboardInterrupt.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["result"] = asyncio.run(coroutine)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, name="rudel-wait", daemon=True)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]
