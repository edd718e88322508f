"""`LogMel` and `MFCC` in C99, for boards and WebAssembly: integers, no heap, nothing of a library but memory copies.

    NAME.h    void NAME_reset(void); void NAME_push(const int16_t *hop, int8_t *frame);
    NAME.c

The state is static: the samples that the next window shares with this one, and the transform's work space.
"""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rudel.features.mel_arithmetic import COSINE_BITS, FLOOR, STEP_BITS
from rudel.features.mel_tables import LOG_BITS, LOG_STEPS, WEIGHT

if TYPE_CHECKING:
    from rudel.features.log_mel import LogMel

_HEADER = """/* @ABOUT@ of sound, hop by hop: @RATE@ samples a second, @WIDTH@ @NUMBERS@. Made by Rudel. */
#ifndef @UPPER@_H
#define @UPPER@_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { @UPPER@_RATE = @RATE@, @UPPER@_HOP = @HOP@, @UPPER@_BANDS = @WIDTH@ };

/* Forgets all sound that has come so far. */
void @NAME@_reset(void);

/* Takes the next @HOP@ samples, and gives the @WIDTH@ @NUMBERS@ of the window that ends with them. */
void @NAME@_push(const int16_t *hop, int8_t *@NUMBERS@);
@SEEN@
#ifdef __cplusplus
}
#endif

#endif
"""

_SOURCE = """/* See @NAME@.h. Right shifts of negative numbers round down, as those. */
#include "@NAME@.h"

#include <string.h>

enum { WINDOW = @WINDOW@, HOP = @HOP@, HALF = @HALF@, BANDS = @BANDS@, PAST = WINDOW > HOP ? WINDOW - HOP : 0 };

@TABLES@

static int16_t past[PAST + 1];
static struct { int32_t real, imaginary; } z[HALF];

/* The upper 32 of the 48 bits of a product. */
static inline int32_t times(int32_t value, int16_t factor) {
    return (int32_t)(((int64_t)value * factor) >> 16);
}

static inline int32_t length_of(uint32_t value) {
#ifdef __GNUC__
    return value ? (int32_t)(8 * sizeof(long)) - __builtin_clzl(value) : 0;
#else
    int32_t length = 0;
    for (; value; value >>= 1) length++;
    return length;
#endif
}

static inline void put(int32_t n, int16_t sample) {
    const int32_t weighted = (int32_t)sample * window[n];
    if (n & 1) z[reversed[n >> 1]].imaginary = weighted;
    else z[reversed[n >> 1]].real = weighted;
}

static void transform(void) {
    for (int32_t width = 1, step = HALF; width < HALF; width *= 2, step /= 2) {
        for (int32_t k = 0; k < width; k++) {
            const int16_t c = twiddles[k * step][0], s = twiddles[k * step][1];
            for (int32_t i = k; i < HALF; i += 2 * width) {
                const int32_t j = i + width;
                const int32_t real = times(z[j].real, c) + times(z[j].imaginary, s);
                const int32_t imaginary = times(z[j].imaginary, c) - times(z[j].real, s);
                const int32_t a = z[i].real >> 1, b = z[i].imaginary >> 1;
                z[i].real = a + real;
                z[i].imaginary = b + imaginary;
                z[j].real = a - real;
                z[j].imaginary = b - imaginary;
            }
        }
    }
}

/* One frequency of the spectrum of real samples, from those of pairs. */
static inline void unmix(int32_t k, int32_t a_real, int32_t a_imaginary, int32_t b_real, int32_t b_imaginary) {
    const int16_t c = twiddles[k][0], s = twiddles[k][1];
    const int32_t real = a_imaginary + b_imaginary, imaginary = b_real - a_real;
    z[k].real = ((a_real + b_real) >> 1) + times(real, c) + times(imaginary, s);
    z[k].imaginary = ((a_imaginary - b_imaginary) >> 1) + times(imaginary, c) - times(real, s);
}

static void spectrum(void) {
    for (int32_t k = 0; k <= HALF / 2; k++) {
        const int32_t m = k ? HALF - k : 0;
        const int32_t a_real = z[k].real >> 1, a_imaginary = z[k].imaginary >> 1;
        const int32_t b_real = z[m].real >> 1, b_imaginary = z[m].imaginary >> 1;
        unmix(k, a_real, a_imaginary, b_real, b_imaginary);
        if (m > k) unmix(m, b_real, b_imaginary, a_real, a_imaginary);
    }
}

static int32_t log2_of(uint64_t value) {
    if (!value) value = 1;
    const uint32_t upper = (uint32_t)(value >> 32);
    const int32_t whole = (upper ? 32 + length_of(upper) : length_of((uint32_t)value)) - 1;
    const int32_t mantissa = (int32_t)(whole > 16 ? value >> (whole - 16) : value << (16 - whole));
    const int32_t fraction = mantissa - ((int32_t)1 << 16), place = fraction >> @STEP_BITS@;
    const int32_t below = logarithms[place], rest = fraction & ((1 << @STEP_BITS@) - 1);
    return (whole << @LOG_BITS@) + below + (((logarithms[place + 1] - below) * rest) >> @STEP_BITS@);
}

void @NAME@_reset(void) {
    memset(past, 0, sizeof past);
}

void @NAME@_push(const int16_t *hop, int8_t *@NUMBERS@) {
    for (int32_t n = 0; n < PAST; n++) put(n, past[n]);
    for (int32_t n = PAST; n < WINDOW; n++) put(n, hop[HOP - WINDOW + n]);
    for (int32_t n = WINDOW; n < 2 * HALF; n++) {
        if (n & 1) z[reversed[n >> 1]].imaginary = 0;
        else z[reversed[n >> 1]].real = 0;
    }
#if @KEPT@
    memmove(past, past + HOP, @KEPT@ * sizeof *past);
#endif
#if @NEW@
    memcpy(past + @KEPT@, hop + HOP - @NEW@, @NEW@ * sizeof *past);
#endif
    transform();
    spectrum();
    uint32_t all = 0;
    for (int32_t k = @FIRST@; k < @LAST@; k++) {
        all |= (uint32_t)(z[k].real ^ (z[k].real >> 31)) | (uint32_t)(z[k].imaginary ^ (z[k].imaginary >> 31));
    }
    const int32_t length = length_of(all), shift = length > 15 ? length - 15 : 0;
    uint64_t falling = 0;
    for (int32_t band = -1, k = @FIRST@; band < BANDS; band++) {
        uint64_t rising = 0;
        for (; k < edges[band + 2]; k++) {
            const int32_t real = z[k].real >> shift, imaginary = z[k].imaginary >> shift;
            const uint32_t power = (uint32_t)(real * real) + (uint32_t)(imaginary * imaginary);
            rising += (uint64_t)power * rises[k];
            falling += (uint64_t)power * (@WEIGHT@u - rises[k]);
        }
        if (band >= 0) {
            const int32_t level = log2_of(falling) + (shift << @LOG_BITS_1@) - ((int32_t)@FLOOR@ << @LOG_BITS@);
            const int32_t steps = ((level + (1 << @ROUND_BITS@)) >> @DOWN_BITS@) - 128;
            @SPECTRUM@[band] = (int8_t)(steps < -128 ? -128 : steps > 127 ? 127 : steps);
        }
        falling = rising;
    }
@TRANSFORM@}
"""

