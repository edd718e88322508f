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
    shown = rudel(*sweep, "--trials", 2, "--epochs", 2, "--no-prune", "--resume", "--run", "sweep").out
    settings = document["settings"]
    assert f"--learning-rate {settings['lr']} --set filters={settings['filters']}\n" in shown
    again = rudel(*sweep, "--trials", 2, "--epochs", 2, "--run", "sweep")
    assert "already holds a sweep: add --resume" in again.error
    assert "log:LOW..HIGH" in rudel("tune", "digits", "--set", "lr=log:1").error


@pytest.mark.usefixtures("warm_trials")
def test_a_sweep_of_which_no_trial_finished_ends_with_1(rudel, tmp_path) -> None:
    (tmp_path / "fragile.py").write_text(
        "import pathlib\nimport keras\nimport numpy as np\nimport rudel\n"
        "def data():\n"
        "    return rudel.Dataset(*rudel.split(rudel.Examples(np.zeros((8, 2)), np.zeros(8)), 0.5))\n"
        "def model(dataset, units: int = 1):\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'made').mkdir()\n"  # fails the second time, which is in the trial
        "    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return model\n"
    )
    result = rudel("tune", "fragile.py", "--set", "units=1,2", "--trials", 1, "--run", "sweep", "--json")
    assert result.code == 1
    assert "No trial finished." in result.err
    assert [trial["state"] for trial in json.loads(result.out)["trials"]] == ["failed"]
