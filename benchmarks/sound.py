"""Words and movements: what is recognised, how exactly the C repeats it, and what it takes of a Cortex-M4.

    python benchmarks/sound.py words --data FOLDER           # a command per row of the table in docs/word.md
    python benchmarks/sound.py speakers --data FOLDER
    python benchmarks/sound.py movements --data FOLDER
    python benchmarks/sound.py int8 --data FOLDER
    python benchmarks/sound.py features --data FOLDER
    python benchmarks/sound.py board --data FOLDER

FOLDER holds `spoken-digits`, the Free Spoken Digit Dataset with a folder for each word, and `gestures`, a CSV file of
an Arduino for each movement. Without --data it is `data` in the folder that RUDEL_SHARED names, or in `shared` beside
the checkout. Runs and exports stay in the folder of --runs and are not made again; `int8` and `board` make those that
they need. --json adds what was measured to a file.

Each training is `rudel train` with the recipe's own settings in a process of its own, and its time is all that the
command reports: reading, compiling, training, evaluation. `int8` computes features and network in C on this computer,
from samples to scores, and compares with the float model in Keras, both on recordings that the run has not learned
from. `board` counts instructions, not clock cycles, by QEMU's board mps2-an386; a cycle an instruction is the best
case, and 1.5 are what a Cortex-M4 with the flash of an nRF52840 may take.
"""

import ctypes
import json as json_format
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from claims import Verdict
from measure import BenchmarkError
from rich.console import Console
from show import claims_table

from rudel.micro.host import OPTIONS, c_compiler

SPEAKERS = ("george", "jackson", "nicolas", "theo", "yweweler")
CLOCK, HOP_SECONDS = 64_000_000, 0.02
DATA = Path(os.environ.get("RUDEL_SHARED") or Path(__file__).parents[2] / "shared") / "data"

Folder = Annotated[Path, typer.Option(help="Folder with `spoken-digits` and `gestures`.")]
Runs = Annotated[Path, typer.Option(help="Folder for the runs, and for what they are exported to.")]
Json = Annotated[Path | None, typer.Option(help="File to add the numbers to.")]
app = typer.Typer(add_completion=False, help="Measure words and movements.")


@dataclass(frozen=True)
class Training:
    """A run that is measured.

    Args:
        recipe: its name.
        folder: of the recordings, below --data.
        settings: of the recipe.
    """

    recipe: str
    folder: str
    settings: Mapping[str, str]


TRAININGS = {
    "words": Training("keywords", "spoken-digits", {}),
    **{name: Training("keywords", "spoken-digits", {"speakers": name}) for name in SPEAKERS},
    "movements": Training("motion", "gestures", {}),
}


@app.command()
def words(data: Folder = DATA, runs: Runs = Path("sound-runs"), json: Json = None) -> None:
    """Train `keywords` with recordings held out at random."""
    summary = trained("words", data, runs)
    accuracy, seconds = summary["metrics"]["val_accuracy"], summary["total_seconds"]
    reported(
        json,
        words={"accuracy": accuracy, "seconds": seconds},
        verdicts=[
            Verdict("keywords, recordings held out at random: at least 0.98", accuracy, accuracy >= 0.98),
            Verdict("keywords: trained within 120 s", seconds, seconds <= 120),
        ],
    )


@app.command()
def speakers(data: Folder = DATA, runs: Runs = Path("sound-runs"), json: Json = None) -> None:
    """Train `keywords` five times, each time without one speaker."""
    found = {name: trained(name, data, runs)["metrics"]["val_accuracy"] for name in SPEAKERS}
    mean = float(np.mean(list(found.values())))
    verdict = Verdict("keywords, one speaker left out, mean of five: at least 0.75", mean, mean >= 0.75)
    reported(json, speakers=found | {"mean": mean}, verdicts=[verdict])


