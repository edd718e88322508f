"""What pages find on the computer: programs, a cache, and data."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from homes import furnish, keep_programs
from pages.data import drawings_served
from warm.programs import put_programs

from rudel.cache import cache_folder

SHARED = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_", "JAX_DISABLE_MOST_OPTIMIZATIONS")
"""Variables that `import rudel` and the tests set: the compiled programs are those of all tests, of earlier runs too.

JAX's key of a program contains the path of the cache, so the pages cannot reach it by another path.
"""


@pytest.fixture(scope="session")
def drawings() -> Iterator[str]:
    """The address of a server with drawings."""
    with drawings_served() as address:
        yield address


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, zygotes: list[dict[str, Any]]) -> dict[str, str]:
    """A user's environment, with a cache that all pages share, in other processes too, and programs that start fast."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    for name in ("wheels", "zig"):  # what is the same whoever makes it, and takes long
        kept, place = cache_folder() / name, folder / "cache" / name
        kept.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            place.symlink_to(kept)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KERAS_", "JAX_")) or name.startswith(SHARED)
    }
    warm = tmp_path_factory.mktemp("warm")
    programs = [str(warm), str(_programs(folder / "bin")), str(Path(sys.executable).parent)]
    put_programs(warm, zygotes)
    return kept | {
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        "RUDEL_CACHE": str(folder / "cache"),
        "PYTHONUNBUFFERED": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "NO_PROXY": "*",
        "no_proxy": "*",
    }


def _programs(folder: Path) -> Path:
    """A folder with a `sudo` that changes nothing, and with OpenSSH's programs, which ask RUDEL_SSH_CONFIG, too."""
    folder.mkdir(exist_ok=True)
    scripts = {
        name: f'exec {shutil.which(name)} ${{RUDEL_SSH_CONFIG:+-F "$RUDEL_SSH_CONFIG"}}' for name in ("ssh", "scp")
    }
    for name, script in {"sudo": "exec", **scripts}.items():
        made = folder / f".{name}-{os.getpid()}"
        made.write_text(f'#!/bin/sh\n{script} "$@"\n')
        made.chmod(0o755)
        made.replace(folder / name)
    return folder


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Gives the folder of the labs of all pages, with hosts that have Rudel."""
    made: list[Path] = []

    def folder() -> Path:
        if not made:
            made.append(tmp_path_factory.mktemp("homes"))
            furnish(made[0] / name / "home" for name in ("raspi1", "raspi2"))
        return made[0]

    yield folder
    for state in made:
        keep_programs(state / name / "home" for name in ("raspi1", "raspi2"))
