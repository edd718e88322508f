"""Rudel's compiler for microcontrollers against TensorFlow Lite Micro: instructions, code, RAM, flash, on a Cortex-M4F.

    python benchmarks/micro.py [--models FOLDER] [--only kws_dscnn,vww_96] [--json micro.json]

FOLDER holds the int8 reference models of MLPerf Tiny as MLCommons publishes them (https://github.com/mlcommons/tiny:
ad01_int8.tflite, kws_dscnn_int8.tflite, ic_resnet8_int8.tflite, vww_96_int8.tflite, sww_ref_int8.tflite) and those of
TensorFlow Lite Micro's examples (hello_world_int8.tflite, micro_speech_int8.tflite, person_detect_int8.tflite). Without
--models it is `data/tflite` in the folder that RUDEL_SHARED names, or in `shared` beside the checkout. A model that is
not there is left out with a note.

What is counted: instructions of one inference, not clock cycles, by QEMU's board mps2-an386 (`-icount`), which is exact
and the same on every machine. Clock cycles are estimated (`rudel.micro.bench.timings`), and stand beside the best that
a vendor has published for a Cortex-M4. Code is flash without the model's own numbers: for Rudel without weights,
biases, multipliers and tables, for TFLM without the .tflite file. RAM is the arena with input and output in it, and
other variables, without stack. The figures of TFLM were measured once, on the same board: -O2 kernels, TFLM of August
2026 with CMSIS-NN, int8-only registrations, which is the interpreter's best case; its set-up, before the first
inference, is not counted.

Outputs are compared bit by bit: on the host with the interpreter of --rounding where it is installed (tflite-micro,
ai-edge-litert), and on the board with the host.
"""

import json as json_format
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from cluster_record import wide_console
from micro_claims import CLAIMS, SOURCES, TFLM, VENDORS, Needs, broken, slower
from micro_show import layers_table, needs_tables

from rudel.errors import CompileError, RudelError
from rudel.micro.arithmetic import Rounding
from rudel.micro.bench import Measurement, measure, uniform_inputs
from rudel.micro.bench.host import host_outputs
from rudel.micro.compiler import compile_model
from rudel.micro.interpreters import reference_outputs

MODELS = Path(os.environ.get("RUDEL_SHARED") or Path(__file__).parents[2] / "shared") / "data" / "tflite"


def main(
    models: Annotated[Path, typer.Option(help="Folder with the models, NAME_int8.tflite.")] = MODELS,
    only: Annotated[str | None, typer.Option(help=f"Which of {', '.join(TFLM)}, separated by commas.")] = None,
    target: Annotated[str, typer.Option(help="What to compile for; TFLM's figures are for cortex-m4.")] = "cortex-m4",
    rounding: Annotated[str, typer.Option(help="Whose bits: tflm, litert or xnnpack.")] = "tflm",
    inputs: Annotated[int, typer.Option(min=1, help="Random inputs to run on the board.")] = 3,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer.")] = False,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Measure eight models on an emulated Cortex-M4F."""
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
                path = models / f"{name}_int8.tflite"
                if not path.is_file():
                    notes.append(f"{name} is left out: there is no `{path}`.")
                else:
                    measured[name] = measured_model(path, target, _rounding(rounding), inputs, notes)
    except RudelError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    needs = {name: Needs(m.instructions, m.code, m.ram, m.flash, m.estimated_cycles) for name, m in measured.items()}
    failures = broken(needs) if target == "cortex-m4" else []
    failures += [f"{name}: {m.differing} of {m.inputs} outputs differ" for name, m in measured.items() if m.differing]
    for table in needs_tables(measured, target):
        console.print(table)
    if layers:
        for name, m in measured.items():
            console.print(layers_table(name, m))
    compared = target == "cortex-m4"
    behind = slower({name: m.estimated_cycles for name, m in measured.items()}) if compared else []
    for sentence in [*notes, *([SOURCES] if compared else []), *behind, *verdict(failures, measured, compared)]:
        console.print(sentence, highlight=False)
    if json:
        document = {
            "benchmark": "micro",
            "target": target,
            "rounding": rounding,
            "models": {name: {**asdict(m), "code": m.code} for name, m in measured.items()},
            "tflm": {name: asdict(TFLM[name]) for name in measured},
            "claims": {name: asdict(CLAIMS[name]) for name in measured},
            "vendors": {n: {**asdict(VENDORS[n]), "cycles": VENDORS[n].cycles} for n in measured if n in VENDORS},
            "slower": behind,
            "broken": failures,
            "notes": notes,
        }
        json.write_text(json_format.dumps(document, indent=2) + "\n")
    if failures:
        raise typer.Exit(1)


def verdict(failures: list[str], measured: Mapping[str, Measurement], compared: bool) -> list[str]:
    """Sentences on the claims: those that do not hold, or that all do; none about what was not measured."""
    if failures or not compared or not measured:
        return failures
    return ["All claims hold."]


def _rounding(name: str) -> Rounding:
    for rounding in ("tflm", "litert", "xnnpack"):
        if name == rounding:
            return rounding
    raise RudelError(f"There is no rounding `{name}`: choose one of tflm, litert, xnnpack.")


def measured_model(path: Path, target: str, rounding: Rounding, count: int, notes: list[str]) -> Measurement:
    """Compiles a model twice, checks the host's bits, and measures it on the board."""
    compiled = compile_model(path, target=target, rounding=rounding)
    here = compile_model(path, rounding=rounding)
    inputs = uniform_inputs(compiled, count)
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
