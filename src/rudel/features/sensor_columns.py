"""Rows of a sensor, each column by its own mean and scale, so that one scale of int8 fits all of them.

Acceleration is a few g and rotation hundreds of degrees a second: with one scale for both, acceleration would be no
number but 0. What the model's `Normalization` does to floats is done here instead, in front of the int8 network, in
float32 on the host and in C alike, with two divisions that no compiler fuses: the same integers.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rudel.array_types import Float32, Num
from rudel.c_literals import float_literal

if TYPE_CHECKING:
    import keras

_WIDEST = 24.0
"""Standard deviations of the narrowest column that 256 steps of one scale may span, so that each has ten of them."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Each column less its mean, in standard deviations: float32 (..., columns) to the same shape.

    Args:
        mean: float32 (columns,).
        deviation: float32 (columns,), greater than 0.
    """

    mean: Float32[np.ndarray, "columns"]
    deviation: Float32[np.ndarray, "columns"]

    def __call__(self, rows: Num[np.ndarray, "*rows columns"]) -> Float32[np.ndarray, "*rows columns"]:
        """The normalised rows."""
        return (np.asarray(rows, np.float32) - self.mean) / self.deviation

    def json(self) -> str:
        """Means and deviations, for JavaScript."""
        return json.dumps({"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}) + "\n"


def columns_of(layer: "keras.Layer | None", steps: int = 2**8) -> Columns | None:
    """Means and deviations of a layer that normalises columns which one scale of integers cannot hold.

    The scale spans 0 and three deviations on both sides of each mean: too much where spreads differ, and where a mean
    is far from 0 against its spread, as of the air's pressure in hPa.

    Args:
        layer: any layer of Keras.
        steps: of the scale: 2^8 for int8, 2^16 for int16.
    """
    import keras

    if not isinstance(layer, keras.layers.Normalization) or layer.invert:
        return None
    if layer.axis not in ((-1,), (np.ndim(layer.mean) - 1,)):  # other axes than that of the columns
        return None
    mean = np.asarray(layer.mean, np.float32).reshape(-1)
    deviation = np.maximum(np.sqrt(np.asarray(layer.variance, np.float32)), keras.config.epsilon()).reshape(-1)
    lowest, highest = (mean - 3 * deviation).min(), (mean + 3 * deviation).max()
    if max(highest, 0) - min(lowest, 0) < _WIDEST * steps / 2**8 * deviation.min():
        return None
    return Columns(mean, deviation.astype(np.float32))


_HEADER = """/* Rows of @COUNT@ numbers of a sensor as the int8 that the network takes. Made by Rudel. */
#ifndef @UPPER@_H
#define @UPPER@_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { @UPPER@_COLUMNS = @COUNT@ };

/* Takes a row as the sensor gives it, and gives @COUNT@ numbers of the network's input. */
void @NAME@_push(const float *row, int8_t *numbers);

#ifdef __cplusplus
}
#endif

#endif
"""

_SOURCE = """/* See @NAME@.h. */
#include "@NAME@.h"

#include <math.h>

static const float mean[] = {@MEAN@};
static const float deviation[] = {@DEVIATION@};

void @NAME@_push(const float *row, int8_t *numbers) {
    for (int32_t i = 0; i < @COUNT@; i++) {
        const float number = rintf((row[i] - mean[i]) / deviation[i] / @SCALE@) + @ZERO@.0f;
        numbers[i] = (int8_t)(number > -128.0f ? number < 127.0f ? number : 127.0f : -128.0f);
    }
}
"""


def column_sources(columns: Columns, name: str, scale: float, zero_point: int) -> dict[str, str]:
    """The texts of `NAME.h` and `NAME.c`.

    Args:
        columns: what to compute.
        name: a C name, in lower case, that all names begin with that others can see.
        scale: of the network's input.
        zero_point: of the network's input.
    """
    values = {
        "NAME": name,
        "UPPER": name.upper(),
        "COUNT": str(len(columns.mean)),
        "MEAN": ", ".join(map(float_literal, columns.mean)),
        "DEVIATION": ", ".join(map(float_literal, columns.deviation)),
        "SCALE": float_literal(np.float32(scale)),
        "ZERO": str(zero_point),
    }
    texts = {f"{name}.h": _HEADER, f"{name}.c": _SOURCE}
    for key, value in values.items():
        texts = {file: text.replace(f"@{key}@", value) for file, text in texts.items()}
    return texts
