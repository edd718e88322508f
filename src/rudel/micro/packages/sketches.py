"""Arduino sketches that use a compiled model."""

import math
from typing import TYPE_CHECKING

from rudel.errors import CompileError
from rudel.micro.ports import Port

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled


def timing_sketch(compiled: "Compiled") -> str:
    """A sketch that runs the model once a second, and prints how long it took and what came out."""
    inputs, outputs = compiled.inputs, compiled.outputs
    variables = "\n".join(_variable(port) for port in (*inputs, *outputs))
    filling = "\n".join(_filled(port) for port in inputs)
    printing = "\n".join(_printed(port) for port in outputs)
    arguments = ", ".join(port.variable for port in (*inputs, *outputs))
    return f"""// Runs the model {compiled.name} once a second, and prints how long that took and what came out.

#include <{compiled.name}.h>

{variables}

// Put the reading of your sensor here.
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
  input[0] = {"quantised(x)" if given.quantised else "x"};
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
    low, high = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}[port.dtype]
    return f"""
// The number that stands for a real one.
static {port.type} quantised(float value) {{
  const float number = roundf(value / {port.macro}_SCALE) + {port.macro}_ZERO_POINT;
  return ({port.type})constrain(number, {low}.0f, {high}.0f);
}}
"""


def _filled(port: Port) -> str:
    zero = f"{port.macro}_ZERO_POINT" if port.quantised else "0"
    note = (
        f"  // A real number r is given as r / {port.macro}_SCALE + {port.macro}_ZERO_POINT; here all are 0.\n"
        if port.quantised
        else ""
    )
    return f"""{note}  for (unsigned long i = 0; i < {port.macro}_SIZE; i++) {{
    {port.variable}[i] = {zero};
  }}"""


def _printed(port: Port) -> str:
    value = _real(port, f"{port.variable}[i]")
    digits = ", 4" if port.quantised or port.type == "float" else ""
    return f"""  for (unsigned long i = 0; i < {port.macro}_SIZE; i++) {{
    Serial.print({value}{digits});
    Serial.print(' ');
  }}
  Serial.println();"""


def _real(port: Port, number: str) -> str:
    return f"(float)({number} - {port.macro}_ZERO_POINT) * {port.macro}_SCALE" if port.quantised else number
