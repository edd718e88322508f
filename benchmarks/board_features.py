"""Features of sound on an emulated microcontroller: how many instructions a hop takes, and the frames that come out."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rudel.features import LogMel
from rudel.features.c import sources
from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build, size
from rudel.micro.bench.emulator import run

_GLUE = """#include "board.h"
#include "features.h"

static int16_t samples[{frames} * FEATURES_HOP];
static int8_t frames[{frames}][FEATURES_BANDS];
const bench_port bench_inputs[] = {{{{samples, sizeof samples}}}}, bench_outputs[] = {{{{frames, sizeof frames}}}};
const uint32_t bench_input_count = 1, bench_output_count = 1;

void bench_reset_model(void) {{ {reset} }}

void bench_invoke(void) {{
    for (uint32_t i = 0; i < {frames}; i++) {push};
}}
"""


@dataclass(frozen=True, eq=False)
class FeaturesMeasurement:
    """Costs of features on a core.

    Args:
        frames: int8 (recordings, frames, width), what came out.
        instructions: of a hop, the mean of the recording that took most.
        flash: bytes of code and tables.
        ram: bytes of variables; without stack.
        stack: bytes of the deepest stack.
    """

    frames: np.ndarray
    instructions: float
    flash: int
    ram: int
    stack: int


def measure_features(
    features: LogMel, recordings: np.ndarray, target: str = "cortex-m4", options: Sequence[str] = ()
) -> FeaturesMeasurement:
    """Computes features of recordings, each from its beginning, on an emulated board.

    Args:
        features: which.
        recordings: int16 (N, S).
        target: the core.
        options: more options of the compiler, such as `-Os`; the bench itself uses -O2.

    Raises:
        BenchError: a program is missing, the recordings do not fit the board, or it faults.
        RudelError: there is no board for the target.
    """
    place, count = core(target), features.frames(recordings.shape[1])
    used = {
        "frames": count,
        "reset": "features_reset();",
        "push": "features_push(samples + i * FEATURES_HOP, frames[i])",
    }
    unused = used | {"reset": "", "push": "frames[i][0] = (int8_t)samples[i]"}
    texts = sources(features, "features")
    with tempfile.TemporaryDirectory(prefix="rudel-bench-") as temporary:
        images = []
        for name, values in (("whole", used), ("empty", unused)):
            folder = Path(temporary) / name
            folder.mkdir()
            images.append(build(folder, place, texts | {"model.c": _GLUE.format(**values)}, options=options))
        taken = size(images[0], place) - size(images[1], place)
        given = [recording[: count * features.hop].tobytes() for recording in recordings]
        outputs, records = run(images[0], place.board, given)
    frames = np.frombuffer(b"".join(outputs), np.int8).reshape(len(recordings), count, features.width)
    return FeaturesMeasurement(
        frames=frames,
        instructions=max(record.instructions for record in records) / count,
        flash=taken.flash,
        ram=taken.ram,
        stack=max(record.stack_bytes for record in records),
    )
