"""The process that asks TensorFlow Lite Micro how much memory a model needs: `python -m rudel.export.tflm`."""

import os
from pathlib import Path
from typing import Any

from rudel.errors import ExportError
from rudel.export.process import serve

_LARGEST = 1 << 26


def smallest_arena(job: dict[str, Any]) -> int:
    """The smallest arena, to 16 bytes, in which the model at `path` can be set up and runs.

    Raises:
        ExportError: it cannot, however large the arena.
    """
    import tflite_micro.python.tflite_micro.runtime  # noqa: F401  # once, and not in every process below

    content = Path(job["path"]).read_bytes()
    enough = 1024
    while not _fits(content, enough):
        enough *= 2
        if enough > _LARGEST:
            raise ExportError("TensorFlow Lite Micro cannot run the model.")
    too_small = enough // 2 if enough > 1024 else 0
    while enough - too_small > 16:
        middle = (enough + too_small) // 32 * 16
        enough, too_small = (middle, too_small) if _fits(content, middle) else (enough, middle)
    return enough


def _fits(content: bytes, size: int) -> bool:
    """Whether an arena is large enough; tried in a process of its own, since too small a one may end it."""
    child = os.fork()
    if child == 0:
        try:
            _run(content, size)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _run(content: bytes, size: int) -> None:
    import numpy as np
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(content, arena_size=size)
    details = interpreter.get_input_details(0)
    interpreter.set_input(np.zeros(details["shape"], details["dtype"]), 0)
    interpreter.invoke()


if __name__ == "__main__":
    serve(smallest_arena)
