"""What modules log, on the terminal and in a run directory."""

import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rudel.cli.log import log_to_terminal
from rudel.errors import ClusterError
from rudel.runs import run_directory

log = logging.getLogger("rudel.training.example")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    logger = logging.getLogger("rudel")
    handlers, level = logger.handlers, logger.level
    yield
    logger.handlers, logger.level = handlers, level
    logger.setLevel(level)


def test_warnings_are_shown_and_all_of_it_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    log_to_terminal(verbose=False)
    monkeypatch.setattr(sys, "stderr", shown)  # as a live display does after that
    log.info("a detail")
    log.warning("a warning")
    assert shown.getvalue() == "a warning\n"
    log_to_terminal(verbose=True)
    log.info("a detail")
    assert shown.getvalue().count("\n") == 2, "once, though this was called twice"
    assert shown.getvalue().endswith(" rudel.training.example: a detail\n")


def test_the_log_of_a_run_brings_no_details_to_the_log_of_the_program(tmp_path: Path) -> None:
    """One that has called `logging.basicConfig()`."""
    shown = logging.StreamHandler(io.StringIO())
    run = run_directory.create(tmp_path / "run", resume=False)
    logging.getLogger().addHandler(shown)
    try:
        with run.keeping_log():
            log.info("a detail")
            log.warning("a warning")
    finally:
        logging.getLogger().removeHandler(shown)
        run.release()
    assert shown.stream.getvalue() == "a warning\n"


def test_a_disk_without_room_for_the_log_hides_no_other_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_directory.create(tmp_path / "run", resume=False)
    run.log.symlink_to("/dev/full")
    with run.keeping_log():
        log.info("a detail")
    run.release()
    assert "Logging error" not in capfd.readouterr().err


def test_warnings_are_shown_where_no_log_is_set_up(tmp_path: Path) -> None:
    program = (
        "import logging, pathlib, sys; from rudel.runs.run_directory import RunDirectory\n"
        "with RunDirectory(pathlib.Path(sys.argv[1])).keeping_log():\n"
        "    logging.getLogger('rudel.training').info('a detail')\n"
        "    logging.getLogger('rudel.training').warning('a warning')"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stderr == "a warning\n"
    assert (tmp_path / "log.txt").read_text().count("\n") == 2


def test_a_run_keeps_the_log_of_its_own_time_with_tracebacks(tmp_path: Path) -> None:
    run = run_directory.create(tmp_path / "run", resume=False)
    log.info("before")

    def fail() -> None:
        log.info("a detail")
        raise ClusterError("No host can continue.") from KeyError("the cause")

    with pytest.raises(ClusterError), run.keeping_log(), run.keeping_failure():
        fail()
    log.info("after")
    run.release()
    kept = (tmp_path / "run/log.txt").read_text()
    assert "INFO    rudel.training.example: a detail" in kept
    assert "KeyError: 'the cause'" in kept
    assert "rudel.errors.ClusterError: No host can continue." in kept
    assert "before" not in kept
    assert "after" not in kept


def test_runs_that_train_at_the_same_time_keep_a_log_each_and_leave_the_logger_as_it_was(tmp_path: Path) -> None:
    logger = logging.getLogger("rudel")
    before = logger.level, logger.propagate, logger.handlers[:]
    first, second = (run_directory.create(tmp_path / name, resume=False) for name in ("first", "second"))
    inside, left = threading.Event(), threading.Event()

    def other() -> None:
        with second.keeping_log():
            log.info("of the second")
            inside.set()
            left.wait(60)

    thread = threading.Thread(target=other)
    with first.keeping_log():
        thread.start()
        inside.wait(60)
        log.info("of the first")
        elsewhere = threading.Thread(target=log.info, args=["of neither"])
        elsewhere.start()
        elsewhere.join()
    left.set()
    thread.join()
    assert (logger.level, logger.propagate, logger.handlers) == before
    for run, its in ((first, "first"), (second, "second")):
        lines = run.log.read_text().splitlines()
        assert [line.partition("example: ")[2] for line in lines] == [f"of the {its}", "of neither"]
        run.release()
