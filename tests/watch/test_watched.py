import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watch_support import Training, closed_round, epoch

from rudel.errors import RunError
from rudel.files import write_json
from rudel.watch.watched import Watched

Begin = Callable[..., Training]


def lines(document: dict[str, Any], key: str) -> dict[str, list[tuple[float, float]]]:
    (curve,) = [curve for curve in document["curves"] if curve["key"] == key]
    return {line["name"]: line["points"] for line in curve["lines"]}


def test_a_training_from_before_its_beginning_to_its_end(tmp_path: Path, training: Begin) -> None:
    watched = Watched(tmp_path / "run")
    assert (found := watched.document())["state"] == "waiting"
    assert (found["step"], found["total"], found["curves"], found["hosts"]) == (0, None, [], None)
    run = training()
    assert watched.document()["state"] == "starting"
    run.begin()
    found = watched.document()
    assert (found["state"], found["title"], found["step"], found["total"]) == ("starting", "digits", 0, 40)
    run.epochs(1, 2)
    found = watched.document()
    assert (found["state"], found["step"], found["epoch"], found["epochs"]) == ("running", 20, 2.0, 4.0)
    assert lines(found, "loss") == {"training": [(1.0, 1.0), (2.0, 0.5)], "validation": [(1.0, 1.1), (2.0, 0.55)]}
    assert found["result"] == {"key": "val_accuracy", "name": "accuracy", "validation": True, "value": 0.75}
    assert found["speed"] == [(0.0, 0.5, 20.0), (0.5, 1.0, 20.0)]
    assert found["learning_rate"] == 0.001
    run.epochs(3, 4).end()
    found = watched.document()
    assert (found["state"], found["step"], found["report"]) == ("finished", 40, True)
    assert found["seconds"] == 2.0
    assert found["result"]["value"] == 0.875


def test_as_long_as_nothing_changes_neither_does_the_document(tmp_path: Path, training: Begin) -> None:
    training().begin().epochs(1).rounds(closed_round(1))
    watched = Watched(tmp_path / "run")
    assert json.dumps(watched.document()) == json.dumps(watched.document())


def test_a_training_that_is_killed_and_resumed_from_an_earlier_epoch(tmp_path: Path, training: Begin) -> None:
    watched = Watched(tmp_path / "run")
    training().begin().epochs(1, 2, 3).stop()
    assert (found := watched.document())["state"] == "stopped"
    assert found["step"] == 30
    again = training(resume=True).go_on_from(1)
    found = watched.document()
    assert (found["state"], found["step"]) == ("running", 10)
    assert lines(found, "accuracy")["training"] == [(1.0, 0.6)]
    again.epochs(1.5)
    assert lines(watched.document(), "accuracy")["training"] == [(1.0, 0.6), (1.5, 1 - 0.4 / 1.5)]


def test_a_torn_line_is_waited_for(tmp_path: Path, training: Begin) -> None:
    run = training().begin().epochs(1)
    watched = Watched(tmp_path / "run")
    text = json.dumps(epoch(2))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(text[:30])
        file.flush()
        assert watched.document()["step"] == 10
        file.write(text[30:] + "\n")
        file.flush()
        assert watched.document()["step"] == 20


def test_a_directory_that_is_removed_and_made_anew(tmp_path: Path, training: Begin) -> None:
    run = training().begin().epochs(1, 2).rounds(closed_round(1))
    watched = Watched(tmp_path / "run")
    watched.document()
    run.stop()
    shutil.rmtree(run.path)
    found = watched.document()
    assert (found["state"], found["step"], found["curves"], found["hosts"]) == ("waiting", 0, [], None)
    assert "removed" in found["message"]
    training().begin(recipe="sine").epochs(1)
    found = watched.document()
    assert (found["state"], found["title"], found["step"]) == ("running", "sine", 10)


def test_a_training_on_another_computer_is_seen_by_its_news(tmp_path: Path, training: Begin) -> None:
    run = training().begin().epochs(1)
    watched = Watched(run.path)
    run.stop()  # its lock is not to be seen from here
    assert watched.document()["state"] == "stopped"
    run.epochs(2)
    later(run.path / "metrics.jsonl", 1)
    assert watched.document()["state"] == "running"


def later(path: Path, seconds: float) -> None:
    """Dates a file so many seconds ahead, as if it was written then."""
    os.utime(path, (time.time() + seconds, time.time() + seconds))


