"""`rudel train --callback MODULE:FACTORY`."""

import json

import pytest

TRACKING = """
import json
import keras

class Tracker(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        with open("tracked.jsonl", "a") as file:
            file.write(json.dumps({"epoch": epoch, **logs}) + chr(10))

def nothing():
    return 7

def failing():
    raise LookupError("no server")
"""


@pytest.fixture(autouse=True)
def tracking(rudel, tmp_path, monkeypatch) -> None:
    (tmp_path / "own_tracking.py").write_text(TRACKING)
    (tmp_path / "broken_tracking.py").write_text("import json\nnothing.make()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "own_tracking", raising=False)


def test_a_callback_of_ones_own_sees_every_epoch(rudel, tmp_path) -> None:
    result = rudel("train", "sine", "--epochs", 2, "--callback", "own_tracking:Tracker", "--run", "run")
    assert result.code == 0, result.err
    tracked = [json.loads(line) for line in (tmp_path / "tracked.jsonl").read_text().splitlines()]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["val_loss"] for line in tracked] == [record["val_loss"] for record in records]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_tracking", "MODULE:FACTORY"),
        ("own_tracking:Nobody", "cannot be imported"),
        ("nowhere_at_all:x", "No module named"),
        ("own_tracking:nothing", "type int"),
        ("own_tracking:failing", "no server"),
        ("broken_tracking:make", "cannot be imported in line 2 of "),
        ("broken_tracking:make", "broken_tracking.py (NameError: name 'nothing' is not defined)"),
        (".tracking:make", "MODULE:FACTORY"),
    ],
)
def test_what_is_no_callback_is_said(rudel, tmp_path, name: str, message: str) -> None:
    assert message in rudel("train", "digits", "--callback", name, "--run", "run").error
    assert not (tmp_path / "run").exists()
