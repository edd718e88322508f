"""Runs a script as if some packages were not installed: `python alone.py SCRIPT JOB HIDDEN...`

Keras imports TensorFlow, PyTorch, scikit-learn and Matplotlib wherever it finds them. In an environment that has them
all, each contestant would pay in time and memory for what only another one needs.
"""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Blind:
    """A finder of modules that does not find some."""

    def __init__(self, finder: Any, names: Sequence[str]) -> None:
        self._finder, self._names = finder, frozenset(names)

    def find_spec(self, fullname: str, *where: Any) -> Any:
        """What the finder finds, or nothing."""
        return None if fullname in self._names else self._finder.find_spec(fullname, *where)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def main() -> None:
    """Hides, then runs."""
    _, script, job, *hidden = sys.argv
    sys.meta_path[:] = [Blind(finder, hidden) for finder in sys.meta_path]
    sys.path[0] = str(Path(script).parent)
    sys.argv = [script, job]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
