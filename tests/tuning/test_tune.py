"""Sweeps on this computer and on Dask workers: what is found, what is kept, and what happens when one is lost."""

import asyncio
import errno
import io
import json
import math
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import optuna
import pytest
from distributed import Client, LocalCluster
from optuna.storages.journal import JournalFileSymlinkLock
from processes import LONG, interrupted

import rudel
from rudel.errors import OptionError, RudelError, RunError
from rudel.mesh.hosts.channel import SLICE
from rudel.tuning import tune as driver
from rudel.tuning.final import train_final
from rudel.tuning.ledger import Ended, Ledger
from rudel.tuning.trial import Trial
from rudel.tuning.trial_process import pack
from rudel.tuning.trial_service import TrialService
from rudel.tuning.tune import Tuned


@pytest.fixture(scope="module")
def borrowed() -> Iterator[Client]:
    """A Dask cluster of somebody else's, with two workers, which are started again when they are lost."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(borrowed: Client) -> Client:
    """The same with both workers there, either of which a test may kill."""
    borrowed.wait_for_workers(2, timeout=LONG)
    return borrowed


@pytest.fixture
def warm_client(client: Client, warm_python: str) -> Iterator[Client]:
    """The same, on which trials begin with everything imported."""

    def begin_with(python: str) -> None:
        from types import SimpleNamespace

        from rudel.tuning import trial_service

        trial_service.sys = SimpleNamespace(executable=python)  # type: ignore[attr-defined]

    client.run(begin_with, warm_python)
    yield client
    client.run(begin_with, sys.executable)


def bowl(trial: Trial) -> float:
    for step in range(1, 9):
        trial.report(trial.settings["x"] ** 2 + 1 / step, step)
    (trial.folder / "found.txt").write_text(str(trial.settings["x"]))
    return trial.settings["x"] ** 2


def test_the_best_of_a_function_is_found_and_kept(tmp_path: Path) -> None:
    shown: list[Ended] = []
    tuned = rudel.tune(bowl, {"x": "-4.0..4.0"}, trials=12, run=tmp_path / "sweep", prune=False, shown=shown.append)
    assert [trial.number for trial in shown] == list(range(12))
    assert {trial.state for trial in tuned.trials} == {"finished"}
    assert tuned.value == min(trial.settings["x"] ** 2 for trial in shown) < 1
    assert tuned.best
    assert (tuned.best / "found.txt").read_text() == str(tuned.settings["x"])
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert page.count("<svg") == 3
    assert len((tmp_path / "sweep" / "trials.jsonl").read_text().splitlines()) == 12


def test_optuna_does_not_report_in_a_sweep_and_reports_as_before_after_it(tmp_path: Path) -> None:
    levels: list[int] = []
    optuna.logging.set_verbosity(optuna.logging.INFO)
    rudel.tune(
        bowl, {"x": "-4.0..4.0"}, trials=1, run=tmp_path / "sweep",
        shown=lambda ended: levels.append(optuna.logging.get_verbosity()),
    )  # fmt: skip
    assert (*levels, optuna.logging.get_verbosity()) == (optuna.logging.WARNING, optuna.logging.INFO)


def test_bad_trials_end_early(tmp_path: Path) -> None:
    tuned = rudel.tune(bowl, {"x": "-4.0..4.0"}, trials=16, run=tmp_path / "sweep")
    pruned = [trial for trial in tuned.trials if trial.state == "pruned"]
    assert len(pruned) > 4
    assert tuned.value is not None
    assert all(trial.value is not None and trial.value > tuned.value for trial in pruned)


@pytest.mark.usefixtures("warm_trials")
def test_a_recipe_gives_an_ordinary_run(tmp_path: Path) -> None:
    space = {"lr": "log:1e-4..1e-2", "filters": "4,8", "validation": "0.1987"}  # 1,440 digits, 45 whole batches
    tuned = rudel.tune("digits", space, trials=2, epochs=2, prune=False, run=tmp_path / "sweep")
    assert tuned.monitor == "val_accuracy"
    assert tuned.best
    config = json.loads((tuned.best / "config.json").read_text())
    assert config["learning_rate"] == tuned.settings["lr"]
    assert config["options"]["filters"] == tuned.settings["filters"]
    kept = [json.loads(line)["settings"] for line in (tuned.path / "trials.jsonl").read_text().splitlines()]
    assert all(each["filters"] in (4, 8) for each in kept)
    rudel.load(tuned.best)
    assert (tuned.best / "report.html").is_file()
    best = max(trial.value for trial in tuned.trials if trial.value is not None)
    assert tuned.value == best == json.loads((tuned.best / "summary.json").read_text())["best"]["value"]


def test_what_an_interrupt_leaves_is_continued(tmp_path: Path) -> None:
    several = threading.Event()
    count = 0

    def shown(ended: Ended) -> None:
        nonlocal count
        count += 1
        if count == 3:
            several.set()

    def slow(trial: Trial) -> float:
        time.sleep(0.05)
        return trial.settings["x"]

    how: dict[str, Any] = {"run": tmp_path / "sweep", "prune": False, "trials": 100}
    with interrupted(several):
        rudel.tune(slow, {"x": "0.0..1.0"}, shown=shown, **how)
    trials = tmp_path / "sweep" / "trials.jsonl"
    before = trials.read_text().splitlines()
    trials.write_text(trials.read_text() + '{"number": 9')  # killed while it wrote
    assert 3 <= len(before) < 100
    with pytest.raises(RunError, match="already holds a sweep"):
        rudel.tune(slow, {"x": "0.0..1.0"}, **how)
    with pytest.raises(OptionError, match="was begun with space"):
        rudel.tune(slow, {"x": "0.0..2.0"}, resume=True, **how)
    how["trials"] = len(before) + 4
    tuned = rudel.tune(slow, {"x": "0.0..1.0"}, resume=True, **how)
    after = (tmp_path / "sweep" / "trials.jsonl").read_text().splitlines()
    assert after[: len(before)] == before
    assert sorted(trial.number for trial in tuned.trials) == list(range(len(before) + 4))
    assert len({trial.settings["x"] for trial in tuned.trials}) == len(before) + 4


class _At(optuna.pruners.BasePruner):
    """Prunes at this step, and says when a trial has reported another."""

    def __init__(self, step: int) -> None:
        self.step, self.reported = step, threading.Event()

    def prune(self, study: Any, trial: Any) -> bool:
        self.reported.set()
        return trial.last_step >= self.step


def test_a_trial_that_is_continued_keeps_what_it_had_reported_and_how_long_it_took(tmp_path: Path) -> None:
    def half(trial: Trial) -> float:
        folder = trial.folder / "checkpoints"
        if not folder.exists():
            folder.mkdir()
            time.sleep(0.5)  # its work
            (folder / "1.npz").touch()
            trial.report(0.25, 1)
            trial.report(math.nan, 2)
            time.sleep(LONG)  # it is interrupted
        trial.report(9.0, 3)
        return 9.0

    pruner = _At(3)
    how: dict[str, Any] = {"trials": 1, "run": tmp_path / "sweep", "pruner": pruner}
    with interrupted(pruner.reported):
        rudel.tune(half, {"x": "0.0..1.0"}, **how)
    (trial,) = rudel.tune(half, {"x": "0.0..1.0"}, resume=True, **how).trials
    assert (trial.state, trial.value) == ("pruned", 0.25)
    assert trial.seconds > 0.5


def test_nan_is_not_the_value_of_a_trial_that_ends_early(tmp_path: Path) -> None:
    def late(trial: Trial) -> float:
        for step, value in enumerate((math.nan, math.inf, 0.5, 0.75)):
            trial.report(value, step)
        return 1.0

    tuned = rudel.tune(late, {"x": "0.0..1.0"}, trials=1, run=tmp_path / "sweep", pruner=_At(3))
    assert [(trial.state, trial.value) for trial in tuned.trials] == [("pruned", 0.5)]


@pytest.mark.timeout(25)  # Optuna waits for 30 s, or for ever where the path of the journal is relative
def test_a_sweep_that_was_killed_while_it_wrote_does_not_block_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rudel.tune(bowl, {"x": "0.0..1.0"}, trials=1, run="sweep")
    JournalFileSymlinkLock("sweep/study.log").acquire()
    assert len(rudel.tune(bowl, {"x": "0.0..1.0"}, trials=2, run="sweep", resume=True).trials) == 2


@pytest.mark.parametrize("turns", range(5))
def test_an_interrupt_is_not_lost_where_a_trial_has_just_said_something(turns: int) -> None:
    async def is_cancelled() -> bool:
        service, said = TrialService(), asyncio.StreamReader()
        service._process = cast("Any", SimpleNamespace(stdout=said, returncode=None))

        async def follow() -> None:
            while True:
                await service.hear()

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        said.feed_data(b"checkpoint")
        for _ in range(turns):
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait([following], timeout=10)
        return following.cancelled()

    assert asyncio.run(is_cancelled())


@pytest.mark.usefixtures("warm_trials")
def test_a_sweep_on_data_that_has_changed_is_another_one(tmp_path: Path) -> None:
    data = tmp_path / "numbers.csv"
    data.write_text("x,y\n" + "".join(f"{n},{n % 7}\n" for n in range(40)))
    how: dict[str, Any] = {"data": str(data), "steps": 1, "trials": 1, "run": tmp_path / "sweep"}
    space = {"target": "y", "task": "regression", "lr": [1e-3, 1e-2]}
    rudel.tune("table", space, **how)
    data.write_text(data.read_text().replace("39,4", "39,5"))
    with pytest.raises(OptionError, match=r"was begun with data \(fingerprint\)"):
        rudel.tune("table", space, resume=True, **how)


def test_what_fails_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    def fragile(trial: Trial) -> float:
        if trial.settings["x"] > 0.5:
            raise ValueError("too much")
        if trial.settings["x"] > 0.4:
            return float("nan")
        return trial.settings["x"]

    tuned = rudel.tune(fragile, {"x": "0.0..1.0"}, trials=10, run=tmp_path / "sweep", seed=3)
    failed = [trial for trial in tuned.trials if trial.state == "failed"]
    assert 0 < len(failed) < 10
    assert {trial.error for trial in failed} <= {"ValueError: too much", "Its value is NaN."}

    def hopeless(trial: Trial) -> float:
        raise ValueError("never")

    with pytest.raises(RudelError, match="first 5 trials failed, the last one by this: ValueError: never"):
        rudel.tune(hopeless, {"x": "0.0..1.0"}, trials=10, run=tmp_path / "other")


@pytest.mark.parametrize(("direction", "infinite"), [("minimize", -math.inf), ("maximize", math.inf)])
def test_an_infinite_value_is_not_the_best(tmp_path: Path, direction: Any, infinite: float) -> None:
    def lucky(trial: Trial) -> float:
        (trial.folder / "number.txt").write_text(str(trial.number))
        return infinite if trial.number == 0 else 1.0

    tuned = rudel.tune(lucky, {"x": "0.0..1.0"}, trials=2, run=tmp_path / "sweep", direction=direction)
    assert [trial.error for trial in tuned.trials] == ["Its value is infinite.", ""]
    assert tuned.value == 1.0
    assert (tmp_path / "sweep/best/number.txt").read_text() == "1"


def test_values_that_cannot_be_drawn_are_in_the_table(tmp_path: Path) -> None:
    def far(trial: Trial) -> float:
        return (-1) ** trial.number * 1e308

    tuned = rudel.tune(far, {"x": "0.0..1.0"}, trials=2, run=tmp_path / "sweep")
    assert tuned.value == -1e308
    assert "1e308" in (tmp_path / "sweep" / "report.html").read_text()


def test_a_progress_bar_may_be_one_long_line(tmp_path: Path) -> None:
    def chatty(trial: Trial) -> float:
        for number in range(40_000):
            sys.stderr.write(f"\r{number:5} of 40000 [=====>    ]")
        sys.stderr.flush()
        if trial.number == 1:
            os._exit(3)
        return 1.0

    tuned = rudel.tune(chatty, {"x": "0.0..1.0"}, trials=2, run=tmp_path / "sweep")
    assert [trial.state for trial in tuned.trials] == ["finished", "failed"]
    assert tuned.trials[1].error == "its process ended with 3: 39999 of 40000 [=====>    ]"


def test_a_trial_that_kills_its_process_ends_by_itself(tmp_path: Path) -> None:
    def deadly(trial: Trial) -> float:
        if trial.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0

    tuned = rudel.tune(deadly, {"x": "0.0..1.0"}, trials=3, run=tmp_path / "sweep")
    assert [(trial.number, trial.state) for trial in tuned.trials] == [(0, "finished"), (1, "failed"), (2, "finished")]
    assert "ended with -9" in tuned.trials[1].error


def test_what_trials_leave_in_the_temporary_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def untidy(trial: Trial) -> float:
        (Path(tempfile.mkdtemp()) / "left").touch()
        if trial.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0

    tuned = rudel.tune(untidy, {"x": "0.0..1.0"}, trials=2, run=tmp_path / "sweep")
    assert [trial.state for trial in tuned.trials] == ["finished", "failed"]
    assert not list(temporary.iterdir())


class _SlowLink(driver._Here):
    """This computer behind a link that takes 14 s for a slice, and so minutes for the checkpoint of a large model."""

    async def call(self, address: str, operation: str, *, timeout: float | None = None, **message: object) -> Any:
        answer = await super().call(address, operation, timeout=timeout, **message)
        seconds = len(pickle.dumps((message, answer))) / (SLICE / 14)
        if timeout is not None and seconds > timeout:
            raise TimeoutError
        return answer


def test_a_checkpoint_may_take_longer_than_a_host_may_be_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_Here", _SlowLink)
    content = os.urandom(4 * SLICE)

    def large(trial: Trial) -> float:
        folder = trial.folder / "checkpoints"
        folder.mkdir(exist_ok=True)
        if (folder / "1.npz").exists():
            (trial.folder / "weights").write_bytes((folder / "1.npz").read_bytes())
            return 1.0
        (folder / "1.npz").write_bytes(content)
        trial.report(1.0, 1)
        os._exit(3)

    tuned = rudel.tune(large, {"x": "0.0..1.0"}, trials=1, run=tmp_path / "sweep")
    assert [(trial.state, trial.moved) for trial in tuned.trials] == [("finished", 1)]
    assert tuned.best
    assert (tuned.best / "weights").read_bytes() == content


class _Racing:
    """Two computers, of which one sends its trial while the better one of the other arrives."""

    def __init__(self) -> None:
        self.service = TrialService()
        self.arrived = asyncio.Event()
        self.said = {name: self._events(name) for name in ("worse", "better")}

    async def members(self) -> dict[str, str]:
        return {name: name for name in self.said}

    async def call(self, address: str, operation: str, **_: object) -> dict[str, bytes] | None:
        return {"content": pack(await anext(self.said[address]))} if operation == "hear" else None

    async def _events(self, name: str) -> AsyncIterator[dict[str, Any]]:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("name.txt", name)
        yield {"kind": "finished", "value": 2.0 if name == "better" else 1.0}
        if name == "worse":
            await self.arrived.wait()
        yield {"kind": "run", "content": archive.getvalue()}


def test_the_best_is_kept_whatever_arrives_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    racing = _Racing()
    monkeypatch.setattr(driver, "_Here", lambda: racing)

    def shown(ended: Ended) -> None:
        racing.arrived.set()

    how: dict[str, Any] = {"direction": "maximize", "shown": shown, "run": tmp_path / "sweep"}
    tuned = rudel.tune(bowl, {"x": "0.0..1.0"}, trials=2, **how)
    assert [trial.host for trial in tuned.trials] == ["better", "worse"]
    assert tuned.value == 2.0
    assert tuned.best
    assert (tuned.best / "name.txt").read_text() == "better"


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    def talkative(trial: Trial) -> float:
        for step in range(20):
            trial.report(trial.settings["x"], step)
        return trial.settings["x"]

    how: dict[str, Any] = {"run": tmp_path / "sweep", "prune": False}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(RunError, match=r"could not be written .*make room, then continue with `resume=True`"):
            rudel.tune(talkative, {"x": "0.0..1.0"}, trials=20, **how)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    before = (tmp_path / "sweep" / "trials.jsonl").read_text()
    assert before
    rudel.tune(talkative, {"x": "0.0..1.0"}, trials=4, resume=True, **how)
    after = (tmp_path / "sweep" / "trials.jsonl").read_text()
    assert after.startswith(before)
    assert [json.loads(line)["number"] for line in after.splitlines()] == [0, 1, 2, 3]
    journal = tmp_path / "sweep" / "study.log"
    os.truncate(journal, journal.stat().st_size - 20)  # killed while it wrote that the last one has ended
    assert len(rudel.tune(talkative, {"x": "0.0..1.0"}, trials=4, resume=True, **how).trials) == 4
    assert (tmp_path / "sweep" / "trials.jsonl").read_text() == after


def test_one_at_a_time_uses_the_folder_of_a_sweep(tmp_path: Path) -> None:
    refused = []

    def shown(ended: Ended) -> None:
        with pytest.raises(RunError, match="Another training is using the run directory") as caught:
            rudel.tune(bowl, {"x": "0.0..1.0"}, trials=1, run=tmp_path / "sweep", resume=True)
        refused.append(caught)

    assert len(rudel.tune(bowl, {"x": "0.0..1.0"}, trials=1, run=tmp_path / "sweep", shown=shown).trials) == 1
    assert len(refused) == 1
    rudel.tune(bowl, {"x": "0.0..1.0"}, trials=1, run=tmp_path / "sweep", resume=True)


def test_a_sweep_of_which_nothing_came_does_not_block_its_folder(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with ledger.begin({"space": "a"}, resume=False):
        ledger.journal.write_text("of another space")
    with ledger.begin({"space": "b"}, resume=False):
        assert not ledger.journal.exists()
        ledger.keep_checkpoints(0, {"1.npz": b""})
    with pytest.raises(RunError, match="already holds a sweep"), ledger.begin({"space": "b"}, resume=False):
        pass


def test_a_sweep_that_was_killed_at_its_start_does_not_block_its_folder(tmp_path: Path) -> None:
    half = tmp_path / ".tune.json.0123456789abcdef.tmp"
    half.write_text("{")
    (tmp_path / ".lock").touch()
    with Ledger(tmp_path).begin({"space": "a"}, resume=False):
        assert not half.exists()


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep with three trials."""
    return rudel.tune(bowl, {"x": "0.0..1.0"}, trials=3, run=tmp_path_factory.mktemp("swept") / "sweep").path


