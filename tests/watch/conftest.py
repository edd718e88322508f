import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from watch_support import Served, Training


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Begins trainings in `tmp_path/run`, or elsewhere."""
    begun: list[Training] = []

    def begin(path: Path | None = None, resume: bool = False) -> Training:
        begun.append(Training(path or tmp_path / "run", resume))
        return begun[-1]

    yield begin
    for left in begun:
        with contextlib.suppress(OSError):
            left.stop()


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """Serves the page of runs until the test ends."""
    all_served: list[Served] = []

    def serve(*runs: Path, port: int = 0) -> Served:
        all_served.append(Served(*runs, port=port))
        return all_served[-1]

    yield serve
    for one in all_served:
        one.end()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts `rudel watch ARGUMENTS` in `tmp_path`; returns the process, and the address of its page."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("rudel"), "watch", "--no-browser", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        return process, line.split()[2]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