@app.command()
def movements(data: Folder = DATA, runs: Runs = Path("sound-runs"), json: Json = None) -> None:
    """Train `motion` with recordings held out."""
    summary = trained("movements", data, runs)
    accuracy, seconds = summary["metrics"]["val_accuracy"], summary["total_seconds"]
    reported(
        json,
        movements={"accuracy": accuracy, "seconds": seconds},
        verdicts=[
            Verdict("motion, recordings held out: at least 0.97", accuracy, accuracy >= 0.97),
            Verdict("motion: trained within 15 s", seconds, seconds <= 15),
        ],
    )


@app.command()
def int8(data: Folder = DATA, runs: Runs = Path("sound-runs"), json: Json = None) -> None:
    """Compare features and network in int8 C with the float model in Keras."""
    found = {name: both(name, data, runs) for name in TRAININGS}
    every = ("words", *SPEAKERS)
    pooled = {
        key: float(
            np.average([found[name][key] for name in every], weights=[found[name]["recordings"] for name in every])
        )
        for key in ("keras", "c", "agree")
    }
    verdicts = []
    for kind, one in (("keywords", pooled), ("motion", found["movements"])):
        lost = 100 * (one["keras"] - one["c"])
        verdicts.append(Verdict(f"{kind}, int8 C, points less than Keras: within 0.5", lost, abs(lost) <= 0.5))
    reported(json, int8=found | {"keywords": pooled}, verdicts=verdicts)


@app.command()
def features(data: Folder = DATA, json: Json = None) -> None:
    """Compute the features of all recordings in four ways."""
    from rudel.data.sound.recording_folders import find_recordings
    from rudel.features import MFCC, LogMel

    recordings = find_recordings(str(data / "spoken-digits"), 8000, 1.0).x
    ways = {"jax": features_in_jax, "c": features_in_c, "webassembly": features_in_webassembly}
    numbers: dict[str, Any] = {"windows": len(recordings)}
    verdicts = []
    for kind in (LogMel(8000, bands=20), MFCC(8000, bands=20)):
        expected, name = kind(recordings), type(kind).__name__
        differing = {way: int((compute(kind, recordings) != expected).sum()) for way, compute in ways.items()}
        numbers[name] = {"integers": expected.size, **differing}
        what = f"{name}, {expected.size:,} integers of all recordings: in JAX, C and WebAssembly as many differ"
        verdicts.append(Verdict(what, sum(differing.values()), not any(differing.values())))
    reported(json, features=numbers, verdicts=verdicts)


