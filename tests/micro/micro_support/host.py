"""Compiled models, built for this computer and called from Python."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from rudel.micro.compiler import Compiled

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


def build(models: list[Compiled], folder: Path, options: tuple[str, ...] = ("-O1",)) -> ctypes.CDLL:
    """Compiles models into one shared library, without a warning; all of them are one source, where no name may
    clash."""
    for model in models:  # not by its `write`, which waits for the disk
        (folder / f"{model.name}.h").write_text(model.header)
        (folder / f"{model.name}.c").write_text(model.source)
    library = folder / "models.so"
    everything = folder / "everything.c"
    everything.write_text("".join(f'#include "{model.name}.c"\n' for model in models))
    done = subprocess.run(
        ["gcc", *STRICT, *options, "-shared", "-fPIC", str(everything), "-lm", "-o", str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def invoke(library: ctypes.CDLL, model: Compiled, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Runs a model on buffers of the caller."""
    arrays = [np.ascontiguousarray(array) for array in inputs]
    outputs = [np.zeros(port.shape, port.dtype) for port in model.outputs]
    getattr(library, f"{model.name}_invoke")(*(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *outputs)))
    return outputs


def invoke_inside(library: ctypes.CDLL, model: Compiled, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Runs a model on the places in its arena, where outputs may be written over inputs."""
    arena = (ctypes.c_uint8 * model.arena_bytes).in_dll(library, f"{model.name}_arena")
    start = ctypes.addressof(arena)
    offsets = model.memory.offsets
    inputs_at = [start + offsets[index] for index in model.graph.inputs]
    for place, array in zip(inputs_at, inputs, strict=True):
        ctypes.memmove(place, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    outputs_at = [start + offsets[index] for index in model.graph.outputs]
    getattr(library, f"{model.name}_invoke")(*(ctypes.c_void_p(place) for place in (*inputs_at, *outputs_at)))
    results = []
    for place, port in zip(outputs_at, model.outputs, strict=True):
        result = np.empty(port.shape, port.dtype)
        ctypes.memmove(result.ctypes.data, place, result.nbytes)
        results.append(result)
    return results
