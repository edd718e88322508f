"""Where Keras runs on TensorFlow, hosts train by its own steps, and what comes out is a model like any other.

All trainings are made by one process on TensorFlow, with one worker that has none of its code. With the environment
variable RUDEL_TEST_BACKEND=torch, all of that is tested with PyTorch, which has to be installed.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import rudel
from rudel.errors import ClusterError
from rudel.export.process import ENVIRONMENT
from rudel.replicas.host_checks import check_versions
from rudel.shipping.host_packages import versions_here

BACKEND = os.environ.get("RUDEL_TEST_BACKEND", "tensorflow")

OWN = """
import keras


class Scaled(keras.layers.Layer):
    def __init__(self, factor=1.0, **settings):
        super().__init__(**settings)
        self.factor = factor

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return super().get_config() | {"factor": self.factor}


def squared(truth, answer):
    return keras.ops.mean(keras.ops.square(truth - answer), axis=-1)
"""

DRIVER = """
import json, os, subprocess, sys
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

import rudel
import keras
from own import Scaled, squared

layers = keras.layers
keras.utils.set_random_seed(3)
random = np.random.default_rng(0)
x = random.normal(size=(512, 6)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int32")
results = {}


def classifier(*between):
    model = keras.Sequential([keras.Input((6,)), *between, layers.Dense(16, activation="relu"), layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], jit_compile=False)
    return model


class Logging(keras.Sequential):
    def test_step(self, data):
        return {"targets": keras.ops.sum(keras.ops.cast(data[1], "float32"))}


def refused(*arguments, **settings):
    try:
        rudel.fit(*arguments, **settings)
    except rudel.RudelError as error:
        return f"{type(error).__name__}: {error}"


def scheduled():
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), Scaled(0.5), layers.Dense(1)])
    schedule = keras.optimizers.schedules.CosineDecay(0.02, 40)
    model.compile(keras.optimizers.Adam(schedule, clipnorm=1.0), loss=squared, metrics=["mae"], jit_compile=False)
    return model


def main():
    here = Path.cwd()
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--name", "a"]
        command += ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
        with (here / "worker.log").open("w") as log:
            environment = {k: v for k, v in os.environ.items() if k not in ("KERAS_BACKEND", "PYTHONPATH")}
            worker = subprocess.Popen(command, cwd=elsewhere, env=environment, stdout=log, stderr=log)
        try:
            client.wait_for_workers(1, timeout=240)
            train(client)
        finally:
            worker.kill()
            worker.wait()
    (here / "results.json").write_text(json.dumps(results))