@pytest.mark.parametrize("name", ["tune.json", "trials.jsonl", "study.log"])
@pytest.mark.parametrize("left", [b"", b"{\xff}\n", b"[1]\n"])
def test_a_damaged_record_is_named_and_no_trial_is_lost(swept: Path, tmp_path: Path, name: str, left: bytes) -> None:
    shutil.copytree(swept, tmp_path / "sweep")
    (tmp_path / "sweep" / name).write_bytes(left)
    kept = [tmp_path / "sweep" / "trials.jsonl", tmp_path / "sweep" / "best" / "found.txt"]
    before = [path.read_bytes() for path in kept]
    with pytest.raises(RunError, match=r"(study\.log|tune\.json|trials\.jsonl) cannot be read"):
        rudel.tune(bowl, {"x": "0.0..1.0"}, trials=4, run=tmp_path / "sweep", resume=True)
    assert [path.read_bytes() for path in kept] == before


@pytest.mark.parametrize("name", ["tune.json", "trials.jsonl"])
def test_a_record_that_cannot_be_opened_is_not_said_to_be_damaged(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutil.copytree(swept, tmp_path / "sweep")
    read = Path.read_text

    def refusing(path: Path, *arguments: Any, **more: Any) -> str:
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path, *arguments, **more)

    monkeypatch.setattr(Path, "read_text", refusing)
    with pytest.raises(RunError, match=f"{name} cannot be read .Permission denied.: repair"):
        rudel.tune(bowl, {"x": "0.0..1.0"}, trials=4, run=tmp_path / "sweep", resume=True)


