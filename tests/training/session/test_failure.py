import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax
from rudel.errors import NonFiniteError, OptionError
from rudel.runs import run_directory

keras = keras_on_jax()


def model(rate: float = 0.01) -> Any:
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    net.compile(keras.optimizers.SGD(rate), "mse")
    return net


def test_a_run_keeps_why_it_failed(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    y = x[:, :2]
    with pytest.raises(NonFiniteError) as failure:
        rudel.fit(model(1e30), x, y, epochs=3, batch_size=16, run=tmp_path / "run", verbose=False)
    document = json.loads((tmp_path / "run" / "failure.json").read_text())
    assert document == {"error": str(failure.value)}


def test_what_is_refused_before_it_begins_leaves_nothing(tmp_path: Path) -> None:
    run = run_directory.create(tmp_path / "run", resume=False)
    run.write_config({"batch_size": 35})
    run.write_metrics([])
    with pytest.raises(OptionError), run.keeping_failure():
        raise OptionError("A batch of 35 cannot be divided into 3 equal shards.")
    run.release()
    assert not run.path.exists()
    run = run_directory.create(tmp_path / "run", resume=False)
    run.append_metrics({"epoch": 1})
    with pytest.raises(OptionError), run.keeping_failure():
        raise OptionError("No.")
    assert {path.name for path in run.path.iterdir()} >= {"metrics.jsonl", "failure.json"}


def test_an_error_in_a_callback_is_kept_and_gone_when_the_run_goes_on(tmp_path: Path) -> None:
    x = np.ones((64, 4), "float32")

    class Failing(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            if epoch == 1:
                raise ValueError("no more paper")

    settings = {"epochs": 3, "batch_size": 16, "run": tmp_path / "run", "verbose": False}
    with pytest.raises(ValueError, match="no more paper"):
        rudel.fit(model(), x, x[:, :2], callbacks=[Failing()], **settings)
    path = tmp_path / "run" / "failure.json"
    assert json.loads(path.read_text()) == {"error": "ValueError: no more paper"}
    rudel.fit(model(), x, x[:, :2], resume=True, **settings)
    assert not path.exists()
    assert (tmp_path / "run" / "summary.json").exists()
