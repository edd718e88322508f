"""A model on a real board: whether its bits are right, and how long it takes.

The board runs the sketch of `rudel.micro.bench.sketch`, and says which model that is. An input whose bytes it does not
have, since it was reset meanwhile, is sent again.
"""

import statistics
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.data.collecting.port import opened
from rudel.micro.arithmetic import Rounding
from rudel.micro.bench.host import count_differing, host_outputs
from rudel.micro.bench.line import Line, NoAnswerError, Port, RefusedError
from rudel.micro.bench.measure import uniform_inputs
from rudel.micro.bench.sketch import model_hash
from rudel.micro.bench.tools import BenchError
from rudel.micro.compiler import Compiled, compile_model

_VERSION = 1
_HELLO = struct.Struct("<B8sIII")
_AT_ONCE = 128
_RUN_SECONDS = 60.0
_TRIES = 3


@dataclass(frozen=True)
class BoardMeasurement:
    """Measurements on a board.

    Args:
        port: that it is at.
        microseconds: of each inference.
        hertz: of its processor; None where its sketch does not know.
        differing: for how many inputs the outputs are not as expected, float32 within rounding.
        exact: whether equality was required: all outputs are integers.
    """

    port: str
    microseconds: tuple[int, ...]
    hertz: int | None
    differing: int
    exact: bool

    @property
    def median(self) -> float:
        """Microseconds of an inference."""
        return statistics.median(self.microseconds)

    @property
    def cycles(self) -> int | None:
        """Clock cycles of an inference, to a microsecond's worth; None where the processor's clock is not known."""
        return None if self.hertz is None else round(self.median * self.hertz / 1e6)


def bench_board(
    source: Path | bytes,
    port: str,
    *,
    target: str = "cortex-m4",
    rounding: Rounding = "litert",
    ram: int | None = None,
    count: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> BoardMeasurement:
    """Runs a model on a board that has its sketch, with random inputs.

    Args:
        source: a .tflite file, or its bytes.
        port: that the board is at, such as /dev/ttyACM0.
        target: what its sketch was made for.
        rounding: likewise.
        ram: likewise.
        count: how many random inputs to run; the seed is fixed.
        progress: is called with the number of inputs done and of all.

    Raises:
        CompileError: the model cannot be compiled.
        BenchError: the board does not answer, has another model, or loses its input again and again.
        DataError: the port cannot be opened, or the board is gone.
    """
    compiled = compile_model(source, rounding=rounding, target=target, ram=ram)
    inputs = uniform_inputs(compiled, count)
    expected = host_outputs(compile_model(source, rounding=rounding), inputs)
    with opened(port) as line:
        return run_on_board(line, compiled, inputs, expected, progress=progress)


def run_on_board(
    port: Port,
    compiled: Compiled,
    inputs: Sequence[bytes],
    expected: Sequence[bytes],
    *,
    patience: float = 8.0,
    timeout: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> BoardMeasurement:
    """Runs a model on a board, and compares its outputs.

    Args:
        port: that the board is at.
        compiled: the model, as it was compiled for the sketch.
        inputs: at least one; each is the bytes of all input tensors in order.
        expected: the bytes of all output tensors, for every input.
        patience: seconds that the board may take to answer at first; many are reset when their port is opened.
        timeout: seconds after which a request is sent again, once the board has answered.
        progress: is called with the number of inputs done and of all.

    Raises:
        BenchError: the board does not answer, has another model, or loses its input again and again.
        DataError: the board is gone.
    """
    line = Line(port)
    hertz = _greeted(line, port, compiled, patience)
    outputs, microseconds = [], []
    for number, given in enumerate(inputs):
        output, taken = _run(line, port, given, len(expected[number]), timeout)
        outputs.append(output)
        microseconds.append(taken)
        if progress is not None:
            progress(number + 1, len(inputs))
    differing = count_differing(compiled, outputs, expected)
    return BoardMeasurement(port.name, tuple(microseconds), hertz or None, differing, compiled.exact)


def _greeted(line: Line, port: Port, compiled: Compiled, patience: float) -> int:
    """Makes sure that the board has this model; returns hertz."""
    timeout = min(0.5, patience)
    try:
        hello = line.ask("H", timeout=timeout, attempts=max(round(patience / timeout), 1))
        version, hash_, *_, hertz = _HELLO.unpack(hello)
    except (NoAnswerError, RefusedError, struct.error) as error:
        raise BenchError(
            f"The board at {port.name} does not answer: upload the sketch that `rudel micro bench --sketch DIR` writes "
            "for the model, and close other programs that use the port."
        ) from error
    if (version, hash_) != (_VERSION, model_hash(compiled)):
        raise BenchError(
            f"The board at {port.name} has another model than {compiled.name} for {compiled.target.name} with bits of "
            f"{compiled.rounding}: write its sketch again by `rudel micro bench --sketch DIR`, and upload it."
        )
    return hertz


def _run(line: Line, port: Port, given: bytes, length: int, timeout: float) -> tuple[bytes, int]:
    """Returns the output of an input, and microseconds."""
    for _ in range(_TRIES):
        try:
            for at in range(0, len(given), _AT_ONCE):
                line.ask("W", struct.pack("<I", at) + given[at : at + _AT_ONCE], timeout=timeout)
            asked = struct.pack("<I", zlib.crc32(given))
            ran = line.ask("R", asked, timeout=timeout, attempts=round(_RUN_SECONDS / timeout))
            output = b""
            while len(output) < length:
                asked = struct.pack("<IB", len(output), min(_AT_ONCE, length - len(output)))
                output += line.ask("G", asked, timeout=timeout)[4:]
        except RefusedError:
            continue
        except NoAnswerError as error:
            raise BenchError(
                f"The board at {port.name} has stopped answering: reset it, and repeat the command."
            ) from error
        return output, *struct.unpack("<I", ran)
    raise BenchError(
        f"The board at {port.name} has lost its input {_TRIES} times, as if it were reset: see to its power and cable."
    )
