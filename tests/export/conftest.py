"""Runs to export, trained for a moment."""

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax, set_seed

keras = keras_on_jax()


@pytest.fixture(scope="session")
def needs(lacking: Callable[[str], NoReturn]) -> Callable[..., None]:
    """Skips a test, or fails it in CI, where a package or a program is missing."""

    def check(*packages: str, program: str | None = None, install: str = "pip install 'rudel[export,micro]'") -> None:
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        missing += [program] if program and shutil.which(program) is None else []
        if missing:
            lacking(f"this test needs {' and '.join(missing)}: {install}")

    return check


@pytest.fixture(scope="session", autouse=True)
def _converter(needs: Callable[..., None]) -> None:
    needs("tensorflow", "ai_edge_litert")


@pytest.fixture(scope="module", autouse=True)
def _warm(warm_exports: None) -> None:
    """All exports here."""


@pytest.fixture(scope="session")
def digits(optimized: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe `digits`: convolutions, batch normalisation, dropout, augmentation, Flatten, softmax."""
    run = tmp_path_factory.mktemp("runs") / "digits"
    whole = {"validation": 0.1987}  # no smaller last batch, which would be one program more to compile
    with optimized():
        rudel.train_recipe("digits", options=whole, epochs=12, run=run)
    return run


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains a model into a run, for one epoch, and returns the directory."""

    def train(model: Any, x: Any, y: Any, loss: Any = "mse", **compiling: Any) -> Path:
        model.compile("adam", loss, **compiling)
        run = tmp_path_factory.mktemp("fitted") / "net"
        rudel.fit(model, x, y, run=run, epochs=1, verbose=False)
        return run

    return train


@pytest.fixture(scope="session")
def command(warm_python: str) -> Callable[..., Any]:
    """Runs `rudel export ...` in a folder; says on standard error if TensorFlow was imported."""
    script = (
        "import sys\nfrom rudel.cli import main\ntry: main.run()\n"
        "finally: assert 'tensorflow' not in sys.modules, 'TensorFlow was imported'\n"
    )

    def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
        words = [warm_python, "-c", script, "export", *map(str, arguments)]
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(autouse=True)
def _seeded() -> None:
    set_seed(3)


@pytest.fixture
def waves() -> tuple[np.ndarray, np.ndarray]:
    """Short series and whether they rise: float32 (256, 10, 3), int32 (256,)."""
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 10, 3)).astype("float32")
    return x, (x[:, -3:, 0].sum(1) > x[:, :3, 0].sum(1)).astype("int32")
