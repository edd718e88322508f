import contextlib
import fcntl
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import array_checks  # noqa: F401  # first, so that what is imported is checked
import compiling  # before JAX
import parallel
import pytest
from browser import COMMAND, Browser, find, started
from golden import Golden
from hypothesis import settings
from missing import skip_or_fail
from processes import LONG
from warm.programs import JAX, TENSORFLOW, put_programs, started_zygotes

from rudel.errors import LabError
from rudel.export import process
from rudel.garbage_collection import collect_seldom
from rudel.lab.requirements import check_machine


def pytest_configure(config: pytest.Config) -> None:
    """Lets Ctrl-C reach the tests and what they start, also where SIGINT is ignored, as by a shell's `&` or `nohup`."""
    if parallel.is_one_of_several(config):
        config.add_cleanup(parallel.weigh_as_a_lab())
    sys.dont_write_bytecode = False  # hundreds of processes import what need be compiled only once
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    collect_seldom()
    settings.register_profile("beside others", settings.default, deadline=None)  # an example takes what it takes
    settings.load_profile("beside others")
    os.fsync = os.fstat  # type: ignore[assignment]  # a busy disk takes its time, and no power fails between two tests
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return parallel.processes(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return parallel.make_scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process that tests where the zygotes are that all of them share; they weigh like one of these."""
    config = node.config
    if _PLACES not in config.stash:
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        stack.callback(parallel.weigh_as_a_lab())
        config.stash[_PLACES] = stack.enter_context(_zygotes())
    node.workerinput["zygotes"] = config.stash[_PLACES]


_PLACES = pytest.StashKey[list[dict[str, Any]]]()


def _zygotes() -> contextlib.AbstractContextManager[list[dict[str, Any]]]:
    environment = dict(os.environ)
    return started_zygotes({JAX: environment, TENSORFLOW: environment | process.ENVIRONMENT})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests of endurance too")
    parser.addoption("--regenerate", action="store_true", help="write golden files again in place of comparing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.slow:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    if parallel.is_one_of_several(config):
        items.sort(key=lambda item: parallel.order(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    with parallel.while_nobody_measures(item, nextitem):
        compiling.optimize(bool(item.get_closest_marker("optimized")))
        result = yield
    if nextitem is None or nextitem.path != item.path:
        _keep_what_is_left()
    return result


def pytest_collection_finish() -> None:
    _keep_what_is_left()


def _keep_what_is_left() -> None:
    """What a file leaves behind, packages above all, stays: the garbage collector looks through it no more.

    With Keras, JAX and TensorFlow imported, it would otherwise take a third of the time of tests that train.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("others"):
        if find_spec(mark.args[0]) is None:
            skip_or_fail(f"There is no {mark.args[0]}, which need not be installed: pip install {mark.args[0]}")


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], NoReturn]:
    """Skips a test that lacks something of the machine, and says what; in CI, where nothing may lack, fails it."""
    return skip_or_fail


@pytest.fixture(scope="session")
def lab_machine(lacking: Callable[[str], NoReturn]) -> None:
    """A machine that can have a simulated network; tests are skipped elsewhere, or fail in CI."""
    try:
        check_machine()
    except LabError as error:
        lacking(str(error))


@pytest.fixture(scope="session")
def zygotes(pytestconfig: pytest.Config) -> Iterator[list[dict[str, Any]]]:
    """Where processes are from which programs are forked that begin with Rudel and Keras imported, or TensorFlow."""
    if parallel.is_one_of_several(pytestconfig):
        yield pytestconfig.workerinput["zygotes"]  # pyright: ignore[reportAttributeAccessIssue]
        return
    with _zygotes() as places:
        yield places


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory, zygotes: list[dict[str, Any]]) -> str:
    """`python` with Rudel and Keras imported, or TensorFlow for what an export starts: a second or three less of each.

    For programs of which only the result counts, not what they import or how they end (see warm/client.py).
    """
    folder = tmp_path_factory.mktemp("warm")
    put_programs(folder, zygotes)
    return str(folder / "python")


@pytest.fixture(scope="session")
def exporting(warm_python: str) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """While a block runs, what exports of this process start begins with TensorFlow imported."""

    @contextlib.contextmanager
    def warmly() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "sys", SimpleNamespace(executable=warm_python))
            yield

    return warmly


@pytest.fixture(scope="module")
def warm_exports(exporting: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """That for the tests of a file."""
    with exporting():
        yield


@pytest.fixture
def warm_trials(warm_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that sweeps of this process start begin with everything imported; their parent is not who asked for it."""
    from rudel.tuning import trial_service

    monkeypatch.setattr(trial_service, "sys", SimpleNamespace(executable=warm_python))


@pytest.fixture
def two_workers(warm_python: str, tmp_path: Path) -> Iterator[tuple[list[subprocess.Popen[bytes]], Any]]:
    """Two Dask workers that begin with everything imported, in processes that a test may kill, and their client."""
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        place = LocalCluster(n_workers=0, processes=True, dashboard_address="127.0.0.1:0")
        cluster: Any = stack.enter_context(place)
        client = stack.enter_context(Client(cluster, set_as_default=False))
        command = [Path(warm_python).with_name("dask"), "worker", cluster.scheduler_address, "--no-nanny"]
        command += ["--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--local-directory", tmp_path]
        log = stack.enter_context((tmp_path / "workers.log").open("wb"))
        processes = [stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log)) for _ in range(2)]
        for process in processes:
            stack.callback(process.kill)
        client.wait_for_workers(2, timeout=LONG)
        yield processes, client


@pytest.fixture(scope="session")
def shared_data(lacking: Callable[[str], NoReturn]) -> Path:
    """The folder with real data, too big to be part of the project; `RUDEL_SHARED` says where its parent is."""
    shared = os.environ.get("RUDEL_SHARED") or Path(__file__).parents[2] / "shared"
    folder = Path(shared) / "data"
    if not folder.is_dir():
        lacking(f"There is no real data in `{folder}`: set RUDEL_SHARED to the folder that holds `data`.")
    return folder


@pytest.fixture(scope="session")
def optimized() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What the marker does, for a part of a test: trainings that compute longer than they compile."""
    return compiling.optimized


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Callable[..., Path]:
    """Makes a folder by `make(folder)`, once for all processes that test; tests must leave it as it is."""
    folder = tmp_path_factory.getbasetemp()
    if parallel.is_one_of_several(pytestconfig):
        folder = folder.parent

    def path(name: str, make: Callable[[Path], object]) -> Path:
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / f"{name}.made").exists():
                make(folder / name)
                (folder / f"{name}.made").touch()
        return folder / name

    return path


@pytest.fixture(scope="session")
def gestures(made_once: Callable[..., Path], optimized: Callable[..., Any], shared_data: Path) -> Path:
    """A run of the recipe `motion` on the gestures of an Arduino."""

    def train(run: Path) -> None:
        import rudel

        with optimized():
            rudel.train_recipe("motion", data=str(shared_data / "gestures"), epochs=25, run=run)

    return made_once("gestures", train)


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares with golden files; with --regenerate, writes them."""
    return Golden(regenerate=pytestconfig.option.regenerate)


@pytest.fixture(scope="session")
def browser(lacking: Callable[[str], NoReturn]) -> Iterator[Browser]:
    """A browser without a window, for all tests of pages."""
    program = find()
    if program is None:
        lacking(f"There is no browser for the tests of pages: {COMMAND}")
    with started(program) as running:
        yield running
