"""Whether compiled C gives the bits of the interpreter that it was compiled for, on this computer."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rudel.errors import CompileError
from rudel.micro.compiler import Compiled, Port
from rudel.micro.host import HostModel
from rudel.micro.interpreters import NAMES, reference_outputs


@dataclass(frozen=True)
class Check:
    """What a check found.

    Attributes:
        interpreter: what was compared with.
        random: how many random inputs were tried.
        real: how many of the user's.
        different: for how many inputs any output differs.
        elements: how many elements of outputs differ, of how many.
        largest: the largest difference of an element.
        exact: whether equality is asked for: all outputs are integers.
    """

    interpreter: str
    random: int
    real: int
    different: int
    elements: tuple[int, int]
    largest: float
    exact: bool

    @property
    def passed(self) -> bool:
        """Whether nothing differs; for float32, by no more than rounding may."""
        return self.different == 0


_TOLERANCE = 1e-4


def check(
    compiled: Compiled, model: bytes, *, count: int = 1000, real: Sequence[np.ndarray] = (), seed: int = 0
) -> Check:
    """Runs compiled C and an interpreter on the same inputs.

    Args:
        compiled: what to check.
        model: the bytes of the .tflite file that it was compiled from.
        count: how many random inputs to try: half of them uniform, a quarter of extreme values, a quarter of one value.
        real: the user's inputs, one array for each of the model's, examples along axis 0; floats are quantised.
        seed: of the random inputs.

    Raises:
        CompileError: there is no C compiler or no interpreter, or the user's inputs do not fit.
    """
    random = random_inputs(compiled.inputs, count, seed)
    given = _examples(compiled.inputs, real)
    runs = random + given
    if not runs:
        raise CompileError("There is nothing to check with: ask for at least one input.")
    expected = reference_outputs(model, compiled.rounding, runs)
    with tempfile.TemporaryDirectory() as folder:
        host = HostModel(compiled, Path(folder))
        different = wrong = elements = 0
        largest = 0.0
        for inputs, outputs in zip(runs, expected, strict=True):
            unequal = 0
            for ours, theirs in zip(host(*inputs), outputs, strict=True):
                apart = np.abs(ours.astype(np.float64) - theirs.reshape(ours.shape).astype(np.float64))
                allowed = 0.0 if ours.dtype != np.float32 else _TOLERANCE * max(1.0, float(np.abs(theirs).max()))
                unequal += int((apart > allowed).sum())
                elements += ours.size
                largest = max(largest, float(apart.max()))
            wrong += unequal
            different += unequal > 0
    exact = all(port.dtype != "float32" for port in compiled.outputs)
    return Check(NAMES[compiled.rounding], len(random), len(given), different, (wrong, elements), largest, exact)


def random_inputs(ports: Sequence[Port], count: int, seed: int) -> list[list[np.ndarray]]:
    """Returns inputs that reach what uniform ones do not: also extremes, which make sums large, and single values."""
    generator = np.random.default_rng(seed)
    runs = []
    for number in range(count):
        arrays = []
        for port in ports:
            if port.dtype == "float32":
                arrays.append(generator.normal(size=port.shape).astype(np.float32))
                continue
            info = np.iinfo(np.dtype(port.dtype))
            if number % 4 == 2:
                values = generator.choice([info.min, info.max], port.shape)
            elif number % 4 == 3:
                values = np.full(port.shape, generator.integers(info.min, info.max + 1))
            else:
                values = generator.integers(info.min, info.max + 1, port.shape)
            arrays.append(values.astype(port.dtype))
        runs.append(arrays)
    return runs


def _examples(ports: Sequence[Port], arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    if not arrays:
        return []
    if len(arrays) != len(ports):
        raise CompileError(f"The model has {len(ports)} inputs, and {len(arrays)} arrays are given.")
    columns = []
    for port, array in zip(ports, arrays, strict=True):
        shape = port.shape[1:] if port.shape and port.shape[0] == 1 else port.shape
        size = int(np.prod(shape))
        if array.ndim == 0 or len(array) == 0 or array[0].size != size:
            raise CompileError(
                f"Examples of shape {list(array.shape[1:])} do not fit the input `{port.name}` {list(port.shape)}."
            )
        if port.scale is not None and port.zero_point is not None and array.dtype.kind == "f":
            info = np.iinfo(np.dtype(port.dtype))
            array = np.clip(np.rint(array / port.scale) + port.zero_point, info.min, info.max)
        columns.append(array.reshape(len(array), *port.shape).astype(port.dtype))
    return [list(run) for run in zip(*columns, strict=False)]
