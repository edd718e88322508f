"""Whether compiled C gives the bits of the interpreter that it was compiled for, on this computer."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rudel.errors import CompileError
from rudel.micro.compiler import Compiled, Port
from rudel.micro.host import HostModel
from rudel.micro.interpreters import NAMES, Run, reference
from rudel.micro.reader import with_valid_axes


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        interpreter: what was compared with.
        random: how many random inputs were tried.
        real: how many of the user's.
        different: for how many inputs any output differs.
        elements: how many elements of outputs differ, of how many.
        largest: the largest difference of an element.
        exact: whether equality is required: all outputs are integers.
        corrected: whether the interpreter was given the file with corrected axes (see `with_valid_axes`).
    """

    interpreter: str
    random: int
    real: int
    different: int
    elements: tuple[int, int]
    largest: float
    exact: bool
    corrected: bool

    @property
    def passed(self) -> bool:
        """Whether nothing differs; for float32, by no more than rounding may."""
        return self.different == 0


_TOLERANCE = 1e-4

MOST = 1000
"""Random inputs that are tried where no number is given, if they take no longer than `SECONDS`."""

SECONDS = 30.0

_LEAST = 8
"""Random inputs that are tried in any case: two of each kind."""


def check(
    compiled: Compiled,
    model: bytes,
    *,
    count: int | None = None,
    real: Sequence[np.ndarray] = (),
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Check:
    """Runs compiled C and an interpreter on the same inputs.

    Args:
        compiled: what to check.
        model: the bytes of the .tflite file that it was compiled from.
        count: how many random inputs to try (see `endless_inputs`); by default as many as take `SECONDS`, between 8 and
            `MOST`.
        real: the user's inputs, one array for each of the model's, examples along axis 0; floats are quantised.
        seed: of the random inputs.
        progress: called with the numbers of inputs that are done and of all of them.

    Raises:
        CompileError: there is no C compiler or no interpreter, or the user's inputs do not fit.
    """
    given = _examples(compiled.inputs, real)
    if count == 0 and not given:
        raise CompileError("There is nothing to check with: ask for at least one input.")
    random = endless_inputs(compiled.inputs, seed)
    tally = _Tally()
    with reference(model, compiled.rounding) as expected, tempfile.TemporaryDirectory() as folder:
        host = HostModel(compiled, Path(folder))
        total, tried, seconds = MOST if count is None else count, 0, 0.0
        while tried < total:
            progress(tried, total + len(given))
            runs = list(islice(random, min(_batch(tried, seconds), total - tried)))
            begun = time.monotonic()
            tally.add(host, runs, expected(runs))
            # The first input waits for the interpreter to start.
            seconds += time.monotonic() - begun if tried else 0.0
            tried += len(runs)
            if count is None and seconds:
                total = min(max(int(SECONDS * (tried - 1) / seconds), _LEAST, tried), MOST)
        for place in range(0, len(given), _LEAST):
            progress(tried + place, tried + len(given))
            tally.add(host, given[place : place + _LEAST], expected(given[place : place + _LEAST]))
        progress(tried + len(given), tried + len(given))
    elements = (tally.wrong, tally.elements)
    corrected = with_valid_axes(model) != model
    name = NAMES[compiled.rounding]
    return Check(name, tried, len(given), tally.different, elements, tally.largest, compiled.exact, corrected)


def _batch(tried: int, seconds: float) -> int:
    """Returns how many inputs to run before progress is shown again: about a second's, a few at first."""
    return min(max(int((tried - 1) / seconds), 1), tried) if seconds else 1


class _Tally:
    """Counts of outputs that differ so far; the attributes are those of `Check`."""

    def __init__(self) -> None:
        self.different = self.wrong = self.elements = 0
        self.largest = 0.0

    def add(self, host: HostModel, inputs: Sequence[Run], expected: Sequence[Run]) -> None:
        """Runs the compiled model on inputs, and counts what is not as expected."""
        for run, outputs in zip(inputs, expected, strict=True):
            unequal = 0
            for ours, theirs in zip(host(*run), outputs, strict=True):
                theirs = theirs.reshape(ours.shape)
                unequal += int(beyond_rounding(ours, theirs).sum())
                self.elements += ours.size
                self.largest = max(self.largest, float(_apart(ours, theirs).max()))
            self.wrong += unequal
            self.different += unequal > 0


def beyond_rounding(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Returns which outputs are not those expected, bool: integers that differ, and float32 by more than rounding may.

    Args:
        ours: an output of the compiled model.
        theirs: the expected one, of the same shape and dtype.
    """
    size = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0))
    return _apart(ours, theirs) > (_TOLERANCE * size if ours.dtype == np.float32 else 0.0)


def _apart(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Returns the distances of numbers, float64: 0 from NaN to NaN, infinity from NaN to anything else."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart = np.abs(ours - theirs)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def random_inputs(ports: Sequence[Port], count: int, seed: int) -> list[Run]:
    """Returns the first of `endless_inputs`."""
    return list(islice(endless_inputs(ports, seed), count))


def endless_inputs(ports: Sequence[Port], seed: int) -> Iterator[Run]:
    """Yields inputs without end: uniform ones, and in turn with them three kinds that reach what uniform ones do not.

    Values close to each other leave sums small and far from saturation, extremes make them large, and with a single
    value a model meets what it computes of a constant.
    """
    generator = np.random.default_rng(seed)
    number = 0
    while True:
        yield [_random_array(generator, port, number % 4) for port in ports]
        number += 1


def uniform_array(generator: np.random.Generator, port: Port) -> np.ndarray:
    """An input whose elements are uniform over its type, or standard normal where it is a float32."""
    if port.dtype == "float32":
        return generator.standard_normal(port.shape, np.float32)
    dtype = np.dtype(port.dtype)
    if dtype == np.bool_:
        return generator.integers(0, 2, port.shape).astype(dtype)
    return generator.integers(0, 256, port.size * dtype.itemsize, np.uint8).view(dtype).reshape(port.shape)


def _random_array(generator: np.random.Generator, port: Port, kind: int) -> np.ndarray:
    if kind == 0 or port.dtype in ("float32", "bool"):
        return uniform_array(generator, port)
    info = np.iinfo(np.dtype(port.dtype))
    middle = generator.integers(info.min, info.max + 1)
    if kind == 1:
        spread = (info.max / 2) ** generator.random()
        values = np.clip(np.rint(generator.normal(middle, spread, port.shape)), info.min, info.max)
    elif kind == 2:
        values = generator.choice([info.min, info.max], port.shape)
    else:
        values = np.full(port.shape, middle)
    return values.astype(port.dtype)


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
        columns.append(_as_elements(array, port).reshape(len(array), *port.shape))
    return [list(run) for run in zip(*columns, strict=False)]


def _as_elements(array: np.ndarray, port: Port) -> np.ndarray:
    """Numbers in the dtype of an input: floats are quantised where the input is.

    Raises:
        CompileError: the dtype is of integers, and one of the numbers is NaN or out of its range.
    """
    if np.dtype(port.dtype).kind in "iu":
        info = np.iinfo(port.dtype)
        array = array.astype(np.float64) if array.dtype.kind == "f" else array  # float16 and float32 round the limits
        if port.scale is not None and port.zero_point is not None and array.dtype.kind == "f":
            array = np.clip(np.rint(array / port.scale) + port.zero_point, info.min, info.max)
        fits = (array >= info.min) & (array <= info.max)
        if not fits.all():
            raise CompileError(
                f"Examples for the input `{port.name}` contain {array[~fits][0]}, which does not fit {port.dtype}: "
                f"give integers from {info.min} to {info.max}{', or floats, which are quantised' * port.quantised}."
            )
    return array.astype(port.dtype)