_SEEN = """
/* The bands of the last window, of which the coefficients are made: a log-mel spectrogram, hop by hop. */
extern int8_t @NAME@_spectrum[@BANDS@];
"""

_TRANSFORM = """    for (int32_t k = 0; k < @WIDTH@; k++) {
        int32_t sum = 1 << @HALF_COSINE@;
        for (int32_t band = 0; band < BANDS; band++) sum += (int32_t)@SPECTRUM@[band] * cosines[k][band];
        sum >>= @COSINE_BITS@;
        coefficients[k] = (int8_t)(sum < -128 ? -128 : sum > 127 ? 127 : sum);
    }
"""


def sources(features: "LogMel", name: str) -> dict[str, str]:
    """The texts of `NAME.h` and `NAME.c`.

    Args:
        features: what to compute.
        name: a C name, in lower case, that all names begin with that others can see.
    """
    tables = features.tables
    past = max(0, features.window - features.hop)
    kept = max(0, past - features.hop)
    index = "uint8_t" if features.fft <= 512 else "uint16_t"
    texts = [
        _table("int16_t", "window[WINDOW]", tables.window),
        _table("int16_t", "twiddles[HALF][2]", tables.twiddles),
        _table(index, "reversed[HALF]", tables.reversed),
        _table("int16_t", "edges[BANDS + 2]", tables.edges),
        _table("uint8_t", f"rises[{len(tables.rises)}]", tables.rises),
        _table("uint16_t", f"logarithms[{len(tables.logarithms)}]", tables.logarithms),
    ]
    values = {
        "NAME": name,
        "UPPER": name.upper(),
        "RATE": features.rate,
        "WINDOW": features.window,
        "HOP": features.hop,
        "HALF": features.fft // 2,
        "BANDS": features.bands,
        "KEPT": kept,
        "NEW": past - kept,
        "FIRST": int(tables.edges[0]),
        "LAST": int(tables.edges[-1]),
        "WEIGHT": WEIGHT,
        "FLOOR": FLOOR,
        "LOG_BITS": LOG_BITS,
        "LOG_BITS_1": LOG_BITS + 1,
        "DOWN_BITS": LOG_BITS - STEP_BITS,
        "ROUND_BITS": LOG_BITS - STEP_BITS - 1,
        "STEP_BITS": 16 - (LOG_STEPS.bit_length() - 1),
        "WIDTH": features.width,
        "HALF_COSINE": COSINE_BITS - 1,
        "COSINE_BITS": COSINE_BITS,
    }
    if features.cosines is None:
        kind = {"ABOUT": "A log-mel spectrogram", "NUMBERS": "bands", "TRANSFORM": "", "SEEN": "", "SPECTRUM": "bands"}
    else:
        texts += [_table("int16_t", f"cosines[{features.width}][BANDS]", features.cosines.T)]
        kind = {"ABOUT": "MFCCs", "NUMBERS": "coefficients", "TRANSFORM": _TRANSFORM, "SEEN": _SEEN}
        kind["SPECTRUM"] = f"{name}_spectrum"
        texts += [f"int8_t {name}_spectrum[BANDS];"]
    values = kind | {"TABLES": "\n\n".join(texts)} | values
    return {f"{name}.h": _filled(_HEADER, values), f"{name}.c": _filled(_SOURCE, values)}


def _filled(template: str, values: Mapping[str, object]) -> str:
    for key, value in values.items():
        template = template.replace(f"@{key}@", str(value))
    return template


def _table(kind: str, declared: str, values: np.ndarray) -> str:
    rows = values.ndim == 2
    entries = [f"{{{', '.join(map(str, row))}}}" if rows else str(row) for row in values.tolist()]
    body = textwrap.fill(", ".join(entries), 116, initial_indent="    ", subsequent_indent="    ")
    return f"static const {kind} {declared} = {{\n{body},\n}};"
