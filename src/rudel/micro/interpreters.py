"""The interpreters whose bits the compiled C has to give, each run in a process of its own.

A process of its own, because an interpreter that crashes on a model must not take this one with it, and because it
writes what it likes on standard error.
"""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.errors import CompileError
from rudel.micro.arithmetic import Rounding
from rudel.micro.reader import with_valid_axes
from rudel.micro.signature import in_signature_order

NAMES = {
    "litert": "LiteRT, reference kernels",
    "xnnpack": "LiteRT as it is by default, with XNNPACK",
    "tflm": "TensorFlow Lite Micro",
}
_PACKAGES = {"litert": "ai-edge-litert", "xnnpack": "ai-edge-litert", "tflm": "tflite-micro"}
_MODULES = {"ai-edge-litert": "ai_edge_litert", "tflite-micro": "tflite_micro"}


def check_interpreter(rounding: Rounding) -> None:
    """Looks for the package with an interpreter, without importing it.

    Args:
        rounding: which interpreter.

    Raises:
        CompileError: it is not installed.
    """
    package = _PACKAGES[rounding]
    if importlib.util.find_spec(_MODULES[package]) is None:
        raise CompileError(
            f"Checking the rounding `{rounding}` needs an interpreter to compare with: pip install {package}"
        )


def reference_outputs(
    model: bytes, rounding: Rounding, inputs: Sequence[Sequence[np.ndarray]]
) -> list[list[np.ndarray]]:
    """Returns what an interpreter computes.

    Args:
        model: the bytes of a .tflite file.
        rounding: which interpreter.
        inputs: for each run, the model's inputs in their order.

    Raises:
        CompileError: its package is not installed, or it refuses the model or crashes.
    """
    check_interpreter(rounding)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(in_signature_order(with_valid_axes(model)))
        stacked = {f"in{place}": np.stack([run[place] for run in inputs]) for place in range(len(inputs[0]))}
        np.savez(folder / "inputs.npz", **stacked)  # type: ignore[arg-type]  # NumPy's stubs take names for its options
        done = subprocess.run(
            [sys.executable, "-m", "rudel.micro.interpreters", rounding, name],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line for line in done.stderr.strip().splitlines() if line.strip() and not line.startswith("INFO")]
            said = lines[-1][-300:] if lines else f"it ended with code {done.returncode}"
            raise CompileError(f"{NAMES[rounding]}, cannot run this model: {said}")
        with np.load(folder / "outputs.npz") as outputs:
            arrays = [outputs[f"out{place}"] for place in range(len(outputs.files))]
    return [[array[run] for array in arrays] for run in range(len(inputs))]


def _run(rounding: str, folder: Path) -> None:
    """Runs all inputs of a folder; the process that `reference_outputs` starts."""
    with np.load(folder / "inputs.npz") as stored:
        inputs = [stored[f"in{place}"] for place in range(len(stored.files))]
    model = (folder / "model.tflite").read_bytes()
    runs = _tflm_runs(model, inputs) if rounding == "tflm" else _litert_runs(model, inputs, rounding)
    arrays = {f"out{place}": np.stack(rows) for place, rows in enumerate(zip(*runs, strict=True))}
    np.savez(folder / "outputs.npz", **arrays)  # type: ignore[arg-type]  # as above


def _litert_runs(model: bytes, inputs: list[np.ndarray], rounding: str) -> list[list[np.ndarray]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-untyped]

    kind = OpResolverType.BUILTIN_REF if rounding == "litert" else OpResolverType.AUTO
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kind, num_threads=1)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    results = [detail["index"] for detail in interpreter.get_output_details()]
    outputs = []
    for run in range(len(inputs[0])):
        for place, array in zip(places, inputs, strict=True):
            interpreter.set_tensor(place, array[run])
        interpreter.invoke()
        outputs.append([interpreter.get_tensor(place).copy() for place in results])
    return outputs


def _tflm_runs(model: bytes, inputs: list[np.ndarray]) -> list[list[np.ndarray]]:
    from tflite_micro.python.tflite_micro import runtime  # type: ignore[import-untyped]

    from rudel.micro.reader import read_model

    graph = read_model(model)
    count = len(graph.outputs)
    arena = (1 << 20) + 8 * sum(tensor.bytes for tensor in graph.tensors)
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)
    outputs = []
    for run in range(len(inputs[0])):
        for place, array in enumerate(inputs):
            interpreter.set_input(array[run], place)
        interpreter.invoke()
        outputs.append([np.array(interpreter.get_output(place)) for place in range(count)])
    return outputs


if __name__ == "__main__":
    _run(sys.argv[1], Path(sys.argv[2]))
