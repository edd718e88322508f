"""An int8 model compiled to C, in the forms that build systems take; run here, and compared with LiteRT bit for bit.

Each function makes one form: it writes to the folder `made`, may use `folder` for what is only needed meanwhile, and
returns the bytes of the model's constants, or of the module, and notes. It raises `CompileError` where the model cannot
be compiled, and `ExportError` where the result differs from LiteRT's in a bit.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.errors import CompileError, ExportError
from rudel.export.int8_model import Int8Model
from rudel.features import LogMel
from rudel.features.sensor_columns import Columns
from rudel.micro import Compiled
from rudel.micro.host import HostModel, c_compiler
from rudel.micro.packages import write_arduino, write_cmake, write_wasm, write_zephyr
from rudel.micro.packages.folder import write_files
from rudel.micro.packages.recogniser import classifies, listening, motion_recogniser, sound_recogniser
from rudel.micro.packages.sensing import MOVING, listening_sketch, moving_sketch, other_channels
from rudel.micro.packages.sketches import timing_sketch
from rudel.micro.packages.wasm import features_to_wasm


def c(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes sources in C."""
    compiled = model.compile()
    compiled.write(made)
    write_files(made, model.feature_sources())
    return _verified(model, compiled, folder)


def cmake(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes a CMake project."""
    compiled = model.compile()
    write_cmake(compiled, made, model.feature_sources())
    return _verified(model, compiled, folder)


def zephyr(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes a Zephyr module."""
    compiled = model.compile()
    write_zephyr(compiled, made, model.feature_sources())
    return _verified(model, compiled, folder)


def arduino(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes an Arduino library; its sketch reads the microphone or motion sensor where the model takes that."""
    # a sketch for a sensor is for the boards that have one; the C still runs everywhere, with the same bits
    sensing = _senses(model.recipe, model.features)
    compiled, dsp = model.compile(), model.compile("nano33ble" if sensing else "cortex-m4")
    sources, notes = model.feature_sources(), []
    if sensing and classifies(dsp, model.class_names):
        notes = _write_sensing(compiled, dsp, model, made, sources)
    else:
        example = "sine" if model.recipe == "sine" else "timing"
        sketch = timing_sketch(compiled, model.features) if model.features else ""
        write_arduino(compiled, made, sources, dsp=dsp, example=example, sketch=sketch)
        if model.recipe == "motion":
            notes = [
                f"The sketch does not call on_motion, which takes a model of the columns {', '.join(MOVING)}, in g and "
                "degrees a second."
            ]
    _verified(model, compiled, folder)
    return _verified(model, dsp, folder, notes)


def wasm(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes a WebAssembly module, with its features as a second one or as a table."""
    compiled, features = model.compile(), model.features
    write_wasm(compiled, made)
    if isinstance(features, LogMel):
        write_files(made, {f"{model.name}_features.wasm": features_to_wasm(features)})
    elif features:
        write_files(made, {f"{model.name}_features.json": features.json()})
    inputs, outputs = model.examples(compiled)
    found = _in_node(compiled, made, inputs, outputs, folder)
    size = (made / f"{model.name}.wasm").stat().st_size
    return size, [_compared(compiled, found, outputs, "Node.js")]


def _verified(model: Int8Model, compiled: Compiled, folder: Path, notes: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Runs the C on this computer; returns bytes of the model's constants, and notes."""
    inputs, outputs = model.examples(compiled)
    found = _on_this_computer(compiled, inputs, outputs, folder)
    return compiled.weights_bytes, [*notes, _compared(compiled, found, outputs, "C compiler")]


def _compared(compiled: Compiled, found: list[np.ndarray] | None, outputs: list[np.ndarray], runner: str) -> str:
    """A note on RAM, and on how outputs compare with LiteRT's.

    Raises:
        ExportError: they differ in a bit.
    """
    cost = f"The arena takes {compiled.arena_bytes:,} bytes of RAM"
    if found is None:
        return f"{cost}; not run, as there is no {runner} here: the figures are LiteRT's for the same model."
    differ = sum(int((mine != other).sum()) for mine, other in zip(found, outputs, strict=True))
    if differ:
        total = sum(other.size for other in outputs)
        raise ExportError(
            f"The compiled model differs from LiteRT in {differ:,} of {total:,} outputs: this is a bug in Rudel; "
            "export to litert-int8 meanwhile."
        )
    return f"{cost}; every output has the bits of LiteRT's reference kernels."


def _senses(recipe: str, features: LogMel | Columns | None) -> bool:
    """Whether the Arduino's microphone or motion sensor gives what the model takes."""
    hears = isinstance(features, LogMel) and features.rate in (8000, 16_000)
    moves = isinstance(features, Columns) and recipe == "motion" and len(features.mean) == 6
    return hears or moves


def _write_sensing(compiled: Compiled, dsp: Compiled, model: Int8Model, made: Path, more: dict[str, str]) -> list[str]:
    """Writes a library whose sketch recognises what the board's microphone or motion sensor gives; returns notes."""
    features, class_names = model.features, model.class_names
    untested = "we have not tried the sensor's driver on a board."
    if isinstance(features, LogMel):
        plan = listening(dsp, features)
        every = 1000 * plan.every * features.hop / features.rate
        more = more | sound_recogniser(dsp, features, class_names)
        write_arduino(compiled, made, more, dsp=dsp, sketch=listening_sketch(compiled.name))
        return [
            f"The sketch calls on_keyword(name, score); the network runs every {every:g} ms, so that a core at 64 MHz "
            f"idles for 70 % of the time; {untested}"
        ]
    more = more | motion_recogniser(dsp, class_names)
    write_arduino(compiled, made, more, dsp=dsp, sketch=moving_sketch(compiled.name))
    notes = [f"The sketch calls on_motion(name, score) after each movement; {untested}"]
    channels = model.materials.channels if model.materials else []
    return notes + other_channels(channels, "the sketch")


def _on_this_computer(
    compiled: Compiled, inputs: list[np.ndarray], outputs: list[np.ndarray], folder: Path
) -> list[np.ndarray] | None:
    """Compiles the C here and returns its outputs for all examples; None where there is no compiler."""
    try:
        c_compiler()
    except CompileError:
        return None
    model = HostModel(compiled, folder / "c")
    answers = [model(*example) for example in zip(*inputs, strict=True)]
    columns = zip(*answers, strict=True)
    return [np.stack(column).reshape(other.shape) for column, other in zip(columns, outputs, strict=True)]


def _in_node(
    compiled: Compiled, made: Path, inputs: list[np.ndarray], outputs: list[np.ndarray], folder: Path
) -> list[np.ndarray] | None:
    """Runs the module in Node and returns its outputs; None where there is no Node."""
    node = shutil.which("node")
    if node is None:
        return None
    examples = [[column[row].reshape(-1).tolist() for column in inputs] for row in range(len(inputs[0]))]
    (folder / "examples.json").write_text(json.dumps(examples), encoding="utf-8")
    script = (
        f"import {{ load }} from {json.dumps((made / f'{compiled.name}.js').as_uri())};\n"
        'import { readFileSync, writeFileSync } from "node:fs";\n'
        "const model = await load();\n"
        f"const examples = JSON.parse(readFileSync({json.dumps(str(folder / 'examples.json'))}));\n"
        f"const one = {'true' if len(outputs) == 1 else 'false'};\n"
        "const answers = examples.map((example) => {\n"
        "  const answer = model.invoke(...example);\n"
        "  return (one ? [answer] : answer).map((array) => [...array]);\n"
        "});\n"
        f"writeFileSync({json.dumps(str(folder / 'answers.json'))}, JSON.stringify(answers));\n"
    )
    (folder / "run.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [node, str(folder / "run.mjs")], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise ExportError(f"The WebAssembly module does not run in Node: {(done.stderr.strip() or '?')[-300:]}.")
    answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return [
        np.array([row[i] for row in answers]).reshape(column.shape).astype(column.dtype)
        for i, column in enumerate(outputs)
    ]
