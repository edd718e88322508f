import threading
from pathlib import Path

import pytest

from rudel.errors import RunError
from rudel.runs import run_directory
from rudel.watch.lock import is_locked


def test_a_directory_is_locked_while_a_training_has_it(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "run")
    training = run_directory.create(tmp_path / "run", resume=False)
    assert is_locked(tmp_path / "run")
    training.write_config({})
    training.release()
    assert not is_locked(tmp_path / "run")


def test_looking_keeps_no_training_from_beginning(tmp_path: Path) -> None:
    first = run_directory.create(tmp_path, resume=False)
    first.write_config({})
    first.release()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.001):
            is_locked(tmp_path)

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(200):
            run_directory.create(tmp_path, resume=True).release()
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()


def test_two_trainings_are_still_refused(tmp_path: Path) -> None:
    training = run_directory.create(tmp_path, resume=False)
    with pytest.raises(RunError, match="Another training is using"):
        run_directory.create(tmp_path, resume=False)
    training.release()
