"""The JavaScript that loads a model compiled to WebAssembly, and gives it arrays."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rudel.micro.ports import Port

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled

_ARRAYS = {
    "float32": "Float32Array",
    "int8": "Int8Array",
    "uint8": "Uint8Array",
    "int16": "Int16Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "bool": "Uint8Array",
}

_ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
"""The least and the greatest number of the dtypes that stand for real numbers."""

_LOADER = """\
// The model $NAME as WebAssembly.
//
//   import { load } from "./$NAME.js";
//   const model = await load();
//   const $RESULT = model.run($ARRAYS);
//
// run takes and gives real numbers; invoke, in its place, the numbers that the model itself computes with. Arrays are
// flat, the last axis fastest: those of an image row by row.
//
$PORTS

// Names of the classes, in the order of the output's numbers; empty where there is not one for each.
export const classes = $CLASSES;
export const inputs = $INPUTS;
export const outputs = $OUTPUTS;

// Loads the module from its place beside this file, or from an address, a Response or bytes.
export async function load(source = new URL("./$NAME.wasm", import.meta.url)) {
  const { instance } = await WebAssembly.instantiate(await bytesOf(source));
  return new Model(instance.exports);
}

class Model {
  #exports;

  constructor(exports) {
    this.#exports = exports;
  }

  // Takes and gives real numbers.
  run(...arrays) {
    const numbers = arrays.map((array, i) => (inputs[i] ? quantised(array, inputs[i]) : array));
    const results = this.#invoke(numbers).map((array, i) => real(array, outputs[i]));
    return results.length === 1 ? results[0] : results;
  }

  // Takes and gives the numbers that the model computes with.
  invoke(...arrays) {
    const results = this.#invoke(arrays);
    return results.length === 1 ? results[0] : results;
  }

  // Forgets earlier inputs, where the model remembers them.
  reset() {
    this.#exports.reset();
  }

  #invoke(arrays) {
    if (arrays.length !== inputs.length) {
      throw new RangeError(`$NAME takes ${inputs.length} input(s), not ${arrays.length}.`);
    }
    arrays.forEach((array, i) => {
      const view = this.#view("input", i, inputs[i]);
      if (array.length !== view.length) {
        throw new RangeError(`Input ${i} of $NAME has ${view.length} numbers, not ${array.length}.`);
      }
      view.set(array);
    });
    this.#exports.invoke();
    return outputs.map((port, i) => this.#view("output", i, port).slice());
  }

  #view(side, i, port) {
    const start = this.#exports[side + i].value;
    return new port.array(this.#exports.memory.buffer, start, port.shape.reduce((a, b) => a * b, 1));
  }
}

// Rounds halves away from zero, as LiteRT does.
function quantised(array, { array: kind, scale, zeroPoint, least, greatest }) {
  if (scale === null) return array;
  return kind.from(array, (value) => {
    const number = Math.sign(value) * Math.floor(Math.abs(value / scale) + 0.5) + zeroPoint;
    return Math.min(Math.max(number, least), greatest);
  });
}

function real(array, { scale, zeroPoint }) {
  return Float32Array.from(array, (value) => (scale === null ? Number(value) : (value - zeroPoint) * scale));
}

async function bytesOf(source) {
  if (source instanceof URL && source.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(source);
  }
  const found = typeof source === "string" || source instanceof URL ? await fetch(source) : source;
  if (!(found instanceof Response)) return found;
  if (!found.ok) throw new Error(`$NAME could not be fetched: ${found.status}.`);
  return found.arrayBuffer();
}
"""


def loader(compiled: "Compiled") -> str:
    """The text of `NAME.js`."""
    inputs, outputs = compiled.inputs, compiled.outputs
    results = ", ".join(port.variable for port in outputs)
    texts = {
        "$RESULT": results if len(outputs) == 1 else f"[{results}]",
        "$ARRAYS": ", ".join(port.variable for port in inputs),
        "$PORTS": "\n".join(f"//   {port.variable}: {port.described}{_range_of(port)}" for port in (*inputs, *outputs)),
        "$CLASSES": json.dumps(compiled.class_names),
        "$NAME": compiled.name,
        "$INPUTS": _described(inputs),
        "$OUTPUTS": _described(outputs),
    }
    return re.sub(r"\$[A-Z]+", lambda mark: texts[mark[0]], _LOADER)


def _described(side: Sequence[Port]) -> str:
    return "[\n" + "".join(f"  {_object(port)},\n" for port in side) + "]"


def _range_of(port: Port) -> str:
    """The real numbers that integers stand for, in words; "" where the numbers are real as they are."""
    if port.scale is None or port.zero_point is None or port.dtype not in _ENDS:
        return ""
    least, greatest = (port.scale * (end - port.zero_point) for end in _ENDS[port.dtype])
    return f", real numbers from {least:.4g} to {greatest:.4g}"


def _object(port: Port) -> str:
    least, greatest = _ENDS.get(port.dtype, (None, None))
    fields: dict[str, Any] = {
        "name": port.name,
        "shape": list(port.shape),
        "dtype": port.dtype,
        "scale": port.scale,
        "zeroPoint": port.zero_point,
        "least": least,
        "greatest": greatest,
    }
    members = ", ".join(f"{name}: {json.dumps(value)}" for name, value in fields.items())
    return f"{{ {members}, array: {_ARRAYS[port.dtype]} }}"
