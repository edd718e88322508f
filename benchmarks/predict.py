"""How much faster four hosts ask a model about a folder of photographs than one.

    sudo "$(command -v python)" benchmarks/predict.py --python /opt/rudel/bin/python --json predict.json

Nodes of a simulated Wi-Fi (`rudel lab`) get the bytes of JPEGs of 240 x 180 pixels, decode them, and run MobileNetV2
(96 x 96, width 0.35, random weights). Times are from the first batch to the finished table, with the workers started,
and the model compiled on each, by a prediction before. Four nodes ask about all files, one about `--share` of them.
"""

import json as json_format
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from rudel.backend import keras_on_jax
from rudel.cluster.calls import Calls, clients_of
from rudel.cluster.hosts import Host
from rudel.lab import Lab
from rudel.runs.model_as_run import as_run
from rudel.runs.predict_many import predict_many

NODES, WANTED, SIDE = 4, 3.5, 96


def photographs(folder: Path, count: int) -> None:
    """Writes made-up photographs: smooth colours with some noise, about 10 kB each."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 255, (6, 8, 3), dtype=np.uint8)).resize((240, 180))
        noise = random.integers(-12, 13, (180, 240, 3))
        pixels = np.clip(np.asarray(coarse, np.int16) + noise, 0, 255).astype("uint8")
        Image.fromarray(pixels).save(folder / f"{number:05}.jpg", quality=80)


def model_file(path: Path) -> Path:
    """Writes MobileNetV2 with random weights and ten classes."""
    keras = keras_on_jax()
    keras.utils.set_random_seed(0)
    weights: Any = None
    body = keras.applications.MobileNetV2((SIDE, SIDE, 3), 0.35, include_top=False, weights=weights, pooling="avg")
    images = keras.Input((SIDE, SIDE, 3), dtype="uint8")
    scaled = keras.layers.Rescaling(1 / 127.5, offset=-1)(images)
    keras.Model(images, keras.layers.Dense(10, activation="softmax")(body(scaled))).save(path)
    return path


def measured(lab: Lab, python: str, nodes: int, run: Path, files: list[Path], out: Path) -> dict[str, Any]:
    """Seconds that so many nodes take."""
    hosts = [Host(name, python=python) for name in lab.hosts[:nodes]]
    with clients_of(on=hosts, ssh_config=lab.ssh_config) as client:
        lab.stats(reset=True)
        began = time.perf_counter()
        answers = sum(1 for _ in predict_many(run, files, out, Calls(client, "run inference", "continues")))
        seconds = time.perf_counter() - began
    return {"nodes": nodes, "files": answers, "seconds": round(seconds, 2), "sent": lab.stats()["desktop"].bytes}


def main(
    python: Annotated[str, typer.Option(help="Python with Rudel on the nodes.")],
    count: Annotated[int, typer.Option(min=2000, help="Photographs.")] = 20_000,
    share: Annotated[float, typer.Option(help="Of the photographs, for one node.")] = 0.25,
    cpu: Annotated[float, typer.Option(help="Cores of a node.")] = 0.4,
    rate: Annotated[float, typer.Option(help="Of the air, Mbit/s.")] = 100.0,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the figures go.")] = None,
) -> None:
    """Measure predictions in the lab."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "photographs", count)
        files = sorted((folder / "photographs").iterdir())
        with (
            as_run(model_file(folder / "net.keras")) as run,
            Lab(nodes=NODES, cpu=cpu, rate=rate, prefix="guess", subnet="10.97.0", state=folder / "lab") as lab,
        ):
            measured(lab, python, NODES, run, files[: 64 * 4 * NODES], folder / "warm-up.csv")
            four = measured(lab, python, NODES, run, files, folder / "four.csv")
            typer.echo(json_format.dumps(four))
            one = measured(lab, python, 1, run, files[: round(count * share)], folder / "one.csv")
            typer.echo(json_format.dumps(one))
    ratio = (four["files"] / four["seconds"]) / (one["files"] / one["seconds"])
    typer.echo(f"photographs a second, four nodes against one: {ratio:.2f}x (wanted {WANTED}x)")
    if json:
        document = {"cpu": cpu, "rate": rate, "runs": [four, one], "ratio": ratio}
        json.write_text(json_format.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