def train(client):
    results["single"] = refused(classifier(), x, y)

    whole, own = scheduled(), scheduled()
    exact = {"batch_size": 16, "shuffle": False}
    rudel.fit(whole, x, x[:, :1], epochs=1, client=client, strategy=rudel.Diloco(round_steps=12), **exact)
    own.fit(x, x[:, :1], epochs=1, verbose=0, **exact)
    results["exact"] = [float(np.abs(a - b).max()) for a, b in zip(whole.get_weights(), own.get_weights(), strict=True)]
    results["moved"] = float(np.abs(whole.get_weights()[0] - scheduled().get_weights()[0]).max())

    model = classifier(layers.BatchNormalization(), layers.Dropout(0.1))
    settings = {"client": client, "strategy": rudel.Diloco(round_steps=16), "batch_size": 16, "run": "run"}
    settings["validation"] = (x[:100], y[:100])
    rudel.fit(model, x, y, epochs=2, **settings)
    history = rudel.fit(model, x, y, epochs=4, resume=True, **settings)
    results["history"] = history.history
    results["evaluate"] = model.evaluate(x[:100], y[:100], verbose=0, return_dict=True)
    np.save("predicted.npy", model.predict(x, verbose=0))
    np.save("asked.npy", rudel.predict(model, x))

    own = Logging([keras.Input((6,)), layers.Dense(2)])
    own.compile("sgd", jit_compile=False)
    results["own"] = [rudel.evaluate(own, x, y, batch_size=200), own.evaluate(x, y, 200, verbose=0, return_dict=True)]

    normalised = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(momentum=0.9), layers.Dense(2)])
    normalised.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    threes = np.full_like(x, 3)
    hosts = rudel.Diloco(round_steps=4)
    rudel.fit(normalised, threes, x[:, :2], steps=16, batch_size=8, client=client, strategy=hosts)
    results["mean"] = float(normalised.layers[0].moving_mean.numpy()[0])

    failing = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
    failing.compile(keras.optimizers.SGD(1e30), "mse", jit_compile=False)
    results["failing"] = refused(failing, x, x[:, :2], client=client, epochs=2)


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn], warm_python: str) -> Path:
    """Where the process on that backend has been."""
    if BACKEND not in versions_here(BACKEND):
        lacking(f"There is no {BACKEND}: pip install {BACKEND}.")
    folder = tmp_path_factory.mktemp(BACKEND)
    (folder / "own.py").write_text(OWN)
    (folder / "driver.py").write_text(DRIVER)
    environment = ENVIRONMENT | {"KERAS_BACKEND": BACKEND}
    done = subprocess.run(
        [warm_python, "driver.py"], cwd=folder, env=os.environ | environment, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    log = folder / "worker.log"
    assert done.returncode == 0, done.stderr[-6000:] + (log.read_text()[-3000:] if log.exists() else "")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def test_one_host_takes_the_very_steps_that_keras_would(results: dict[str, Any]) -> None:
    assert max(results["exact"]) < 1e-5 < 0.01 < results["moved"]


def test_it_learns_and_tells_what_keras_tells(results: dict[str, Any]) -> None:
    history = results["history"]
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history["val_accuracy"][-1] > 0.9
    for name, value in results["evaluate"].items():
        assert history[f"val_{name}"][-1] == pytest.approx(value, rel=1e-4)


def test_what_a_test_step_of_ones_own_logs_is_the_result(results: dict[str, Any]) -> None:
    found, expected = results["own"]
    assert set(expected) == {"targets"}
    assert found == expected


def test_moving_statistics_keep_pace_with_those_of_one_computer(results: dict[str, Any]) -> None:
    assert results["mean"] == pytest.approx(3 * (1 - 0.9**16), abs=0.1)


def test_a_training_is_resumed(results: dict[str, Any], folder: Path) -> None:
    assert len(results["history"]["loss"]) == 4
    assert json.loads((folder / "run" / "summary.json").read_text())["steps"] == 4 * 32


def test_the_run_says_what_took_the_steps_and_jax_can_read_it(folder: Path) -> None:
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert (summary["backend"], summary["strategy"]) == (BACKEND, "diloco")
    assert BACKEND in summary["versions"]
    assert f"Keras on {BACKEND}, slower" in (folder / "run" / "report.html").read_text()
    x = np.random.default_rng(0).normal(size=(512, 6)).astype("float32")
    predicted = np.load(folder / "predicted.npy")
    np.testing.assert_allclose(rudel.predict(rudel.load(folder / "run"), x), predicted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.load(folder / "asked.npy"), predicted, rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_no_number_ends_the_training(results: dict[str, Any]) -> None:
    assert results["failing"].startswith("NonFiniteError: The loss became NaN or infinite on a, in round 1")


def test_on_one_computer_it_is_refused_with_what_helps(results: dict[str, Any]) -> None:
    assert results["single"].startswith(
        f"ModelError: Keras runs on {BACKEND} here, and on one computer Rudel trains on JAX"
    )
    assert "KERAS_BACKEND=jax" in results["single"]
    assert "model.fit" in results["single"]


def test_a_host_without_the_backend_is_told_with_the_command_that_adds_it(folder: Path) -> None:
    there = versions_here(BACKEND)
    version = there[BACKEND]
    described = {"name": "raspi1", "backend": BACKEND, "versions": there}
    check_versions(described)
    without = {name: found for name, found in there.items() if name != BACKEND}
    with pytest.raises(ClusterError, match=f"raspi1 has no {BACKEND}.*python -m pip install {BACKEND}=={version}"):
        check_versions(described | {"versions": without})
    with pytest.raises(ClusterError, match=r"raspi1 has keras 2\.0, and this computer has "):
        check_versions(described | {"versions": there | {"keras": "2.0"}})
