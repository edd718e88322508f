"""`rudel.fit` on workers on this computer, with Keras on the backend that KERAS_BACKEND names.

The job is that of `keras_fit.py`. There are as many workers as the environment variable HOSTS says, each a process of
its own with one thread. The clock is that of the run: it begins when the workers are ready to take their first step.
"""

import os
import tempfile
from pathlib import Path

import job
import keras
import keras_fit
from distributed import Client, LocalCluster

import rudel
from rudel.runs.run_directory import RunDirectory


def main() -> None:
    """Trains, evaluates, prints."""
    given, hosts = job.read(), int(os.environ["HOSTS"])
    keras.utils.set_random_seed(given.seed)
    model, (x, y), (x_held_out, y_held_out) = keras_fit.prepared(given)
    strategy = os.environ.get("STRATEGY", "diloco")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=hosts, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        settings = {"batch_size": given.batch_size, "steps": given.steps, "strategy": strategy, "seed": given.seed}
        rudel.fit(model, x, y, client=client, run=Path(folder) / "run", **settings)
        summary = RunDirectory(Path(folder) / "run").read_summary() or {}
    results = rudel.evaluate(model, x_held_out, y_held_out)
    job.answer(
        ["keras", keras.backend.backend(), "numpy"],
        steps=given.steps,
        step_seconds=summary["train_seconds"] / given.steps,
        compile_seconds=summary["compile_seconds"],
        accuracy=results["accuracy"],
    )


if __name__ == "__main__":
    main()
