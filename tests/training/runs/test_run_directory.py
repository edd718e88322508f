"""Directories of runs: what they take, what they refuse, and what they leave alone."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax
from rudel.errors import DataError, RunError
from rudel.runs import checkpoint, run_directory
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.run_directory import RunDirectory
from rudel.runs.run_identity import check_same
from rudel.runs.tensorboard import Board

keras = keras_on_jax()


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def fit(run: Path, **settings: Any) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    rudel.fit(model, np.zeros((8, 4), np.float32), np.ones(8), run=run, verbose=False, **settings)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "name", ["log.txt", "tensorboard/train/events.out.tfevents.1.host", "model.keras", "checkpoints/epoch-1.pt"]
)
def test_what_a_run_would_write_over_is_refused(tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(RunError, match=r"` and is not a run, it has no config\.json: give an empty directory, or one"):
        run_directory.create(tmp_path, resume)
    with pytest.raises(RunError, match="is not a run"):
        run_directory.check_free(tmp_path, resume)
    assert files(tmp_path) == {name: "years of work"}


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    theirs = {"main.py": "pass", "out.txt": "of the shell", ".notes.tmp": "mine", ".model.settings": "mine"}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text)
    run = run_directory.create(tmp_path, resume=False)

    def train_on_damaged_data() -> None:
        with run.keeping_failure():
            run.write_config({})
            run.log.write_text("begun")
            raise DataError("One is damaged.")

    with pytest.raises(DataError, match="One is damaged"):
        train_on_damaged_data()
    run.release()
    assert files(tmp_path) == theirs | {".lock": ""}
    fit(tmp_path)
    events = tmp_path / "tensorboard" / "train" / "events.out.tfevents.1.host"
    events.write_text("of another program")
    fit(tmp_path, epochs=2, resume=True)
    assert events.read_text() == "of another program"
    assert {name: (tmp_path / name).read_text() for name in theirs} == theirs


def test_settings_may_name_files_that_are_not_utf_8(tmp_path: Path) -> None:
    Board(tmp_path, {"data": "B\udce4ume"}).begin([])
    (events,) = (tmp_path / "tensorboard/train").iterdir()
    assert rb"| data | B\udce4ume |" in events.read_bytes()


def test_what_a_killed_training_leaves_is_no_hindrance(tmp_path: Path) -> None:
    run = run_directory.create(tmp_path / "run", resume=False)
    (run.path / ".config.json.0123456789abcdef.tmp").write_text("half")
    (run.path / ".model.ab12cd_8").mkdir()
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints" / ".step-0000000001.npz.0123456789abcdef.tmp").write_text("half")
    run.release()
    again = run_directory.create(tmp_path / "run", resume=False)
    assert files(again.path) == {".lock": ""}
    assert not (again.path / ".model.ab12cd_8").exists()
    again.release()


def test_a_run_in_use_is_not_touched_by_another_that_would_resume_it(tmp_path: Path) -> None:
    run = run_directory.create(tmp_path / "run", resume=False)
    run.write_config({"recipe": "sine"})
    checkpoint.save(run.path, Checkpoint(1, {}, {}))
    being_removed = checkpoint.path_of(run.path, 2)
    being_removed.touch()
    with pytest.raises(RunError, match="Another training is using the run directory"):
        rudel.train_recipe("sine", epochs=1, run=run.path, resume=True)
    assert being_removed.exists()
    run.release()


def test_a_file_that_the_system_refuses_is_not_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(RunError, match=r"summary\.json cannot be read \(Is a directory\): repair that, and try again"):
        RunDirectory(tmp_path).read_summary()


def test_the_file_of_a_recipe_may_have_moved_and_may_not_be_another(tmp_path: Path) -> None:
    run, before = RunDirectory(tmp_path), {"recipe": "/home/old/project/rings.py"}
    check_same(run, before, {"recipe": "/root/project/rings.py"})
    with pytest.raises(RunError, match=r"was begun with recipe 'rings\.py', and this is 'moons\.py'"):
        check_same(run, before, {"recipe": "/home/old/project/moons.py"})


def test_a_training_may_change_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    leaves = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: monkeypatch.chdir(tmp_path / "elsewhere"))
    fit(Path("runs/a"), epochs=2, checkpoint_every=1, callbacks=[leaves])
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert {"summary.json", "model.keras", "report.html"} <= {path.name for path in (tmp_path / "runs/a").iterdir()}
    monkeypatch.chdir(tmp_path)
    fit(Path("runs/a"), epochs=3, resume=True)


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_epoch_end", "on_train_end"])
def test_a_folder_that_is_gone_is_said(tmp_path: Path, hook: str) -> None:
    class Removes(keras.callbacks.Callback):
        pass

    setattr(Removes, hook, lambda *_, **__: shutil.rmtree(tmp_path / "run", ignore_errors=True))
    with pytest.raises(RunError, match=r"^The run .*/run could not be written, because its folder is gone: train"):
        fit(tmp_path / "run", epochs=2, checkpoint_every=1, callbacks=[Removes()])
    assert not (tmp_path / "run").exists()
    fit(tmp_path / "run")


def test_a_folder_that_is_gone_hides_no_other_error_and_keeps_no_lock(tmp_path: Path) -> None:
    run = run_directory.create(tmp_path / "run", resume=False)

    def fail() -> None:
        with run.keeping_log(), run.keeping_failure():
            shutil.rmtree(run.path)
            raise ValueError("no more paper")

    with pytest.raises(ValueError, match="no more paper"):
        fail()
    run.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(run.lock)


@pytest.mark.parametrize("run", ["run", ".", "runs/run"])
def test_no_folder_is_removed_that_somebody_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "link")
    run_directory.create(tmp_path / "link" / run, resume=False).release()
    run_directory.create(Path(run), resume=False).release()
    assert Path.cwd() == tmp_path / "real"
    assert list(Path.cwd().iterdir()) == []


def test_runs_that_cannot_be_made_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(RunError, match=r"^runs cannot be written \(File exists\): give a directory with `run=`"):
        run_directory.create_next("digits")
    (tmp_path / "not-mounted").mkdir()
    made = [run_directory.create_next("digits") for _ in range(3)]
    assert [str(run.shown) for run in made] == ["runs/digits", "runs/digits-2", "runs/digits-3"]
    for run in made:
        run.release()
