"""A WebAssembly module and an ES module that loads it, in browsers and in Node.

    NAME.wasm
    NAME.js        `import { load } from "./NAME.js"; const model = await load(); model.run([...])`
    package.json   for `npm install FOLDER`

The C is compiled by Zig's C compiler, which comes in the package `ziglang`: it needs no other toolchain. The module
imports nothing. It uses SIMD instructions, which Node has from version 16.4 on, and browsers since 2023 (Safari 16.4
was the last).
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rudel.cache import cache_folder
from rudel.errors import CompileError
from rudel.features import LogMel
from rudel.features.c import sources
from rudel.micro.packages.folder import write_files
from rudel.micro.packages.loader import loader

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled

_HEADERS = {
    "string.h": """#include <stddef.h>
void *memcpy(void *restrict to, const void *restrict from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
""",
    "math.h": """#define HUGE_VALF __builtin_inff()
#define NAN __builtin_nanf("")

float expf(float x);
double exp(double x);
double log(double x);

/* What exp(x) loses where it is near 1, log(exp(x)) loses, too: W. Kahan's way to exp(x) - 1. */
static inline double rudel_expm1(double x)
{
    const double power = exp(x), less = power - 1.0;
    if (power == 1.0) return x;
    return less == -1.0 || power > 1e300 ? less : less * x / log(power);
}

static inline float expm1f(float x) { return (float)rudel_expm1(x); }

static inline float tanhf(float x)
{
    const double less = rudel_expm1(-2.0 * __builtin_fabs(x));
    return (float)__builtin_copysign(less / (less + 2.0), x);
}

static inline double ldexp(double x, int power)
{
    for (; power > 1000; power -= 1000) x *= 0x1p1000;
    for (; power < -1000; power += 1000) x *= 0x1p-1000;
    const union { unsigned long long bits; double value; } exact = { (unsigned long long)(power + 1023) << 52 };
    return x * exact.value;
}
""",
}
"""C's library, as far as models need it, upon Zig's run-time library: Zig would take half a minute to build musl."""

_OPTIONS = (
    "-target", "wasm32-freestanding", "-isystem", ".", "-std=c99", "-O3", "-msimd128", "-s",
    "-Wl,--no-entry", "-Wl,-z,stack-size=65536",
)  # fmt: skip
_SECONDS = 300


def write_wasm(compiled: "Compiled", folder: Path) -> list[Path]:
    """Compiles a model to WebAssembly.

    Args:
        compiled: the model, for a generic target.
        folder: where the files go, which is made if it is not there.

    Returns:
        The files.

    Raises:
        CompileError: `ziglang` is not installed, it fails, or the folder cannot be written.
    """
    name = compiled.name
    package = {
        "name": re.sub("^[_.]+", "", name.lower()) or "model",
        "version": "1.0.0",
        "type": "module",
        "exports": f"./{name}.js",
        "files": [f"{name}.js", f"{name}.wasm"],
    }
    files = {
        f"{name}.wasm": compile_to_wasm(compiled),
        f"{name}.js": loader(compiled),
        "package.json": json.dumps(package, indent=2) + "\n",
    }
    return write_files(folder, files)


def compile_to_wasm(compiled: "Compiled") -> bytes:
    """Compiles a model to a module.

    It exports `memory`, `invoke()`, `reset()`, and the addresses `input0`, ..., `output0`, ...

    Raises:
        CompileError: `ziglang` is not installed, or it fails.
    """
    sides = (("input", compiled.inputs), ("output", compiled.outputs))
    arrays = [(f"{side}{i}", port) for side, ports in sides for i, port in enumerate(ports)]
    wrapper = [
        f'#include "{compiled.name}.h"',
        *(f"{port.type} {array}[{port.macro}_SIZE];" for array, port in arrays),
        f"void invoke(void) {{ {compiled.name}_invoke({', '.join(array for array, _ in arrays)}); }}",
        f"void reset(void) {{ {f'{compiled.name}_reset();' if compiled.remembers else ''} }}",
    ]
    sources = {f"{compiled.name}.h": compiled.header, f"{compiled.name}.c": compiled.source}
    exported = ["invoke", "reset", *(array for array, _ in arrays)]
    return _compile(sources, wrapper, exported)


def features_to_wasm(features: LogMel) -> bytes:
    """Compiles features of sound to a module.

    It exports `memory`, `reset()`, and `push()`, which takes samples at the address `hop`, and puts a frame at `bands`
    and the spectrogram of the same sound at `spectrum`: the frame itself, unless that is made of it.

    Raises:
        CompileError: `ziglang` is not installed, or it fails.
    """
    seen = "bands" if features.cosines is None else "features_spectrum"
    wrapper = [
        '#include "features.h"',
        "#include <string.h>",
        "int16_t hop[FEATURES_HOP];",
        "int8_t bands[FEATURES_BANDS];",
        f"int8_t spectrum[{features.bands}];",
        f"void push(void) {{ features_push(hop, bands); memcpy(spectrum, {seen}, sizeof spectrum); }}",
        "void reset(void) { features_reset(); }",
    ]
    return _compile(sources(features, "features"), wrapper, ["push", "reset", "hop", "bands", "spectrum"])


def _compile(texts: Mapping[str, str], wrapper: Sequence[str], exported: Sequence[str]) -> bytes:
    if importlib.util.find_spec("ziglang") is None:
        raise CompileError("WebAssembly is compiled by Zig, which is not installed: pip install ziglang.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = {**texts, **_HEADERS, "wasm.exports.c": "\n".join(wrapper) + "\n"}
        write_files(folder, files)
        exports = [f"-Wl,--export={symbol}" for symbol in exported]
        _run_zig([*_OPTIONS, *exports, *(name for name in files if name.endswith(".c"))], folder)
        return (folder / "model.wasm").read_bytes()


def _run_zig(arguments: list[str], folder: Path) -> None:
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(cache_folder() / "zig"), "ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", *arguments, "-o", "model.wasm"],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"Zig did not compile the model to WebAssembly within {_SECONDS} seconds.") from error
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error:" in line), done.stderr.strip()[-200:])
        raise CompileError(f"Zig could not compile the model to WebAssembly ({said}).")
