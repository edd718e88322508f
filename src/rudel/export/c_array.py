"""An int8 model as an array in C++, as TensorFlow Lite Micro wants it: NAME.h and NAME.cc."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rudel.c_literals import float_literal
from rudel.errors import ExportError
from rudel.export.arena import Arena, arena_for
from rudel.export.int8_model import Int8Model
from rudel.micro.reader import read_model

_BYTES_A_LINE = 16


def c_array(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes NAME.h and NAME.cc, and reads the bytes back: compiled, where there is a compiler. A `Maker`.

    Raises:
        ExportError: the array does not hold the bytes of the model.
        CompileError: TensorFlow Lite Micro could not run the model.
    """
    name = model.name
    content = model.path.read_bytes()
    arena = arena_for(content, model.path, folder)
    operators = sorted({operator.kind for operator in read_model(content).operators})
    (made / f"{name}.h").write_text(header(name, len(content), model.about, arena, operators), encoding="utf-8")
    (made / f"{name}.cc").write_text(source(name, content), encoding="utf-8")
    if _bytes_in((made / f"{name}.cc").read_text(encoding="utf-8")) != content:
        raise ExportError(f"The array in {name}.cc is not the model: this is a bug in Rudel.")
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler and _compiled_bytes(compiler, name, made, folder) != content:
        raise ExportError(f"The array in {name}.cc, compiled by {compiler}, is not the model.")
    how = "measured with tflite-micro" if arena.measured else "estimated from above, as tflite-micro is not installed"
    checked = "was compiled here" if compiler else "was not compiled, as there is no C++ compiler here"
    return len(content), [f"An arena of {arena.bytes:,} bytes will do ({how}); {name}.cc {checked}."]


def header(name: str, length: int, about: Mapping[str, Any], arena: Arena, operators: list[str]) -> str:
    """The text of NAME.h."""
    upper = name.upper()
    how = (
        "Measured with tflite-micro on a 64-bit computer, with room for the scratch buffers of CMSIS-NN"
        if arena.measured
        else "An upper estimate"
    )
    lines = [
        f"// The model {name} for TensorFlow Lite Micro, in int8.",
        "//",
        f"//   alignas(16) static uint8_t arena[{upper}_ARENA_SIZE];",
        f"//   static tflite::MicroMutableOpResolver<{upper}_OPERATORS> resolver;",
        *(f"//   resolver.{_registered(operator)}();" for operator in operators),
        "//   static tflite::MicroInterpreter interpreter(",
        f"//       tflite::GetModel({name}_model), resolver, arena, {upper}_ARENA_SIZE);",
        "//",
        "// A number q of an input or output stands for SCALE * (q - ZERO_POINT).",
        "",
        f"#ifndef {upper}_H_",
        f"#define {upper}_H_",
        "",
        f"#define {upper}_MODEL_SIZE {length}",
        f"#define {upper}_OPERATORS {len(operators)}",
        "",
        f"// {how}.",
        f"#define {upper}_ARENA_SIZE {arena.bytes}",
        "",
    ]
    for role in ("input", "output"):
        ports = about[f"{role}s"]
        for number, port in enumerate(ports):
            lines += _constants(f"{upper}_{role.upper()}{number if len(ports) > 1 else ''}", port)
    return "\n".join(
        [
            *lines,
            f"extern const unsigned char {name}_model[];",
            f"extern const unsigned int {name}_model_len;",
            "",
            f"#endif  // {upper}_H_",
            "",
        ]
    )


def source(name: str, content: bytes) -> str:
    """The text of NAME.cc."""
    rows = [content[start : start + _BYTES_A_LINE] for start in range(0, len(content), _BYTES_A_LINE)]
    array = "\n".join("    " + " ".join(f"0x{byte:02x}," for byte in row) for row in rows)
    return (
        f'#include "{name}.h"\n\n'
        f"alignas(16) const unsigned char {name}_model[] = {{\n{array}\n}};\n"
        f"const unsigned int {name}_model_len = {len(content)};\n"
    )


def _constants(prefix: str, port: dict[str, Any]) -> list[str]:
    size = 1
    for length in port["shape"]:
        size *= length
    lines = [f"// {port['name']}: {port['dtype']} {port['shape']}", f"#define {prefix}_SIZE {size}"]
    if "scale" in port:
        lines += [
            f"#define {prefix}_SCALE {float_literal(port['scale'])}",
            f"#define {prefix}_ZERO_POINT ({port['zero_point']})",
        ]
    return [*lines, ""]


def _registered(operator: str) -> str:
    """The method of a resolver that registers an operator.

    >>> _registered("DEPTHWISE_CONV_2D"), _registered("UNIDIRECTIONAL_SEQUENCE_LSTM"), _registered("BATCH_MATMUL")
    ('AddDepthwiseConv2D', 'AddUnidirectionalSequenceLSTM', 'AddBatchMatMul')
    """
    words = {"2D": "2D", "LSTM": "LSTM", "MATMUL": "MatMul", "PADV2": "PadV2", "CUMSUM": "CumSum"}
    return "Add" + "".join(words.get(word, word.capitalize()) for word in operator.split("_"))


def _bytes_in(text: str) -> bytes:
    return bytes(int(byte, 16) for byte in re.findall(r"0x([0-9a-f]{2}),", text))


def _compiled_bytes(compiler: str, name: str, made: Path, folder: Path) -> bytes:
    """Compiles and runs a program that contains the array, and returns the bytes that it writes.

    Raises:
        ExportError: it cannot be compiled.
    """
    program, main = folder / "array", folder / "main.cc"
    main.write_text(
        f'#include "{name}.h"\n#include <cstdint>\n#include <cstdio>\n'
        "int main() {\n"
        f"  if (reinterpret_cast<std::uintptr_t>({name}_model) % 16) return 1;\n"
        f"  return std::fwrite({name}_model, 1, {name}_model_len, stdout) != {name.upper()}_MODEL_SIZE;\n"
        "}\n"
    )
    sources = [str(main), str(made / f"{name}.cc")]
    command = [compiler, "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{made}", *sources, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
        raise ExportError(f"{name}.cc cannot be compiled by {compiler}: {said.strip()}.")
    return subprocess.run([str(program)], capture_output=True, check=False).stdout
