"""`rudel tune` on this computer."""

import json

import pytest


@pytest.mark.usefixtures("warm_trials")
def test_the_best_settings_are_trained_again(rudel, tmp_path) -> None:
    sweep = ["tune", "digits", "--set", "lr=log:1e-3..1e-2", "--set", "filters=4,8", "--set", "dropout=0.1"]
    sweep += ["--set", "validation=0.1987"]  # leaves 1,440 digits, 45 whole batches
    result = rudel(*sweep, "--trials", 2, "--epochs", 2, "--no-prune", "--final", "--run", "sweep", "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert [trial["state"] for trial in document["trials"]] == ["finished", "finished"]
    best, final = (json.loads((tmp_path / "sweep" / name / "config.json").read_text()) for name in ("best", "final"))
    assert final["options"] == best["options"]
    assert final["options"]["dropout"] == 0.1
    assert final["learning_rate"] == best["learning_rate"] == document["settings"]["lr"]
    assert final["epochs"] == best["epochs"] == 2
    assert {run["name"] for run in json.loads(rudel("runs", "--in", ".", "--json").out)} == {
        "sweep/best",
        "sweep/final",
    }
    again = rudel(*sweep, "--trials", 2, "--epochs", 2, "--run", "sweep")
    assert "already holds a sweep: add --resume" in again.error
    assert "log:LOW..HIGH" in rudel("tune", "digits", "--set", "lr=log:1").error