def test_a_training_that_began_and_ended_between_two_looks_does_not_run(
    tmp_path: Path, training: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rudel.watch.watched._CLOSE_SECONDS", 0.0)

    training().begin().epochs(1).stop()
    watched = Watched(tmp_path / "run")
    assert watched.document()["state"] == "stopped"
    run = training(resume=True).go_on_from(1).epochs(2)
    later(run.path / "config.json", 1)
    run.stop()
    assert watched.document()["state"] == "stopped"
    assert watched.document()["state"] == "stopped"
    run.epochs(3)  # so it goes on, on another computer
    later(run.path / "metrics.jsonl", 2)
    assert watched.document()["state"] == "running"
    later(run.path / "config.json", 3)
    assert watched.document()["state"] == "stopped", "nor does it prove that the next one runs"


def test_rare_news_from_another_computer_are_waited_for(tmp_path: Path, training: Begin) -> None:
    run = training().begin().epochs(1)
    run.stop()
    for path in run.path.iterdir():
        later(path, -40_000)
    watched, found = Watched(run.path), []
    for number, seconds in enumerate((30_000, 24_000, 18_000, 12_000, 6_000)):
        if number:
            run.epochs(number + 1)
        later(run.path / "metrics.jsonl", -seconds)
        found.append(watched.document()["state"])
    assert found[-1] == "running"


@pytest.mark.parametrize("close", [0.0, 600.0])
def test_a_training_that_begins_on_another_computer_is_starting(
    tmp_path: Path, training: Begin, monkeypatch: pytest.MonkeyPatch, close: float
) -> None:
    monkeypatch.setattr("rudel.watch.watched._CLOSE_SECONDS", close)
    watched = Watched(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    assert watched.document()["state"] == "waiting"
    run = training().begin()
    later(run.path / "config.json", 1)
    run.stop()  # its lock is not to be seen from here
    assert watched.document()["state"] == "starting"


def test_why_it_failed_on_another_computer(tmp_path: Path, training: Begin) -> None:
    run = training().begin().epochs(1)
    run.stop()
    watched = Watched(run.path)
    watched.document()
    run.epochs(2)
    later(run.path / "metrics.jsonl", 1)
    assert watched.document()["state"] == "running"
    write_json(run.path / "failure.json", {"error": "The disk is full."})
    found = watched.document()
    assert (found["state"], found["message"]) == ("failed", "The disk is full.")


def test_why_it_failed(tmp_path: Path, training: Begin) -> None:
    run = training().begin().epochs(1)
    write_json(run.path / "failure.json", {"error": "The loss became NaN at step 12."})
    watched = Watched(run.path)
    assert watched.document()["state"] == "running"
    run.stop()
    found = watched.document()
    assert (found["state"], found["message"]) == ("failed", "The loss became NaN at step 12.")


def test_hosts(tmp_path: Path, training: Begin) -> None:
    run = training().begin(strategy="diloco").rounds(*(closed_round(number) for number in range(1, 5)))
    watched = Watched(run.path)
    hosts = watched.document()["hosts"]
    assert (hosts["count"], hosts["rounds"], hosts["steps"], hosts["seconds"]) == (2, 4, 40, 2.0)
    assert hosts["computing"] == pytest.approx(0.8)
    first = hosts["rows"][0]
    assert (first["name"], first["state"], first["steps"], first["moved"]) == ("pi@raspi1", "training", 20, 12000)
    assert first["now"] == pytest.approx(10.0)
    assert first["strip"] == "7" * 128
    assert hosts["sent"][-1] == 8000
    assert (watched.document()["step"], hosts["arrivals"]) == (40, 0)


def test_hosts_that_wait_for_nobody_arrive(tmp_path: Path, training: Begin) -> None:
    lines = [closed_round(number) for number in (2, 4)]
    for line in lines:
        line["hosts"] = {name: figures | {"arrivals": 1} for name, figures in line["hosts"].items()}
    hosts = Watched(training().begin(strategy="async").rounds(*lines).path).document()["hosts"]
    assert (hosts["arrivals"], hosts["steps"]) == (4, 20)


def test_hosts_that_are_late_lost_and_back(tmp_path: Path, training: Begin) -> None:
    run = training().begin(strategy="diloco").rounds(closed_round(1))
    watched = Watched(run.path)

    def states() -> dict[str, str]:
        return {row["name"]: row["state"] for row in watched.document()["hosts"]["rows"]}

    run.rounds(*(closed_round(number, ("pi@raspi1",)) for number in (2, 3, 4)))
    assert states() == {"pi@raspi1": "training", "pi@raspi2": "late"}
    run.rounds({"event": "lost", "host": "pi@raspi2", "seconds": 2.1, "reason": "it does not answer"})
    assert states()["pi@raspi2"] == "lost"
    assert watched.document()["hosts"]["changes"] == [
        {"seconds": 2.1, "host": "pi@raspi2", "what": "was lost: it does not answer"}
    ]
    run.rounds({"event": "joining", "host": "pi@raspi2", "seconds": 3.0, "reason": ""})
    assert states()["pi@raspi2"] == "joining"
    run.rounds({"event": "joined", "host": "pi@raspi2", "seconds": 3.2, "reason": ""}, closed_round(8))
    assert states() == {"pi@raspi1": "training", "pi@raspi2": "training"}
    row = watched.document()["hosts"]["rows"][1]
    assert row["lost"] == 1
    assert [absence[0] for absence in row["absences"]] == ["lost", "joining"]
    assert "-" in row["strip"]
    run.rounds({"event": "standby", "host": "pi@raspi2", "seconds": 3.4, "reason": "slow"})
    assert states()["pi@raspi2"] == "standby"
    run.stop()
    assert set(states().values()) == {None}


def test_damaged_lines_are_passed_over_and_counted(tmp_path: Path, training: Begin) -> None:
    run = (
        training().begin().epochs(1).rounds(closed_round(1), {"round": 2}, {"round": "x", "hosts": 3}, closed_round(3))
    )
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "st\n')
    run.epochs(3)
    found = Watched(run.path).document()
    assert (found["damaged"], found["step"], found["hosts"]["rounds"]) == (3, 30, 2)


def test_a_training_without_any_metric(tmp_path: Path, training: Begin) -> None:
    run = training().begin(data={}, epochs=None)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "step": 5, "seconds": 1.0, "loss": null}\n')
    found = Watched(run.path).document()
    assert (found["state"], found["total"], found["curves"], found["result"]) == ("running", None, [], None)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_text("no run"), "is not a run directory"),
        (lambda path: (path / "notes").mkdir(parents=True), "has no config.json"),
        (lambda path: write_json(_made(path / "digits") / "config.json", {}), "run/digits"),
    ],
)
def test_what_cannot_be_a_run_is_refused(tmp_path: Path, make: Callable[[Path], Any], error: str) -> None:
    make(tmp_path / "run")
    with pytest.raises(RunError, match=error):
        Watched(tmp_path / "run")


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
