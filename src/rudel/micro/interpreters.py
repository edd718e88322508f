"""The interpreters whose bits the compiled C has to give, each run in a process of its own.

A process of its own, because an interpreter that crashes on a model must not take this one with it, and because it
writes what it likes on standard error.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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


Run = list[np.ndarray]
"""The inputs or the outputs of one inference, in their order."""


@contextmanager
def reference(model: bytes, rounding: Rounding) -> Iterator[Callable[[Sequence[Run]], list[Run]]]:
    """Starts an interpreter, and yields a function from the inputs of some inferences to their outputs.

    The interpreter remembers the variables of a model from one inference to the next, and from one call to the next.

    Args:
        model: the bytes of a .tflite file.
        rounding: which interpreter.

    Raises:
        CompileError: its package is not installed, or (when called) it refuses the model or crashes.
    """
    check_interpreter(rounding)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(in_signature_order(with_valid_axes(model)))
        with (folder / "stderr").open("w+", encoding="utf-8", errors="replace") as stderr:
            command = [sys.executable, "-m", "rudel.micro.interpreters", rounding, name]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)

            def outputs(inputs: Sequence[Run]) -> list[Run]:
                _write(folder / "inputs.npz", inputs)
                if not _answers(process):
                    raise CompileError(f"{NAMES[rounding]}, cannot run this model: {_last_words(process, stderr)}")
                return _read(folder / "outputs.npz")

            try:
                yield outputs
            finally:
                process.kill()
                process.communicate()


def reference_outputs(model: bytes, rounding: Rounding, inputs: Sequence[Run]) -> list[Run]:
    """Returns what an interpreter computes of inputs; arguments and errors are those of `reference`."""
    with reference(model, rounding) as outputs:
        return outputs(inputs)


def _answers(process: "subprocess.Popen[str]") -> bool:
    """Asks the process to run the inputs that are in its folder; returns whether it has."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write("run\n")
        process.stdin.flush()
    except BrokenPipeError:
        return False
    return any(line.strip() == _DONE for line in process.stdout)


def _last_words(process: "subprocess.Popen[str]", stderr: IO[str]) -> str:
    """Returns what a process that has ended said last, or which operator its interpreter lacks."""
    code = process.wait()
    stderr.seek(0)
    said = stderr.read()
    if lacking := re.search("Didn't find op for builtin opcode '(.+?)'", said):
        return f"it has no kernel for {lacking[1]}; compile and check with another rounding"
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("INFO")]
    return lines[-1][-300:] if lines else f"it ended with code {code}"


_DONE = "rudel: done"
"""The line by which the process says that outputs are there; an interpreter may write others."""


def _write(path: Path, runs: Sequence[Run]) -> None:
    arrays = {str(place): np.stack(rows) for place, rows in enumerate(zip(*runs, strict=True))}
    np.savez(path, **arrays)  # type: ignore[arg-type]  # NumPy's stubs take names for its options


def _read(path: Path) -> list[Run]:
    with np.load(path) as stored:
        arrays = [stored[str(place)] for place in range(len(stored.files))]
    return [list(run) for run in zip(*arrays, strict=True)]


def _serve(rounding: str, folder: Path) -> None:
    """Runs the inputs of a folder whenever a line says so; the process that `reference` starts."""
    model = (folder / "model.tflite").read_bytes()
    invoke = _tflm(model) if rounding == "tflm" else _litert(model, rounding)
    for _ in sys.stdin:
        _write(folder / "outputs.npz", [invoke(run) for run in _read(folder / "inputs.npz")])
        print(_DONE, flush=True)


def _litert(model: bytes, rounding: str) -> Callable[[Run], Run]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-untyped]

    kind = OpResolverType.BUILTIN_REF if rounding == "litert" else OpResolverType.AUTO
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kind, num_threads=1)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    results = [detail["index"] for detail in interpreter.get_output_details()]

    def invoke(inputs: Run) -> Run:
        for place, array in zip(places, inputs, strict=True):
            interpreter.set_tensor(place, array)
        interpreter.invoke()
        return [interpreter.get_tensor(place).copy() for place in results]

    return invoke


def _tflm(model: bytes) -> Callable[[Run], Run]:
    from tflite_micro.python.tflite_micro import runtime  # type: ignore[import-untyped]

    from rudel.micro.reader import read_model

    graph = read_model(model)
    arena = (1 << 20) + 8 * sum(tensor.bytes for tensor in graph.tensors)
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)

    def invoke(inputs: Run) -> Run:
        for place, array in enumerate(inputs):
            interpreter.set_input(array, place)
        interpreter.invoke()
        return [np.array(interpreter.get_output(place)) for place in range(len(graph.outputs))]

    return invoke


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
