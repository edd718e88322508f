"""C99 that recognises words in sound, or movements in rows of a sensor, as they come: independent of any board.

    NAME_recogniser.h, NAME_recogniser.c

It needs `NAME.c`, the network, and `NAME_features.c`. All memory is static; there is no heap.

Sound: an interrupt puts samples at 16 kHz into a ring, decimated after a low pass where the model takes 8 kHz. The main
program takes them hop by hop and computes a frame of features of each. The network costs far more than a frame, so it
runs only every few hops, over the last frames: as often as a core at 64 MHz can, if it is to be idle for 70 % of the
time by the estimate below. Scores are the mean of the last few runs. A word stays in the window and in the mean for
longer than the rest after it: it is recognised again only after its score has fallen below the threshold.

Motion: a movement begins when the board is accelerated by more than `STARTS_AT` g, axes added up, as in the recordings
of Arduino's own tutorial, and is recognised when its window is full.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rudel.c_literals import c_string
from rudel.errors import CompileError
from rudel.features.log_mel import LogMel

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled
    from rudel.micro.emit import Step

MICROPHONE = 16_000
"""Samples a second of the microphone of a Nano 33 BLE Sense."""

CLOCK = 64_000_000
"""Hz, of its core."""

BUSY = 0.3
CYCLES = 1.5
"""An instruction, with the flash of the board's processor."""

FRAME_CYCLES = 60_000
"""Features of a hop, and what decimates its sound: 40,000 instructions at 1.5 cycles each."""

SMOOTHING, REST = 0.6, 1.0
"""Seconds: scores are the mean of the runs in the first; after a word nothing is recognised for the second."""

THRESHOLD = 140
"""Of 255; a word's smoothed score must be as high."""

STARTS_AT = 2.5
"""Acceleration in g, the sum of the axes' absolute values; at rest it is 1 to 1.7."""

PASSED_OVER = ("unknown", "silence")
"""Classes that are not reported."""


@dataclass(frozen=True)
class Listening:
    """The rate at which a network runs over sound, and the smoothing of its scores.

    Attributes:
        every: hops from one run to the next.
        smoothed: how many runs a score is the mean of.
        resting: runs after a word in which nothing is recognised.
    """

    every: int
    smoothed: int
    resting: int


def listening(compiled: "Compiled", features: LogMel) -> Listening:
    """Timing of a network on a core at 64 MHz that idles for 70 % of the time.

    Raises:
        CompileError: features alone take too long.
    """
    seconds = features.hop / features.rate
    left = CLOCK * seconds * BUSY - FRAME_CYCLES
    if left <= 0:
        raise CompileError(f"Features of a hop of {1000 * seconds:g} ms alone take too long for a microcontroller.")
    every = max(1, math.ceil(_cycles(compiled) / left))
    runs = 1 / (every * seconds)
    return Listening(every, max(1, round(SMOOTHING * runs)), max(1, round(REST * runs)))


def _cycles(compiled: "Compiled") -> float:
    """Estimated cycles of a run of the network on a Cortex-M4, by layers of DS-CNNs with 16 to 64 filters under QEMU.

    It is 3 % too low to 7 % too high for those; small networks take more for each multiplication than large ones.
    """
    return CYCLES * sum(_instructions(compiled, step) for step in compiled.steps)


def _instructions(compiled: "Compiled", step: "Step") -> float:
    tensors, operator = compiled.graph.tensors, step.operator
    given, made = (math.prod(tensors[place].shape) for place in (operator.inputs[0], operator.outputs[0]))
    match operator.kind:
        case "DEPTHWISE_CONV_2D":
            return 2.8 * step.macs
        case "MEAN":
            return 6.2 * given
        case "CONV_2D":
            gathered = step.macs // tensors[operator.outputs[0]].shape[-1]
            return 0.9 * step.macs + 7 * made + (8 * gathered if gathered > given else 0)
        case _:
            return 0.9 * step.macs + 6 * made


def half_band() -> np.ndarray:
    """The filter before every other sample is left out: 23 taps, int16, with a sum of 2^15; 50 dB down from 5 kHz."""
    n = np.arange(-11, 12)
    taps = np.sinc(n / 2) / 2 * np.kaiser(23, 5.0)
    whole = np.rint(taps / taps.sum() * 2**15).astype(np.int64)
    whole[11] += 2**15 - whole.sum()
    return whole.astype(np.int16)


