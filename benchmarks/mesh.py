"""The strategy `mesh` on 1, 2, 4 and 8 virtual devices of one computer: the same losses, at which cost.

    python benchmarks/mesh.py --data FOLDER [--classes bit,bot,...] [--steps 300] [--json mesh.json]

Every training is a process of its own; what it takes to compile is not counted.

- The convolutional net of `quickdraw`, with its augmentation, by the strategy `single` and on 1, 2, 4 and 8 devices:
  steps per second, and the loss of every span of steps beside that of one device. The devices share the computer's
  cores, so more of them cannot be faster; the overhead is what eight cost. A last training, on one device, begins with
  weights that are one rounding (2**-23) away: by how much such a net's losses move apart from rounding alone. Sums over
  devices are rounded in another order, so nothing can be closer than about that.
- The MLP of `quickdraw` by `single`, and on 8 devices in float32, mixed_bfloat16 and mixed_float16: the accuracy on
  held-out drawings.

Takes eight minutes or so; `--only` takes some of the trainings, and says of the claims what can be said of them.
"""

import json as json_format
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from claims import Verdict
from measure import BenchmarkError, machine
from rich.console import Console
from rich.table import Table
from show import claims_table

DEVICES = (1, 2, 4, 8)
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
SPANS = 10
AS_ROUNDING, MOST_OVERHEAD, AS_ACCURATE = 2.0, 0.25, 0.005
CNN, MLP, ROUNDING = "cnn, {}", "mlp, {}", "cnn, single, one rounding away"


def main(
    data: Annotated[Path, typer.Option(help="Folder laid out as Quick, Draw!'s bucket.")],
    classes: Annotated[str, typer.Option(help="Classes in that folder.")] = "",
    steps: Annotated[int, typer.Option(help="Steps of the convolutional net.")] = 300,
    mlp_steps: Annotated[int, typer.Option(help="Steps of the MLP.")] = 2048,
    drawings: Annotated[int, typer.Option(help="Drawings of each class.")] = 2600,
    only: Annotated[str, typer.Option(help="Take the trainings whose names have this in them.")] = "",
    json: Annotated[Path | None, typer.Option(help="Write everything here, too.")] = None,
) -> None:
    """Trains, and says which claims hold."""
    options: dict[str, Any] = {"drawings": drawings} | ({"classes": classes} if classes else {})
    cnn = {"data": str(data), "steps": steps, "options": options | {"net": "cnn"}, "eval_every": max(1, steps // SPANS)}
    mlp = {"data": str(data), "steps": mlp_steps, "options": options, "eval_every": max(1, mlp_steps // SPANS)}
    jobs = {CNN.format("single"): cnn | {"devices": 0}}
    jobs |= {CNN.format(devices): cnn | {"devices": devices} for devices in DEVICES}
    jobs |= {ROUNDING: cnn | {"devices": 0, "nudge": True}, MLP.format("single"): mlp | {"devices": 0}}
    jobs |= {MLP.format(precision): mlp | {"devices": 8, "precision": precision} for precision in PRECISIONS}
    found: dict[str, Any] = {}
    try:
        for name, job in jobs.items():
            if only not in name:
                continue
            found[name] = _train(job)
            print(f"{name}: {found[name]['steps_per_second']:.1f} steps/s", file=sys.stderr)
    except BenchmarkError as error:
        sys.exit(str(error))
    verdicts = _verdicts(found)
    _show(found, [asdict(verdict) for verdict in verdicts])
    if json:
        document = {"machine": machine(), "trainings": found, "claims": [asdict(verdict) for verdict in verdicts]}
        json.write_text(json_format.dumps(document, indent=1))


def _verdicts(found: dict[str, Any]) -> list[Verdict]:
    """The claims whose trainings were taken."""
    verdicts = []
    names = [CNN.format(devices) for devices in DEVICES]
    if found.keys() >= {*names, ROUNDING, CNN.format("single")}:
        rounding = max(_apart(found, name) for name in names) / _apart(found, ROUNDING)
        claim = f"CNN: no more than {AS_ROUNDING:g} times as far as one rounding"
        verdicts.append(Verdict(claim, rounding, rounding <= AS_ROUNDING))
    if found.keys() >= {names[0], names[-1]}:
        one, eight = (found[CNN.format(devices)]["steps_per_second"] for devices in (1, 8))
        overhead = one / eight - 1
        claim = f"CNN: 8 devices cost at most {MOST_OVERHEAD:.0%} more than one"
        verdicts.append(Verdict(claim, overhead, overhead <= MOST_OVERHEAD))
    precise = [MLP.format(precision) for precision in PRECISIONS]
    if found.keys() >= {*precise}:
        accuracy = max(abs(found[name]["accuracy"] - found[precise[0]]["accuracy"]) for name in precise)
        claim = "MLP: mixed precision within 0.5 points of float32"
        verdicts.append(Verdict(claim, accuracy, accuracy <= AS_ACCURATE))
    return verdicts


def _apart(found: dict[str, Any], name: str) -> float:
    """The largest difference of a curve from that of one device, each point a mean over a span of steps.

    One device is that of `single`. NaN if that was not taken.
    """
    one = f"{name.partition(',')[0]}, single"
    if one not in found:
        return float("nan")
    return max(abs(a - b) for a, b in zip(found[one]["losses"], found[name]["losses"], strict=True))


def _show(found: dict[str, Any], verdicts: list[dict[str, Any]]) -> None:
    table = Table("training", "steps/s", "losses apart", "accuracy")
    for name, numbers in found.items():
        cells = f"{numbers['steps_per_second']:.1f}", f"{_apart(found, name):.1e}", f"{numbers['accuracy']:.4f}"
        table.add_row(name, *cells)
    console = Console(width=120)
    console.print(table)
    console.print(claims_table(verdicts))


def _train(job: dict[str, Any]) -> dict[str, Any]:
    """A training in a process of its own.

    Raises:
        BenchmarkError: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--job", json_format.dumps(job | {"run": f"{folder}/run"})]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"A training failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return json_format.loads(done.stdout.strip().splitlines()[-1])


def _job(job: dict[str, Any]) -> None:
    """Trains; prints what came of it."""
    import rudel
    from rudel.backend import keras_on_jax

    devices = job.pop("devices")
    strategy = rudel.Mesh(devices=devices) if devices else "single"
    keras = keras_on_jax(light=True)

    class Nudge(keras.callbacks.Callback):
        """Changes the weights that a training begins with, by one rounding."""

        def on_train_begin(self, logs: Any = None) -> None:
            for variable in self.model.trainable_variables:
                variable.assign(variable.value * (1 + 2.0**-23))

    callbacks = [Nudge()] if job.pop("nudge", False) else []
    trained = rudel.train_recipe("quickdraw", strategy=strategy, callbacks=callbacks, verbose=False, **job)
    summary = trained.summary
    found = {
        "steps_per_second": summary["steps"] / summary["train_seconds"],
        "losses": trained.history.history["loss"],
        "accuracy": summary["metrics"]["val_accuracy"],
        "compile_seconds": summary["compile_seconds"],
    }
    print(json_format.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        _job(json_format.loads(sys.argv[2]))
    else:
        typer.run(main)
