"""`rudel.fit` where `model.fit` was: ten short fits in a loop, and sources of batches, beside Keras on JAX.

    python benchmarks/fit.py

Either side runs the same script in a process of its own, without a display; they take turns. Ten fits of one epoch
count from the first call on: `first start` with no compiled programs on disk, `later start` with those of the first.
Of a source, the clock runs over the second and the third epoch.
"""

import json as json_format
import tempfile
from pathlib import Path
from typing import Annotated, Any

import measure
import typer
from measure import Contestant
from rich.console import Console
from show import ratios_table

SCRIPT = Path(__file__).parent / "contestants" / "swapped_fit.py"
SOURCES = {"PyDataset": (), "tf.data": ("tensorflow",), "DataLoader": ("torch",), "generator": ()}
_JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Rounds.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Steps an epoch from a source.")] = 1024,
    fits: Annotated[int, typer.Option(min=2, help="Short fits.")] = 10,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Time `rudel.fit` beside Keras' own, in short fits and on sources of batches."""
    console = Console()
    ratios: dict[str, list[float]] = {}
    rounds: list[dict[str, measure.Numbers]] = []
    for seed in range(repeats):
        job = {"seed": seed, "steps": steps, "fits": fits}
        rounds.append(numbers := {})
        with tempfile.TemporaryDirectory() as cache:
            for start in ("first start", "later start"):
                both = _both("short", (), job, cache)
                numbers |= {f"{start}, {name}": each for name, each in both.items()}
                _add(ratios, f"{fits} fits, {start}", both, "fits_seconds")
            _add(ratios, "a later fit", both, "later_fit_seconds")
            for kind, packages in SOURCES.items():
                both = _both(kind, packages, job, cache)
                numbers |= {f"{kind}, {name}": each for name, each in both.items()}
                _add(ratios, f"a step, {kind}", both, "step_seconds")
    console.print("Keras' seconds over Rudel's")
    console.print(ratios_table(ratios))
    if json:
        json.write_text(json_format.dumps({"machine": measure.machine(), "rounds": rounds}, indent=2) + "\n")


def _both(kind: str, packages: tuple[str, ...], job: dict[str, Any], cache: str) -> dict[str, measure.Numbers]:
    """What Rudel and Keras measure; nothing where a package lacks."""
    contestants = [
        Contestant(fit, SCRIPT, packages, " ".join(packages), (), {"kind": kind, "fit": fit}, _JAX)
        for fit in ("rudel", "keras")
    ]
    if absence := contestants[0].absence:
        typer.echo(f"{kind}: {absence}", err=True)
        return {}
    return {each.name: measure.run(each, job, {"RUDEL_CACHE": cache}) for each in contestants}


def _add(ratios: dict[str, list[float]], name: str, both: dict[str, measure.Numbers], number: str) -> None:
    if both:
        ratios.setdefault(name, []).append(both["keras"][number] / both["rudel"][number])


if __name__ == "__main__":
    typer.run(main)
