"""Arduino sketches that use a compiled model."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rudel.errors import CompileError
from rudel.features.log_mel import LogMel
from rudel.features.sensor_columns import Columns
from rudel.micro.ports import Port

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled


def timing_sketch(compiled: "Compiled", features: LogMel | Columns | None = None) -> str:
    """A sketch that runs the model once a second, and prints how long it took and what came out.

    Args:
        compiled: the model.
        features: what `NAME_features.c` makes the model's one input of; None where the model takes readings themselves.
    """
    inputs, outputs = compiled.inputs, compiled.outputs
    variables = "\n".join(_variable(port) for port in (*inputs, *outputs))
    if features:
        included, quantising = f"\n#include <{compiled.name}_features.h>", ""
        filling = _pushed(compiled.name, inputs[0], features)
    else:
        included, quantising = "", "".join(map(_quantise, inputs))
        filling = "\n".join(_filled(port) for port in inputs)
    printing = "\n".join(_printed(port, compiled.class_names) for port in outputs)
    arguments = ", ".join(port.variable for port in (*inputs, *outputs))
    return f"""// Runs the model {compiled.name} once a second, and prints how long that took and what came out.

#include <{compiled.name}.h>{included}

{variables}
{quantising}
// Put the readings of your sensor here, in the place of 0.
static void readInput() {{
{filling}
}}

void setup() {{
  Serial.begin(115200);
}}

void loop() {{
  readInput();
  const unsigned long began = micros();
  {compiled.name}_invoke({arguments});
  const unsigned long took = micros() - began;

  Serial.print(took);
  Serial.println(" microseconds");
{printing}
  delay(1000);
}}
"""


def sine_sketch(compiled: "Compiled") -> str:
    """A sketch whose LED is as bright as the sine that the model computes is high.

    Raises:
        CompileError: the model is not one of a number in and a number out.
    """
    inputs, outputs = compiled.inputs, compiled.outputs
    if any(len(side) != 1 or math.prod(side[0].shape) != 1 for side in (inputs, outputs)):
        raise CompileError(
            f"The example `sine` is for a model of one number in and one out, and {compiled.name} is another."
        )
    (given,), (answer,) = inputs, outputs
    return f"""// The LED follows a sine that the model {compiled.name} computes.
//
// It is as bright as the curve is high. Where the LED's pin cannot do PWM, it is only on or off. The curve itself is to
// be seen in the Serial Plotter.

#include <{compiled.name}.h>

static const int stepsACycle = 1000;
static int stepNow = 0;
{_quantise(given)}
void setup() {{
  pinMode(LED_BUILTIN, OUTPUT);
  Serial.begin(115200);
}}

void loop() {{
  const float x = (float)TWO_PI * (float)stepNow / (float)stepsACycle;
  {given.type} input[{given.macro}_SIZE];
  {answer.type} output[{answer.macro}_SIZE];
  input[0] = {_number(given, "x")};
  {compiled.name}_invoke(input, output);
  const float y = {_real(answer, "output[0]")};

  // From -1 .. 1 to the 0 .. 255 that analogWrite takes.
  const int brightness = (int)constrain(127.5f * (y + 1.0f), 0.0f, 255.0f);
  analogWrite(LED_BUILTIN, brightness);
  Serial.println(y, 4);

  stepNow = (stepNow + 1) % stepsACycle;
  delay(5);
}}
"""


def _variable(port: Port) -> str:
    """A place in the model's own memory where there is one, else an array."""
    if port.in_arena:
        place = f"static {port.type} *const {port.variable} = {port.macro};"
    else:
        place = f"static {port.type} {port.variable}[{port.macro}_SIZE];"
    return f"{place}  // {port.described}"


def _quantise(port: Port) -> str:
    if not port.quantised:
        return ""
    limits = np.iinfo(port.dtype)
    return f"""
// The number that stands for a real one.
static {port.type} {_quantised(port)}(float value) {{
  const float number = roundf(value / {port.macro}_SCALE) + {port.macro}_ZERO_POINT;
  return ({port.type})constrain(number, {limits.min}.0f, {limits.max}.0f);
}}
"""


def _quantised(port: Port) -> str:
    """The function that quantises an input: `quantised`; where there are several, named as they are."""
    return port.variable.replace("input", "quantised", 1)


def _number(port: Port, real: str) -> str:
    return f"{_quantised(port)}({real})" if port.quantised else real


def _filled(port: Port) -> str:
    kind = "float" if port.quantised else port.type
    return f"""  for (unsigned long i = 0; i < {port.macro}_SIZE; i++) {{
    const {kind} reading = 0;
    {port.variable}[i] = {_number(port, "reading")};
  }}"""


def _pushed(name: str, port: Port, features: LogMel | Columns) -> str:
    """Fills an input by NAME_features_push: row by row of a sensor, or hop by hop of sound."""
    upper = f"{name}_features".upper()
    if isinstance(features, Columns):
        begin, given, step = "", "row", f"{upper}_COLUMNS"
        declared = f"const float row[{upper}_COLUMNS] = {{0}};"
    else:
        begin, given, step = f"  {name}_features_reset();\n", "hop", f"{upper}_BANDS"
        declared = f"const int16_t hop[{upper}_HOP] = {{0}};  // at {features.rate} Hz"
    return f"""{begin}  for (unsigned long i = 0; i < {port.macro}_SIZE; i += {step}) {{
    {declared}
    {name}_features_push({given}, {port.variable} + i);
  }}"""


def _printed(port: Port, class_names: Sequence[str]) -> str:
    value = _real(port, f"{port.variable}[i]")
    digits = ", 4" if port.quantised or port.type == "float" else ""
    names, name = "", ""
    if class_names:
        names = f"  static const char *const names[] = {port.macro}_CLASSES;\n"
        name = "    Serial.print(names[i]);\n    Serial.print(' ');\n"
    return f"""{names}  for (unsigned long i = 0; i < {port.macro}_SIZE; i++) {{
{name}    Serial.print({value}{digits});
    Serial.print(' ');
  }}
  Serial.println();"""


def _real(port: Port, number: str) -> str:
    return f"(float)({number} - {port.macro}_ZERO_POINT) * {port.macro}_SCALE" if port.quantised else number
