"""Rudel's compiler for microcontrollers against TensorFlow Lite Micro: instructions, code, RAM, flash, on a Cortex-M4F.

    python benchmarks/micro.py --models FOLDER [--only kws,ic] [--json micro.json]

FOLDER holds the models of TensorFlow Lite Micro's examples (hello_world_int8.tflite, micro_speech_int8.tflite,
person_detect_int8.tflite); the four networks of MLPerf Tiny are built and trained as twins by
contestants/micro_twin.py, with TensorFlow in a process of its own, and are kept in Rudel's cache.

What is counted: instructions of one inference, not clock cycles, by QEMU's board mps2-an386 (`-icount`), which is exact
and the same on every machine. Code is flash without the model's own numbers: for Rudel without weights, biases,
multipliers and tables, for TFLM without the .tflite file. RAM is the arena with input and output in it, and other
variables, without stack. The figures of TFLM were measured once, on the same board: -O2 kernels, TFLM of August 2026
with CMSIS-NN, int8-only registrations, which is the interpreter's best case; its set-up, before the first inference, is
not counted.

Outputs are compared bit by bit: on the host with the interpreter of --rounding where it is installed (tflite-micro,
ai-edge-litert), and on the board with the host.
"""

import json as json_format
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from cluster_record import wide_console
from micro_claims import CLAIMS, TFLM, Needs, broken
from micro_show import layers_table, needs_table

from rudel.cache import cache_folder
from rudel.errors import CompileError, RudelError
from rudel.micro.arithmetic import Rounding
from rudel.micro.bench import Measurement, measure, random_inputs
from rudel.micro.bench.host import host_outputs
from rudel.micro.compiler import compile_model
from rudel.micro.interpreters import reference_outputs

TWIN = Path(__file__).parent / "contestants" / "micro_twin.py"
EXAMPLES = ("hello_world", "micro_speech", "person_detect")


def main(
    models: Annotated[Path | None, typer.Option(help="Folder with the three models of TFLM's examples.")] = None,
    only: Annotated[str | None, typer.Option(help=f"Which of {', '.join(TFLM)}, separated by commas.")] = None,
    target: Annotated[str, typer.Option(help="What to compile for; TFLM's figures are for cortex-m4.")] = "cortex-m4",
    rounding: Annotated[str, typer.Option(help="Whose bits: tflm, litert or xnnpack.")] = "tflm",
    inputs: Annotated[int, typer.Option(min=1, help="Random inputs to run on the board.")] = 3,
    python: Annotated[str, typer.Option(help="A Python with TensorFlow and Keras, for the twins.")] = sys.executable,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer.")] = False,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Measure seven models on an emulated Cortex-M4F."""
    console = wide_console()
    chosen = [name.strip() for name in only.split(",")] if only else list(TFLM)
    if unknown := [name for name in chosen if name not in TFLM]:
        typer.echo(f"There is no model {unknown[0]}: there are {', '.join(TFLM)}.", err=True)
        raise typer.Exit(1)
    measured: dict[str, Measurement] = {}
    notes: list[str] = []
    try:
        with console.status("") as status:
            for name in chosen:
                status.update(name)
                path = model_file(name, models, python, notes)
                if path is not None:
                    measured[name] = measured_model(path, target, _rounding(rounding), inputs, notes)
    except RudelError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    needs = {name: Needs(m.instructions, m.code, m.ram) for name, m in measured.items()}
    failures = broken(needs) if target == "cortex-m4" else []
    failures += [f"{name}: {m.differing} of {m.inputs} outputs differ" for name, m in measured.items() if m.differing]
    console.print(needs_table(measured, target))
    if layers:
        for name, m in measured.items():
            console.print(layers_table(name, m))
    for sentence in [*notes, *(failures or (["All claims hold."] if target == "cortex-m4" else []))]:
        console.print(sentence, highlight=False)
    if json:
        document = {
            "benchmark": "micro",
            "target": target,
            "rounding": rounding,
            "models": {name: {**asdict(m), "code": m.code} for name, m in measured.items()},
            "tflm": {name: asdict(TFLM[name]) for name in measured},
            "claims": {name: asdict(CLAIMS[name]) for name in measured},
            "broken": failures,
            "notes": notes,
        }
        json.write_text(json_format.dumps(document, indent=2) + "\n")
    if failures:
        raise typer.Exit(1)


def _rounding(name: str) -> Rounding:
    for rounding in ("tflm", "litert", "xnnpack"):
        if name == rounding:
            return rounding
    raise RudelError(f"There is no rounding `{name}`: choose one of tflm, litert, xnnpack.")


def model_file(name: str, models: Path | None, python: str, notes: list[str]) -> Path | None:
    """Where a model is; a twin is made first if need be. None, and a note, where there is none."""
    if name in EXAMPLES:
        path = models / f"{name}_int8.tflite" if models else None
        if path is None or not path.is_file():
            notes.append(f"{name} is left out: --models names no folder with {name}_int8.tflite.")
            return None
        return path
    path = cache_folder() / "benchmarks" / "micro" / f"{name}.tflite"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".part")
        done = subprocess.run([python, str(TWIN), name, str(made)], capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            notes.append(f"{name} is left out: the twin could not be made ({said}).")
            return None
        made.replace(path)
    return path


def measured_model(path: Path, target: str, rounding: Rounding, count: int, notes: list[str]) -> Measurement:
    """Compiles a model twice, checks the host's bits, and measures it on the board."""
    compiled = compile_model(path, target=target, rounding=rounding)
    here = compile_model(path, rounding=rounding)
    inputs = random_inputs(compiled, count)
    outputs = host_outputs(here, inputs)
    ports = here.inputs
    try:
        arrays = [[np.frombuffer(given, ports[0].dtype).reshape(ports[0].shape)] for given in inputs]
        expected = [
            b"".join(y.tobytes() for y in run) for run in reference_outputs(path.read_bytes(), rounding, arrays)
        ]
    except CompileError as error:
        notes.append(f"{path.stem} is not compared with an interpreter: {error}")
        expected = outputs
    if expected != outputs:
        raise RudelError(f"`{path.name}`: the C has other bits than the interpreter of {rounding}.")
    return measure(compiled, inputs, outputs)


if __name__ == "__main__":
    typer.run(main)
