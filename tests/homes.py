"""Homes of hosts that are set up already.

`rudel hosts setup` takes a core a quarter of a minute for each host. It is done once, on a host of its own. The
result is kept in Rudel's cache folder, for other tests and later runs, and linked into the homes of hosts before they
start; so are the programs that hosts have compiled. After a change of the source or of a package, the command brings
it up to date, as it does on a user's host.

Hosts compile as the tests do, without most of XLA's optimisations: SSH passes no environment on.
"""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from compiling import QUICKLY
from processes import set_up_by_rudel

import rudel
from rudel.cache import cache_folder
from rudel.cluster.hosts import REMOTE_PYTHON
from rudel.lab import Lab

_AS_TESTS_COMPILE = f"import os; os.environ.update({QUICKLY} | dict(os.environ))"

_IMPORTS = (
    "from rudel.backend import keras_on_jax; keras_on_jax(light=True)\n"
    "import rudel.cli.application, rudel.report, rudel.training.from_recipe, rudel.training.fit"
)


def furnish(homes: Iterable[Path], *options: str) -> None:
    """Makes homes of nodes, which have to be empty or missing, with what `rudel hosts setup OPTIONS` leaves."""
    with _kept() as kept:
        source = _set_up(kept, options)
        for home in homes:
            for folder in (kept / "programs", source):
                _link(folder, home)


def keep_programs(homes: Iterable[Path]) -> None:
    """Keeps what hosts have compiled."""
    with _kept() as kept:
        for home in homes:
            if (home / ".cache").exists():
                _link(home / ".cache", kept / "programs" / ".cache")


def _set_up(kept: Path, options: tuple[str, ...]) -> Path:
    place, key = kept / ("".join(options).strip("-") or "whole"), _key()
    if (place / "key").exists() and (place / "key").read_text() == key:
        return place / "home"
    old = [key.parent for key in (place / "key", *kept.glob("*/key")) if key.exists()]
    state = kept / "state"
    shutil.rmtree(state, ignore_errors=True)
    with Lab(nodes=1, cpu=2.0, rate=1000, latency=0.0, prefix="kept", subnet="10.91.0", state=state) as lab:
        (name,) = lab.hosts
        home = state / name / "home"
        if old:
            _link(old[0] / "home", home)
        set_up_by_rudel(lab, lab.hosts, *options)
        if "--minimal" not in options:  # what trainings import, which every host would compile to bytecode
            lab.run(name, REMOTE_PYTHON, "-c", _IMPORTS)
    (packages,) = (home / ".rudel/env").glob("lib/python3*/site-packages")
    (packages / "as_tests_compile.pth").write_text(_AS_TESTS_COMPILE)
    shutil.rmtree(home / ".ssh")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    home.rename(place / "home")
    shutil.rmtree(state)
    (place / "key").write_text(key)
    return place / "home"


def _key() -> str:
    """Stands for all that a set-up leaves: the source, the versions of the packages, and how hosts compile."""
    found = hashlib.sha256(_AS_TESTS_COMPILE.encode())
    for path in sorted(Path(rudel.__file__).parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            found.update(f"{path}{path.stat().st_mode}".encode() + path.read_bytes())
    found.update(repr(sorted((each.name, each.version) for each in metadata.distributions())).encode())
    return found.hexdigest()


def _link(source: Path, target: Path) -> None:
    """Copies what is not there yet, with its owner; by hard links where both are on one file system."""
    target.mkdir(parents=True, exist_ok=True)
    how = "-anl" if source.stat().st_dev == target.stat().st_dev else "-an"
    subprocess.run(["cp", how, f"{source}/.", target], check=True)


@contextlib.contextmanager
def _kept() -> Iterator[Path]:
    """The folder of what is kept, for this process alone meanwhile."""
    folder = cache_folder() / "homes-of-tests"
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