def test_checkpoints_of_a_trial_are_never_newer_than_its_best_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    replace = Path.replace

    def noting(path: Path, target: Path) -> Path:
        places.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", noting)
    Ledger(tmp_path).keep_checkpoints(0, {"step-2.npz": b"s", "best-2.npz": b"b"})
    assert places == ["best-2.npz", "step-2.npz"]


@pytest.mark.parametrize(
    ("event", "count", "kept"), [("os.rename", 1, "old"), ("os.rename", 2, "old"), ("os.remove", 1, "new")]
)
def test_the_best_is_whole_when_the_sweep_is_killed_as_another_takes_its_place(
    tmp_path: Path, event: str, count: int, kept: str
) -> None:
    program = f"""
import io, os, signal, sys, zipfile
from pathlib import Path
from rudel.tuning.ledger import Ledger

ledger = Ledger(Path({str(tmp_path)!r}))
left = {count}

def keep(content):
    with zipfile.ZipFile(archive := io.BytesIO(), "w") as packed:
        packed.writestr("config.json", content)
        packed.writestr("model.keras", content)
    ledger.keep_best(archive.getvalue())

def hook(event, arguments):
    global left
    if event == {event!r}:
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

with ledger.begin({{}}, resume=False):
    keep("old")
    sys.addaudithook(hook)
    keep("new")
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, timeout=100)
    assert killed.returncode == -signal.SIGKILL
    with Ledger(tmp_path).begin({}, resume=True):
        assert [path.read_text() for path in sorted((tmp_path / "best").iterdir())] == [kept, kept]
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "best", "tune.json"}


def test_choices_among_lists(tmp_path: Path) -> None:
    space = {"layers": [(8,), (16, 8)], "x": np.array([0.5, 2.0])}
    for trials in (2, 3):
        tuned = rudel.tune(bowl, space, trials=trials, run=tmp_path / "sweep", prune=False, resume=trials > 2)
    assert tuned.settings["layers"] in ([8], [16, 8])
    assert len(tuned.trials) == 3
    assert (tmp_path / "sweep" / "report.html").read_text().count("<svg") == 3


@pytest.mark.usefixtures("warm_trials")
def test_an_option_that_is_a_list_has_one_value(tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("x,y,a,b\n" + "".join(f"{n},{n % 7},0,0\n" for n in range(40)))
    space = {"target": "y", "task": "regression", "ignore": "a,b", "lr": [1e-3, 1e-2]}
    tuned = rudel.tune("table", space, data=str(tmp_path / "numbers.csv"), steps=1, trials=1, run=tmp_path / "sweep")
    assert tuned.best
    assert json.loads((tuned.best / "config.json").read_text())["options"]["ignore"] == ["a", "b"]
    assert tuned.settings.keys() == {"lr"}


@pytest.mark.usefixtures("warm_trials")
def test_an_option_that_is_a_list_may_have_a_choice(tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("x,y,a,b\n" + "".join(f"{n},{n % 7},0,0\n" for n in range(40)))
    space = {"target": "y", "task": "regression", "ignore": ["a", "a,b"], "hidden": 8}
    data, run = str(tmp_path / "numbers.csv"), tmp_path / "sweep"
    for trials in (1, 2):
        tuned = rudel.tune("table", space, data=data, steps=1, trials=trials, run=run, resume=trials > 1)
    assert tuned.best
    assert json.loads((tuned.best / "config.json").read_text())["options"]["ignore"] in (["a"], ["a", "b"])
    assert (run / "report.html").is_file()


def test_the_final_training_follows_the_best_settings(tmp_path: Path) -> None:
    (tmp_path / "tune.json").write_text(
        json.dumps({"data": None, "epochs": None, "steps": 1, "batch_size": None, "fixed": {"net": "small"}})
    )
    final = tmp_path / "final"
    for rate, left in ((0.5, []), (0.25, []), (0.25, ["note"])):
        tuned = Tuned(tmp_path, "loss", {"lr": rate}, 1.0, None, ())
        assert train_final("sine", tuned).path == final
        assert json.loads((final / "config.json").read_text())["learning_rate"] == rate
        assert sorted(path.name for path in tmp_path.iterdir()) == ["final", "tune.json"]
        assert [path.name for path in final.glob("note")] == left
        (final / "note").touch()


@pytest.mark.parametrize("killed", ["before the old one moved", "between", "before the old one was removed"])
def test_a_final_training_that_was_killed_as_it_took_its_place_is_there_in_the_end(tmp_path: Path, killed: str) -> None:
    (tmp_path / "tune.json").write_text(
        json.dumps({"data": None, "epochs": None, "steps": 1, "batch_size": None, "fixed": {"net": "small"}})
    )
    final, new = tmp_path / "final", tmp_path / ".new" / "final"
    train_final("sine", Tuned(tmp_path, "loss", {"lr": 0.25}, 1.0, None, ()))
    (final / "trained.txt").touch()
    new.parent.mkdir()
    final.rename(final if killed == "before the old one was removed" else new)
    old = final if killed == "before the old one moved" else new.with_name("old")
    old.mkdir()
    (old / "metrics.jsonl").touch()  # what is left of it
    assert train_final("sine", Tuned(tmp_path, "loss", {"lr": 0.25}, 1.0, None, ())).path == final
    assert (final / "trained.txt").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["final", "tune.json"]


def test_a_final_training_comes_back_that_was_moved_when_a_better_one_was_killed(tmp_path: Path) -> None:
    (tmp_path / "tune.json").write_text(
        json.dumps({"data": None, "epochs": None, "steps": 1, "batch_size": None, "fixed": {"net": "small"}})
    )
    final, fresh = tmp_path / "final", tmp_path / ".new"
    tuned = Tuned(tmp_path, "loss", {"lr": 0.25}, 1.0, None, ())
    train_final("sine", tuned)
    (final / "trained.txt").touch()
    fresh.mkdir()
    final.rename(fresh / "old")
    assert train_final("sine", tuned).path == final
    assert (final / "trained.txt").exists()


def test_a_lost_worker_costs_a_trial_its_steps_since_the_checkpoint(client: Client, tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    killed = tmp_path / "killed"

    def counting(trial: Trial) -> float:
        folder = trial.folder / "checkpoints"
        folder.mkdir(exist_ok=True)
        done = max((int(path.stem) for path in folder.glob("*.npz")), default=0)
        for step in range(done + 1, 11):
            with steps.open("a") as file:
                file.write(f"{trial.number} {step} {os.getpid()}\n")
            (folder / f"{step:04}.npz").write_bytes(b"checkpoint")
            trial.report(float(step), step)
            if trial.number == 0 and step == 5 and not killed.exists():
                killed.touch()
                os.kill(os.getppid(), signal.SIGKILL)  # the worker
                time.sleep(LONG)  # this process ends, as nobody is there any more
        return trial.settings["x"]

    tuned = rudel.tune(counting, {"x": "0.0..1.0"}, trials=4, client=client, run=tmp_path / "sweep", prune=False)
    assert sorted(trial.number for trial in tuned.trials) == [0, 1, 2, 3]
    assert {trial.state for trial in tuned.trials} == {"finished"}
    first = next(trial for trial in tuned.trials if trial.number == 0)
    assert first.moved == 1
    lines = [line.split() for line in steps.read_text().splitlines()]
    by_process: dict[str, list[int]] = {}
    for number, step, process in lines:
        if number == "0":
            by_process.setdefault(process, []).append(int(step))
    before, after = by_process.values()
    assert before == [1, 2, 3, 4, 5]
    assert after[-1] == 10
    assert 1 < after[0] <= 6, "it continues from a checkpoint"


def test_workers_share_the_trials(warm_client: Client, tmp_path: Path) -> None:
    space = {"net": "small,full"}
    tuned = rudel.tune("sine", space, trials=2, epochs=1, client=warm_client, prune=False, run=tmp_path / "sweep")
    assert {trial.state for trial in tuned.trials} == {"finished"}
    assert len({trial.host for trial in tuned.trials}) == 2


def test_a_recipe_of_the_users_travels_with_its_neighbours(warm_client: Client, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("UNITS = 8\n")
    recipe = tmp_path / "own.py"
    recipe.write_text(
        "import keras\nimport numpy as np\nimport rudel\nfrom beside import UNITS\n"
        "def data():\n"
        "    x = np.random.default_rng(0).random((64, 4), np.float32)\n"
        "    return rudel.Dataset(*rudel.split(rudel.Examples(x, x.sum(1)), 0.25))\n"
        "def model(dataset, units: int = UNITS):\n"
        "    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return model\n"
    )
    tuned = rudel.tune(str(recipe), {"units": "2..9"}, trials=2, epochs=2, client=warm_client, run=tmp_path / "sweep")
    assert tuned.monitor == "val_loss"
    assert tuned.best
    assert json.loads((tuned.best / "config.json").read_text())["recipe"] == str(recipe)


def test_mistakes_are_said_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    with pytest.raises(OptionError, match="no option `fliters`"):
        rudel.tune("digits", {"fliters": "4,8"}, run=folder)
    for space, message in (
        ({"filters": "4,many"}, "`filters` .* 'many'"),
        ({"batch_size": [16, 0]}, "`batch_size=` must be a whole number of at least 1, not 0"),
        ({"precision": ["float32", "float8"]}, "float8"),
    ):
        with pytest.raises(OptionError, match=message):
            rudel.tune("digits", space, run=folder)
    with pytest.raises(OptionError, match="with one argument"):
        rudel.tune(lambda: 1.0, {"x": "1..2"}, run=folder)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="`trials=`"):
        rudel.tune(bowl, {"x": "1..2"}, trials=0, run=folder)
    wrong: Any = "up"
    with pytest.raises(OptionError, match="`direction=` can be minimize or maximize, not 'up'"):
        rudel.tune(bowl, {"x": "1..2"}, direction=wrong, run=folder)
    with pytest.raises(OptionError, match="`space` is a dict"):
        rudel.tune(bowl, wrong, run=folder)
    with pytest.raises(OptionError, match=r"`seed=` must be below 2\*\*32"):
        rudel.tune(bowl, {"x": "1..2"}, seed=2**32, run=folder)
    with pytest.raises(OptionError, match="`checkpoint_every=`"):
        rudel.tune(bowl, {"x": "1..2"}, checkpoint_every=0, run=folder)
    with pytest.raises(OptionError, match="no metric `val_acuracy` to monitor: it has accuracy, loss"):
        rudel.tune("digits", {"filters": "4,8"}, monitor="val_acuracy", run=folder)
    with pytest.raises(OptionError, match="`x` can be a number"):
        rudel.tune(bowl, {"x": [print, len]}, run=folder)
    with pytest.raises(OptionError, match="given twice"):
        rudel.tune(bowl, {"x": "1..2"}, on="a", client="tcp://b:1", run=folder)
    assert not folder.exists()
    folder.mkdir()
    (folder / "thesis.txt").touch()
    with pytest.raises(RunError, match="not a sweep"):
        rudel.tune(bowl, {"x": "1..2"}, run=folder)
