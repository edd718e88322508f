"""Work in a process of its own, where another Keras backend runs and a crash harms nobody.

The process gets a JSON document on standard input and leaves `result.json` in its folder. What it says on its outputs
is kept in `log.txt` there, and is the cause of the error that is raised when it fails.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rudel.backend import hidden
from rudel.errors import ExportError
from rudel.garbage_collection import collect_seldom

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore",
    "PYTHONIOENCODING": "utf-8",
}
_LOG_LINES = 60


class ToolFailedError(Exception):
    """A process failed; the message is its last output.

    Attributes:
        crashed: whether a signal ended it.
    """

    def __init__(self, log: str, crashed: bool) -> None:
        super().__init__(log)
        self.crashed = crashed


def run(module: str, job: dict[str, Any], folder: Path, doing: str) -> Any:
    """Runs a module in a process of its own.

    Args:
        module: what to run, by `python -m`; its main part calls `serve`.
        job: what it is to do.
        folder: where it may write.
        doing: what it is about, as the object of a sentence: "the conversion to litert".

    Returns:
        What it answered.

    Raises:
        ExportError: its own sentence, or what became of it where it left none.
    """
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"} | ENVIRONMENT
    with (folder / "log.txt").open("w+b") as log:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module],
            input=json.dumps(job | {"folder": str(folder)}).encode(),
            stdout=log, stderr=log, env=environment, check=False,
        )  # fmt: skip
    log = "\n".join((folder / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
    answer = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {}
    if "result" in answer:
        return answer["result"]
    problem = answer.get("problem") or f"{doing.capitalize()} failed: its process {_end(done.returncode, log)}."
    raise ExportError(problem) from ToolFailedError(log, done.returncode < 0)


def import_tensorflow() -> Any:
    """Returns the module `tensorflow`, imported without what it and Keras import if it is there and no export needs.

    That is JAX, for a converter of its programs, scikit-learn, Matplotlib and pandas: almost half the time.
    """
    with hidden(("jax", "sklearn", "matplotlib", "matplotlib.pyplot", "pandas")):
        import tensorflow
    return tensorflow


def reason_of(message: str) -> str:
    """The sentence in an error of TensorFlow's, which comes between where the graph failed and the name of the node.

    It is the first line where no node is named, and has no full stop.

    >>> reason_of("Graph execution error:\\n\\nDetected at node Add\\n9 is not in [0, 2)\\n\\t [[{{node Add}}]]")
    '9 is not in [0, 2)'
    """
    before, node, _ = message.partition("[[{{node")
    lines = before.strip().splitlines() or [""]
    return lines[-1 if node else 0].strip().rstrip(".")


def serve(work: Callable[[dict[str, Any]], Any]) -> None:
    """The other side of `run`: reads the job, does the work, and leaves its result or its problem."""
    collect_seldom()
    job = json.load(sys.stdin)
    try:
        answer = {"result": work(job)}
    except ExportError as error:
        answer = {"problem": str(error)}
    (Path(job["folder"]) / "result.json").write_text(json.dumps(answer), encoding="utf-8")


def _end(code: int, log: str) -> str:
    if code >= 0:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        return f"ended with code {code}" + (f" ({lines[-1][:300].rstrip('.')})" if lines else "")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    reason = ", as it does when memory runs out" if name == "SIGKILL" else ""
    return f"was ended by {name}{reason}"
