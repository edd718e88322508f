import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import rudel
from rudel.recipes.load import find_recipe

sys.path.insert(0, str(Path(__file__).parent))
from serve_support import Server, dense, serving, two_inputs, write_run

CLASSES = ("bit", "bot", "but")


@pytest.fixture(scope="module", autouse=True)
def _warm(warm_exports: None) -> None:
    """All exports here."""


@pytest.fixture
def start(tmp_path: Path, warm_python: str) -> Iterator[Callable[..., Server]]:
    """Starts servers that end with the test, and begin with everything imported; `server` is one that does not."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(serving(tmp_path, *arguments, python=warm_python))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: `small`, `pairs`, `digits` and `drawings`."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "small", dense(), classes=CLASSES)
    write_run(folder / "pairs", two_inputs())
    for name, recipe, classes, settings in (
        ("digits", "digits", tuple("0123456789"), {"filters": 2}),
        ("drawings", "quickdraw", CLASSES, {"hidden": 8}),
    ):
        examples = rudel.Examples(np.zeros((1, 2), np.float32), np.zeros(1))
        model = find_recipe(recipe).module.model(rudel.Dataset(examples, class_names=classes), **settings)
        write_run(folder / name, model, recipe, classes)
    return folder


@pytest.fixture(scope="session")
def server(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all of them."""
    folder = tmp_path_factory.mktemp("server")
    arguments = [runs / "small", runs / "pairs", runs / "digits", f"quick={runs / 'drawings'}"]
    with serving(folder, *arguments, "--max-batch", "8", "--max-body", "0.2", "--timeout", "20") as started:
        yield started