def classifies(compiled: "Compiled", class_names: Sequence[str]) -> bool:
    """Whether a network is an int8 classifier of one input, with a softmax and a name for each class."""
    (given, *others), (scores, *more) = compiled.inputs, compiled.outputs
    return (
        not others
        and not more
        and given.dtype == scores.dtype == "int8"
        and scores.size == len(class_names)
        and (scores.scale, scores.zero_point) == (1 / 256, -128)
    )


def sound_recogniser(compiled: "Compiled", features: LogMel, class_names: Sequence[str]) -> dict[str, str]:
    """The texts of `NAME_recogniser.h` and `NAME_recogniser.c` for words.

    Args:
        compiled: the network, of spectrograms; see `classifies`.
        features: that make them, of 16,000 samples a second, or of 8,000.
        class_names: of its outputs.

    Raises:
        CompileError: features alone take too long.
    """
    plan = listening(compiled, features)
    half = features.rate != MICROPHONE
    # the network computes while sound goes on: twice as long as it may take is kept
    longest = _cycles(compiled) / CLOCK
    hops = max(4, 1 + math.ceil(2 * longest * features.rate / features.hop))
    return _filled(
        compiled,
        class_names,
        _SOUND_H,
        _SOUND_C,
        {
            "HOP": str(features.hop),
            "BANDS": str(features.width),
            "FRAMES": str(compiled.inputs[0].size // features.width),
            "QUIET": ", ".join(map(str, features.silence.tolist())),
            "EVERY": str(plan.every),
            "MS": f"{1000 * plan.every * features.hop / features.rate:g}",
            "SMOOTHED": str(plan.smoothed),
            "RESTING": str(plan.resting),
            "CAPACITY": str(hops * features.hop),
            "THRESHOLD": str(THRESHOLD),
            "MICROPHONE": _HALVING.replace("@TAPS@", ", ".join(map(str, half_band()))) if half else _AS_IT_IS,
        },
    )


def motion_recogniser(compiled: "Compiled", class_names: Sequence[str]) -> dict[str, str]:
    """The texts of `NAME_recogniser.h` and `NAME_recogniser.c` for movements.

    Args:
        compiled: the network, of rows whose first three columns are acceleration in g; see `classifies`.
        class_names: of its outputs.
    """
    _, rows, columns = compiled.inputs[0].shape
    values = {"ROWS": str(rows), "COLUMNS": str(columns), "STARTS_AT": f"{STARTS_AT:g}"}
    return _filled(compiled, class_names, _MOTION_H, _MOTION_C, values)


def _filled(
    compiled: "Compiled", class_names: Sequence[str], header: str, source: str, values: dict[str, str]
) -> dict[str, str]:
    (given,), (scores,) = compiled.inputs, compiled.outputs
    memory = {
        "INPUT": given.macro if given.in_arena else "input",
        "INPUT_MEMORY": "" if given.in_arena else f"static int8_t input[{given.macro}_SIZE];\n",
        "OUTPUT": scores.macro if scores.in_arena else "output",
        "OUTPUT_MEMORY": "" if scores.in_arena else f"static int8_t output[{scores.macro}_SIZE];\n",
    }
    names = {
        "CLASSES": str(len(class_names)),
        "NAMES": ",\n    ".join(map(c_string, class_names)),
        "PASSED_OVER": ", ".join(str(int(name in PASSED_OVER)) for name in class_names),
        "NAME": compiled.name,
        "UPPER": compiled.name.upper(),
    }
    texts = {"h": header, "c": source}
    for key, value in (values | memory | names).items():
        texts = {ending: text.replace(f"@{key}@", value) for ending, text in texts.items()}
    return {f"{compiled.name}_recogniser.{ending}": text for ending, text in texts.items()}


_TOP = """/* @ABOUT@ Made by Rudel. */
#ifndef @UPPER@_RECOGNISER_H
#define @UPPER@_RECOGNISER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
"""
_BOTTOM = """
/* Of each class, as it was last computed: 0 to 255. */
extern uint8_t @NAME@_recogniser_scores[@UPPER@_RECOGNISER_CLASSES];

extern const char *const @NAME@_recogniser_names[@UPPER@_RECOGNISER_CLASSES];

#ifdef __cplusplus
}
#endif

#endif
"""

_SOUND_H = (
    _TOP.replace("@ABOUT@", "Recognises words in sound, hop by hop.")
    + """
enum {
    @UPPER@_RECOGNISER_HOP = @HOP@,
    @UPPER@_RECOGNISER_EVERY = @EVERY@, /* hops from one run of the network to the next: @MS@ ms */
    @UPPER@_RECOGNISER_CLASSES = @CLASSES@
};

/* Forgets all sound that has come so far. Not while an interrupt puts some. */
void @NAME@_recogniser_reset(void);

/* Takes samples of the microphone, at 16 kHz, and keeps them; from an interrupt, say. What there is no room for is
 * lost. */
void @NAME@_recogniser_put(const int16_t *samples, uint32_t count);

/* Gives the next hop at the model's rate, and 1; or 0, if it has not come yet. */
int32_t @NAME@_recogniser_take(int16_t *hop);

/* Takes a hop. Gives the class that is recognised with it, and its score of 255; or -1. The same word counts again only
 * after a pause of about a second. */
int32_t @NAME@_recogniser_push(const int16_t *hop, uint8_t *score);
"""
    + _BOTTOM
)

_SOUND_C = """/* See @NAME@_recogniser.h. */
#include "@NAME@_recogniser.h"

#include "@NAME@.h"
#include "@NAME@_features.h"

#include <string.h>

enum {
    HOP = @HOP@,
    BANDS = @BANDS@,
    FRAMES = @FRAMES@,
    CLASSES = @CLASSES@,
    CAPACITY = @CAPACITY@, /* of the ring of samples */
    SMOOTHED = @SMOOTHED@, /* runs of the network that a score is the mean of */
    RESTING = @RESTING@, /* runs after a word in which none is recognised */
    THRESHOLD = @THRESHOLD@ /* of 255 */
};

const char *const @NAME@_recogniser_names[CLASSES] = {
    @NAMES@,
};
uint8_t @NAME@_recogniser_scores[CLASSES];

/* The frame of silence, as before the first hop. */
static const int8_t quiet[BANDS] = {@QUIET@};

/* Classes that are not words. */
static const uint8_t passed_over[CLASSES] = {@PASSED_OVER@};

@INPUT_MEMORY@@OUTPUT_MEMORY@static int8_t frames[FRAMES][BANDS];
static uint8_t runs[SMOOTHED][CLASSES];
static uint32_t next_frame, next_run, hops, resting;
static int32_t heard = -1; /* the word that is still in the scores, or -1 */

/* A ring with one writer, the interrupt, and one reader: each changes its own place only, and after what it says is
 * done. */
static int16_t samples_kept[CAPACITY];
static volatile uint32_t put, taken;

static void keep(int16_t sample) {
    const uint32_t after = put + 1 == CAPACITY ? 0 : put + 1;
    if (after == taken) return;
    samples_kept[put] = sample;
    put = after;
}

@MICROPHONE@

int32_t @NAME@_recogniser_take(int16_t *hop) {
    const uint32_t end = put, start = taken;
    if ((end >= start ? end - start : end + CAPACITY - start) < HOP) return 0;
    const uint32_t first = CAPACITY - start < HOP ? CAPACITY - start : HOP;
    memcpy(hop, samples_kept + start, first * sizeof *hop);
    memcpy(hop + first, samples_kept, (HOP - first) * sizeof *hop);
    taken = start + HOP < CAPACITY ? start + HOP : start + HOP - CAPACITY;
    return 1;
}

void @NAME@_recogniser_reset(void) {
    @NAME@_features_reset();
    for (int32_t i = 0; i < FRAMES; i++) memcpy(frames[i], quiet, BANDS);
    memset(runs, 0, sizeof runs);
    memset(@NAME@_recogniser_scores, 0, sizeof @NAME@_recogniser_scores);
    next_frame = next_run = hops = resting = 0;
    heard = -1;
    put = taken = 0;
    forget();
}

static int32_t smoothed_best(void) {
    int32_t best = 0;
    for (int32_t i = 0; i < CLASSES; i++) {
        uint32_t sum = 0;
        for (int32_t run = 0; run < SMOOTHED; run++) sum += runs[run][i];
        @NAME@_recogniser_scores[i] = (uint8_t)(sum / SMOOTHED);
        if (@NAME@_recogniser_scores[i] > @NAME@_recogniser_scores[best]) best = i;
    }
    return best;
}

int32_t @NAME@_recogniser_push(const int16_t *hop, uint8_t *score) {
    @NAME@_features_push(hop, frames[next_frame]);
    next_frame = next_frame + 1 == FRAMES ? 0 : next_frame + 1;
    hops++;
    if (hops < @UPPER@_RECOGNISER_EVERY) return -1;
    hops = 0;

    int8_t *const input = (int8_t *)@INPUT@;
    int8_t *const output = (int8_t *)@OUTPUT@;
    const uint32_t older = FRAMES - next_frame;
    memcpy(input, frames[next_frame], older * BANDS);
    memcpy(input + older * BANDS, frames, next_frame * BANDS);
    @NAME@_invoke(input, output);
    for (int32_t i = 0; i < CLASSES; i++) runs[next_run][i] = (uint8_t)(output[i] + 128);
    next_run = next_run + 1 == SMOOTHED ? 0 : next_run + 1;

    const int32_t best = smoothed_best();
    *score = @NAME@_recogniser_scores[best];
    const int32_t word = passed_over[best] || *score < THRESHOLD ? -1 : best;
    if (resting) {
        resting--;
        if (word != heard) heard = -1;
        return -1;
    }
    if (word == heard) return -1;
    heard = word;
    if (word >= 0) resting = RESTING;
    return word;
}
"""

_AS_IT_IS = """static void forget(void) {}

void @NAME@_recogniser_put(const int16_t *samples, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) keep(samples[i]);
}"""

_HALVING = """/* A low pass of 23 taps, of which every other is 0, and every other sample of what comes out. */
enum { TAPS = 23 };
static const int16_t taps[TAPS] = {@TAPS@};
static int16_t past[2 * TAPS]; /* the last samples, twice, so that they are in a row from any of the first on */
static uint32_t oldest, odd;

static void forget(void) {
    memset(past, 0, sizeof past);
    oldest = odd = 0;
}

void @NAME@_recogniser_put(const int16_t *samples, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        past[oldest] = past[oldest + TAPS] = samples[i];
        oldest = oldest + 1 == TAPS ? 0 : oldest + 1;
        odd ^= 1;
        if (odd) continue;
        const int16_t *const row = past + oldest;
        int32_t sum = (1 << 14) + (int32_t)row[TAPS / 2] * taps[TAPS / 2];
        for (int32_t k = 0; k < TAPS; k += 2) sum += (int32_t)row[k] * taps[k];
        sum >>= 15;
        keep((int16_t)(sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum));
    }
}"""

_MOTION_H = (
    _TOP.replace("@ABOUT@", "Recognises movements in rows of a sensor.")
    + """
enum {
    @UPPER@_RECOGNISER_ROWS = @ROWS@,
    @UPPER@_RECOGNISER_COLUMNS = @COLUMNS@,
    @UPPER@_RECOGNISER_CLASSES = @CLASSES@
};

/* Acceleration in g, its axes' absolute values added up, that a movement begins with. */
#define @UPPER@_RECOGNISER_STARTS_AT @STARTS_AT@f

/* Forgets the movement that has begun. */
void @NAME@_recogniser_reset(void);

/* Takes a row, acceleration first. Gives the class of the movement that ends with it, and its score of 255; or -1. */
int32_t @NAME@_recogniser_push(const float *row, uint8_t *score);
"""
    + _BOTTOM
)

_MOTION_C = """/* See @NAME@_recogniser.h. */
#include "@NAME@_recogniser.h"

#include "@NAME@.h"
#include "@NAME@_features.h"

#include <math.h>

enum { ROWS = @ROWS@, COLUMNS = @COLUMNS@, CLASSES = @CLASSES@ };

const char *const @NAME@_recogniser_names[CLASSES] = {
    @NAMES@,
};
uint8_t @NAME@_recogniser_scores[CLASSES];

@INPUT_MEMORY@@OUTPUT_MEMORY@static int32_t rows;

void @NAME@_recogniser_reset(void) {
    rows = 0;
}

int32_t @NAME@_recogniser_push(const float *row, uint8_t *score) {
    if (!rows && fabsf(row[0]) + fabsf(row[1]) + fabsf(row[2]) < @UPPER@_RECOGNISER_STARTS_AT) return -1;
    int8_t *const input = (int8_t *)@INPUT@;
    int8_t *const output = (int8_t *)@OUTPUT@;
    @NAME@_features_push(row, input + rows * COLUMNS);
    if (++rows < ROWS) return -1;
    rows = 0;
    @NAME@_invoke(input, output);
    int32_t best = 0;
    for (int32_t i = 0; i < CLASSES; i++) {
        @NAME@_recogniser_scores[i] = (uint8_t)(output[i] + 128);
        if (@NAME@_recogniser_scores[i] > @NAME@_recogniser_scores[best]) best = i;
    }
    *score = @NAME@_recogniser_scores[best];
    return best;
}
"""
