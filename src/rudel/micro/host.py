"""A compiled model on this computer: built by whatever C compiler there is, and called from Python."""

import ctypes
import importlib.util
import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from rudel.errors import CompileError
from rudel.micro.compiler import Compiled

OPTIONS = ("-std=c99", "-O2", "-shared", "-fPIC")

_NUMBERS = itertools.count()
"""Libraries have one in their names, as the loader takes another file of the same path for the library it has."""


def c_compiler() -> list[str]:
    """Returns the command of a C compiler: `cc`, `gcc` or `clang`, or the one in the package `ziglang`.

    Raises:
        CompileError: there is none.
    """
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CompileError("There is no C compiler on this computer: install gcc or clang, or run `pip install ziglang`.")


class HostModel:
    """A model that was compiled to C, built as a shared library, which stays loaded until the process ends.

    Args:
        model: what was compiled.
        folder: where files are written; it must stay as long as the model is used.

    Raises:
        CompileError: there is no C compiler, or it refuses the source.
    """

    def __init__(self, model: Compiled, folder: Path) -> None:
        self._model = model
        source = next(path for path in model.write(folder) if path.suffix == ".c")
        library = folder / f"{model.name}-{next(_NUMBERS)}.so"
        command = [*c_compiler(), *OPTIONS, str(source), "-lm", "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join(done.stderr.split())[-300:]
            raise CompileError(f"The C compiler `{command[0]}` refuses {source.name}: {said}")
        self._library = ctypes.CDLL(str(library))

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Computes the outputs of one set of inputs."""
        ports = self._model.inputs
        arrays = [
            np.ascontiguousarray(array, dtype=port.dtype).reshape(port.shape)
            for array, port in zip(inputs, ports, strict=True)
        ]
        outputs = [np.zeros(port.shape, port.dtype) for port in self._model.outputs]
        invoke = getattr(self._library, f"{self._model.name}_invoke")
        invoke(*(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *outputs)))
        return outputs

    def reset(self) -> None:
        """Forgets what the model remembers of earlier inputs."""
        if self._model.remembers:
            getattr(self._library, f"{self._model.name}_reset")()
