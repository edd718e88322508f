"""A recogniser of words or movements on an emulated microcontroller: what it recognises, when, and what that costs."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build, size
from rudel.micro.bench.emulator import run

_PACKET = 256
"""Samples that the microphone's interrupt gives at a time."""

_TOP = """#include "board.h"
#include "{name}_recogniser.h"

static {type} given[{count}];
static struct {{ int8_t found; uint8_t score; }} results[{steps}];
const bench_port bench_inputs[] = {{{{given, sizeof given}}}}, bench_outputs[] = {{{{results, sizeof results}}}};
const uint32_t bench_input_count = 1, bench_output_count = 1;
"""
_SOUND = (
    _TOP
    + """
static int16_t hop[{upper}_RECOGNISER_HOP];
void bench_reset_model(void) {{ {name}_recogniser_reset(); }}

void bench_invoke(void) {{
    uint32_t step = 0;
    for (uint32_t i = 0; i < {count}; i += {packet}) {{
        {name}_recogniser_put(given + i, {packet} < {count} - i ? {packet} : {count} - i);
        while ({name}_recogniser_take(hop)) {{
            uint8_t score = 0;
            results[step].found = (int8_t){name}_recogniser_push(hop, &score);
            results[step++].score = score;
        }}
    }}
}}
"""
)
_MOTION = (
    _TOP
    + """
void bench_reset_model(void) {{ {name}_recogniser_reset(); }}

void bench_invoke(void) {{
    for (uint32_t step = 0; step < {steps}; step++) {{
        uint8_t score = 0;
        results[step].found = (int8_t){name}_recogniser_push(given + step * {upper}_RECOGNISER_COLUMNS, &score);
        results[step].score = score;
    }}
}}
"""
)
_EMPTY = _TOP.replace('#include "{name}_recogniser.h"\n', "") + (
    "\nvoid bench_reset_model(void) {{}}\n\nvoid bench_invoke(void) {{ results[0].score = (uint8_t)given[0]; }}\n"
)


@dataclass(frozen=True, eq=False)
class Recognition:
    """Answers of a recogniser for recordings, and its costs.

    Args:
        found: int8 (recordings, steps), the class that is recognised with each hop or row, or -1.
        scores: uint8 (recordings, steps), where the network ran; else 0.
        instructions: of a hop or row, the mean of the recording that took most, network included.
        flash: bytes of code, constants and initial values: network, features and recogniser.
        ram: bytes of variables, among them the arena; without stack.
        stack: bytes of the deepest stack.
    """

    found: np.ndarray
    scores: np.ndarray
    instructions: float
    flash: int
    ram: int
    stack: int


def measure_recogniser(
    name: str,
    texts: Mapping[str, str],
    recordings: np.ndarray,
    hop: int | None = None,
    target: str = "cortex-m4",
    options: Sequence[str] = (),
) -> Recognition:
    """Gives recordings to a recogniser on an emulated board, each from its beginning.

    Args:
        name: of the model.
        texts: of the C of its network, features and recogniser, by the names of their files.
        recordings: samples of the microphone, int16 (N, S), which come in packets; or rows, float32 (N, S, columns).
        hop: samples of the microphone in a hop; None for rows.
        target: the core.
        options: more options of the compiler, such as `-Os`; the bench itself uses -O2.

    Raises:
        BenchError: a program is missing, the recordings do not fit the board, or it faults.
        RudelError: there is no board for the target.
    """
    place = core(target)
    steps = recordings.shape[1] // hop if hop else recordings.shape[1]
    values = {
        "name": name,
        "upper": name.upper(),
        "type": "int16_t" if hop else "float",
        "count": recordings[0].size,
        "steps": steps,
        "packet": _PACKET,
    }
    with tempfile.TemporaryDirectory(prefix="rudel-bench-") as temporary:
        images = []
        for number, (glue, used) in enumerate([(_SOUND if hop else _MOTION, texts), (_EMPTY, {})]):
            folder = Path(temporary) / str(number)
            folder.mkdir()
            linked = {**used, "glue.c": glue.format(**values)}
            images.append(build(folder, place, linked, options=options))
        taken = size(images[0], place) - size(images[1], place)
        outputs, records = run(images[0], place.board, [recording.tobytes() for recording in recordings])
    results = np.frombuffer(b"".join(outputs), np.uint8).reshape(len(recordings), steps, 2)
    return Recognition(
        found=results[..., 0].view(np.int8),
        scores=results[..., 1],
        instructions=max(record.instructions for record in records) / steps,
        flash=taken.flash,
        ram=taken.ram,
        stack=max(record.stack_bytes for record in records),
    )
