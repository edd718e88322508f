"""Experiment trackers are Keras callbacks: MLflow with a local store, Weights & Biases offline."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NET = """
import rudel, keras, numpy as np
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
def losses(callback):
    return rudel.fit(model, x, x.sum(1), epochs=3, callbacks=[callback], verbose=0).history["loss"]
"""
MLFLOW = """
import mlflow
with mlflow.start_run() as run:
    kept = losses(mlflow.keras.MlflowCallback())
found = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
assert [(each.step, each.value) for each in found] == list(enumerate(kept)), (found, kept)
"""
WANDB = """
import wandb
from wandb.integration.keras import WandbMetricsLogger
wandb.init(project="small", mode="offline", settings=wandb.Settings(console="off"))
kept = losses(WandbMetricsLogger())
assert wandb.run.summary["epoch/loss"] == kept[-1], (dict(wandb.run.summary), kept)
wandb.finish()
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(MLFLOW, id="mlflow", marks=pytest.mark.others("mlflow")),
        pytest.param(WANDB, id="wandb", marks=pytest.mark.others("wandb")),
    ],
)
def test_a_tracker_gets_the_losses(script: str, tmp_path: Path) -> None:
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", NET + script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
