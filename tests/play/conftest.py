"""A run that guesses drawings, and the page that it is exported to."""

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from browser import Browser, Page

import rudel
from rudel.export.exporting import Exported
from rudel.play.opening import open_run
from rudel.play.play_server import PlayServer
from rudel.play.player import Player

sys.path.insert(0, str(Path(__file__).parent))

from play_support import CLASSES, folder_server, serving


@pytest.fixture(scope="session")
def drawings_folder(shared_data: Path) -> Path:
    """Where the real drawings are."""
    return shared_data / "quickdraw"


@pytest.fixture(scope="session")
def run(drawings_folder: Path, optimized: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe `quickdraw`."""
    with optimized():
        return rudel.train_recipe(
            "quickdraw",
            data=str(drawings_folder),
            options={"classes": CLASSES, "drawings": 1280},  # whole batches: one program to compile, not two
            steps=2500,
            run=tmp_path_factory.mktemp("runs") / "quickdraw",
        ).path


@pytest.fixture(scope="session")
def player(run: Path) -> Player:
    """That run, opened."""
    opened = open_run(run)
    assert isinstance(opened, Player)
    return opened


@pytest.fixture(scope="session")
def export(
    run: Path,
    lacking: Callable[[str], NoReturn],
    exporting: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Exported:
    """Its page, in a folder of several words."""
    if missing := [name for name in ("tensorflow", "ziglang") if importlib.util.find_spec(name) is None]:
        lacking(f"This test needs {' and '.join(missing)}: pip install 'rudel[export,micro]'")
    with exporting():
        return rudel.export(run, "page", tmp_path_factory.mktemp("exported") / "of this run" / "guess")


@pytest.fixture(scope="session")
def exported(export: Exported) -> Path:
    """The folder of that page."""
    return export.path


@pytest.fixture(scope="session")
def static_address(exported: Path) -> Iterator[str]:
    """Where the exported page is served."""
    with serving(folder_server(exported)) as address:
        yield address


@pytest.fixture(scope="session")
def served_address(player: Player) -> Iterator[str]:
    """Where `rudel play` serves it, and guesses itself."""
    with serving(PlayServer(player)) as address:
        yield address


@pytest.fixture
def opened(browser: Browser) -> Callable[..., Any]:
    """Opens a page, ready to draw on; a context manager."""

    @contextlib.contextmanager
    def at(address: str, **how: Any) -> Iterator[Page]:
        with browser.page(address, **how) as page:
            page.until("document.body.dataset.ready")
            yield page

    return at


@pytest.fixture(scope="session")
def real(drawings_folder: Path) -> Callable[[int], list[tuple[list[list[list[int]]], np.ndarray]]]:
    """Gives so many drawings of each class, with Google's own bitmaps (28, 28) of them."""

    def take(count: int) -> list[tuple[list[list[list[int]]], np.ndarray]]:
        found = []
        for name in CLASSES:
            bitmaps = np.load(drawings_folder / f"full/numpy_bitmap/{name}.npy", mmap_mode="r")
            lines = (drawings_folder / f"strokes/{name}.ndjson").read_text().splitlines()[:count]
            drawings = [json.loads(line)["drawing"] for line in lines]
            found += [(drawing, np.array(bitmaps[i]).reshape(28, 28)) for i, drawing in enumerate(drawings)]
        return found

    return take