@app.command()
def board(
    data: Folder = DATA,
    runs: Runs = Path("sound-runs"),
    json: Json = None,
    count: Annotated[int, typer.Option(min=1, help="How many words the board hears.")] = 12,
) -> None:
    """Count what features and recogniser take of an emulated Cortex-M4."""
    from board_features import measure_features
    from board_recogniser import measure_recogniser

    from rudel.features import MFCC

    kind = MFCC(8000, bands=20)  # as the recipe has them
    recordings = held_out("words", data).x
    alone = measure_features(kind, recordings[:count])
    if not np.array_equal(alone.frames, kind(recordings[:count])):
        raise BenchmarkError("The board computes other features than NumPy.")
    library = exported("words", "arduino", data, runs)
    texts = {path.name: path.read_text() for path in (library / "src").iterdir()}
    sound = np.repeat(recordings[:count].reshape(-1), 2)  # as the microphone gives it, 16 kHz
    whole = measure_recogniser(library.name, texts, sound[None, : len(sound) // 320 * 320], hop=320)
    idle, idle_slow = (1 - cycles * whole.instructions / (CLOCK * HOP_SECONDS) for cycles in (1, 1.5))
    ram = whole.ram + whole.stack
    numbers = {
        "features_instructions": alone.instructions,
        "instructions": whole.instructions,
        "idle": idle,
        "idle_at_1.5_cycles": idle_slow,
        "ram": whole.ram,
        "stack": whole.stack,
        "flash": whole.flash,
    }
    reported(
        json,
        board=numbers,
        verdicts=[
            Verdict(
                "instructions of the features of a hop: at most 120,000",
                alone.instructions,
                alone.instructions <= 120_000,
            ),
            Verdict("idle at 64 MHz, with 1 cycle an instruction: at least 0.7", idle, idle >= 0.7),
            Verdict("idle at 64 MHz, with 1.5 cycles an instruction: at least 0.7", idle_slow, idle_slow >= 0.7),
            Verdict("KB of RAM, stack included: at most 24", ram / 1024, ram <= 24 * 1024),
            Verdict("KB of flash: at most 70", whole.flash / 1024, whole.flash <= 70 * 1024),
        ],
    )


def trained(name: str, data: Path, runs: Path) -> dict[str, Any]:
    """The summary of a run, which is trained unless it is there."""
    run, training = runs / name, TRAININGS[name]
    if not (run / "summary.json").is_file():
        settings = [word for key, value in training.settings.items() for word in ("--set", f"{key}={value}")]
        run_rudel("train", training.recipe, "--data", data / training.folder, *settings, "--run", run)
    return json_format.loads((run / "summary.json").read_text())


def exported(name: str, form: str, data: Path, runs: Path) -> Path:
    """The folder that a run is exported to, unless it is there; its name is that of the model in C."""
    trained(name, data, runs)
    folder = runs / form / name
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        run_rudel("export", runs / name, "--to", form, "--out", folder)
    return folder


def run_rudel(*arguments: str | Path) -> None:
    """Runs `rudel` as it would be run in a terminal."""
    command = [Path(sys.executable).with_name("rudel"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"`rudel {arguments[0]}` failed: {done.stderr.strip().splitlines()[-1:]}")


def held_out(name: str, data: Path) -> Any:
    """What a run has not learned from: `rudel.Examples`."""
    from rudel.recipes.load import find_recipe

    training = TRAININGS[name]
    recipe = find_recipe(training.recipe)
    validation = recipe.data(recipe.settings(training.settings), source=str(data / training.folder)).validation
    if validation is None:
        raise BenchmarkError(f"`{name}` holds nothing out.")
    return validation


def both(name: str, data: Path, runs: Path) -> dict[str, float]:
    """How many of the held-out recordings Keras and the C name rightly, and how many alike."""
    import rudel

    folder, examples = exported(name, "c", data, runs), held_out(name, data)
    answers = np.argmax(rudel.load(runs / name).predict(examples.x, verbose=0), axis=1)
    in_c = scores_in_c(folder, examples.x, hears=TRAININGS[name].recipe == "keywords")
    return {
        "recordings": len(examples.y),
        "keras": float(np.mean(answers == examples.y)),
        "c": float(np.mean(np.argmax(in_c, axis=1) == examples.y)),
        "agree": float(np.mean(np.argmax(in_c, axis=1) == answers)),
    }


def scores_in_c(folder: Path, recordings: np.ndarray, hears: bool) -> np.ndarray:
    """What an exported model says of recordings, features included: int8 (N, classes)."""
    name, upper = folder.name, folder.name.upper()
    step, wide = (f"{upper}_FEATURES_HOP", f"{upper}_FEATURES_BANDS") if hears else (f"{upper}_FEATURES_COLUMNS",) * 2
    given = "int16_t" if hears else "float"
    glue = f"""
        #include "{name}.h"
        #include "{name}_features.h"
        static int8_t input[{upper}_INPUT_SIZE];
        void answer(const {given} *recording, int32_t count, int8_t *scores) {{
            {f"{name}_features_reset();" if hears else ""}
            for (int32_t i = 0; i < count; i++) {name}_features_push(recording + i * {step}, input + i * {wide});
            {name}_invoke(input, scores);
        }}
        int32_t step(void) {{ return {step}; }}
        int32_t classes(void) {{ return {upper}_OUTPUT_SIZE; }}
    """
    with tempfile.TemporaryDirectory() as temporary:
        library = built({path.name: path.read_text() for path in folder.iterdir()} | {"glue.c": glue}, Path(temporary))
        scores = np.empty((len(recordings), library.classes()), np.int8)
        count = recordings[0].size // library.step()
        for recording, row in zip(np.ascontiguousarray(recordings), scores, strict=True):
            library.answer(ctypes.c_void_p(recording.ctypes.data), count, ctypes.c_void_p(row.ctypes.data))
    return scores


def built(texts: Mapping[str, str], folder: Path) -> ctypes.CDLL:
    """A shared library of C."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    sources = [name for name in texts if name.endswith(".c")]
    subprocess.run([*c_compiler(), *OPTIONS, *sources, "-lm", "-o", "library.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "library.so"))


def features_in_jax(kind: Any, recordings: np.ndarray) -> np.ndarray:
    """By the layer that models begin with."""
    from rudel.backend import keras_on_jax

    keras = keras_on_jax()
    from rudel.features import Features

    model = keras.Sequential([keras.Input(recordings.shape[1:], dtype="int16"), Features(kind)])
    return np.asarray(model.predict(recordings, batch_size=64, verbose=0))


def features_in_c(kind: Any, recordings: np.ndarray) -> np.ndarray:
    """By the C that boards get, hop by hop."""
    from rudel.features.c import sources

    frames = np.empty((len(recordings), kind.frames(recordings.shape[1]), kind.width), np.int8)
    with tempfile.TemporaryDirectory() as temporary:
        library = built(sources(kind, "ears"), Path(temporary))
        for recording, rows in zip(recordings, frames, strict=True):
            library.ears_reset()
            for i, row in enumerate(rows):
                hop = np.ascontiguousarray(recording[i * kind.hop : (i + 1) * kind.hop])
                library.ears_push(ctypes.c_void_p(hop.ctypes.data), ctypes.c_void_p(row.ctypes.data))
    return frames


_NODE = """
import { readFileSync, writeFileSync } from "node:fs";
const { instance } = await WebAssembly.instantiate(readFileSync("features.wasm"));
const { memory, hop, bands, push, reset } = instance.exports;
const [size, wide, length] = process.argv.slice(2).map(Number);
const file = readFileSync("given.bin");
const samples = new Int16Array(file.buffer, file.byteOffset, file.length / 2);
const frames = new Int8Array((samples.length / size) * wide);
for (let i = 0; i * size < samples.length; i++) {
  if ((i * size) % length === 0) reset();
  new Int16Array(memory.buffer, hop.value, size).set(samples.subarray(i * size, (i + 1) * size));
  push();
  frames.set(new Int8Array(memory.buffer, bands.value, wide), i * wide);
}
writeFileSync("frames.bin", frames);
"""


def features_in_webassembly(kind: Any, recordings: np.ndarray) -> np.ndarray:
    """By the module that pages get, in Node.js."""
    from rudel.micro.packages.wasm import features_to_wasm

    node = shutil.which("node")
    if node is None:
        raise BenchmarkError("There is no Node.js: apt-get install nodejs.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "features.wasm").write_bytes(features_to_wasm(kind))
        (folder / "given.bin").write_bytes(recordings.astype("<i2").tobytes())
        (folder / "script.mjs").write_text(_NODE)
        sizes = [str(size) for size in (kind.hop, kind.width, recordings.shape[1])]
        subprocess.run([node, "script.mjs", *sizes], cwd=folder, check=True)
        frames = np.fromfile(folder / "frames.bin", np.int8)
    return frames.reshape(len(recordings), -1, kind.width)


def reported(json: Path | None, verdicts: list[Verdict], **numbers: Mapping[str, Any]) -> None:
    """Prints what was measured, and adds it to a file."""
    for name, found in numbers.items():
        typer.echo(f"{name}: {json_format.dumps(found)}")
    Console(width=120).print(claims_table([asdict(verdict) for verdict in verdicts]))
    if json:
        document = json_format.loads(json.read_text()) if json.is_file() else {}
        json.write_text(json_format.dumps(document | numbers, indent=2) + "\n")
    if not all(verdict.holds for verdict in verdicts):
        raise typer.Exit(1)


if __name__ == "__main__":
    try:
        app()
    except BenchmarkError as error:
        sys.exit(f"Error: {error}")
