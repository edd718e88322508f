"""An image run by QEMU, with every instruction counted."""

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.micro.bench.boards import Board
from rudel.micro.bench.tools import BenchError, program

_SHIFT = 6
_REASONS = {
    97: "the processor stopped at a fault",
    98: "the image found none of its files",
    99: "the image could not write its answers",
}


@dataclass(frozen=True)
class Record:
    """One inference.

    Args:
        instructions: that it took.
        stack_bytes: how deep the stack got.
        layer_instructions: of each layer; empty where layers were not distinguished.
    """

    instructions: int
    stack_bytes: int
    layer_instructions: tuple[int, ...]


def instructions(ticks: int, hertz: int) -> int:
    """Instructions that took some ticks of a timer, where each takes 2^6 ns (`-icount shift=6`).

    >>> instructions(1_600_000, 25_000_000)
    1000000
    """
    return round(ticks * 1_000_000_000 / (hertz << _SHIFT))


def run(
    image: Path,
    board: Board,
    inputs: Sequence[bytes],
    *,
    layers: int = 0,
    plugin: str | None = None,
    timeout: float = 300,
) -> tuple[list[bytes], list[Record]]:
    """Runs an image on inputs.

    Args:
        image: what `build` made; files are written beside it.
        board: what it was built for.
        inputs: each all bytes of all input tensors.
        layers: how many layers the image tells apart.
        plugin: one that QEMU loads, as its option names it.
        timeout: seconds of real time.

    Returns:
        The bytes of the outputs, and a record, for every input.

    Raises:
        BenchError: QEMU is not there, the image faults, or does not end in time.
    """
    emulator = program(board.emulator)
    folder = image.parent
    (folder / "inputs.bin").write_bytes(b"".join(inputs))
    for name in ("outputs.bin", "records.bin"):
        (folder / name).unlink(missing_ok=True)
    command = [emulator, "-M", board.machine, *board.options, "-nographic", "-monitor", "none", "-serial", "null"]
    command += ["-semihosting-config", "enable=on,target=native", "-icount", f"shift={_SHIFT}", "-kernel", image.name]
    if plugin is not None:
        command += ["-plugin", plugin]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"QEMU did not finish within {timeout:.0f} s on {board.machine}.") from error
    if done.returncode:
        reason = _REASONS.get(done.returncode) or done.stderr.strip() or f"QEMU ended with {done.returncode}"
        raise BenchError(f"The model could not be run on {board.machine}: {reason}.")
    outputs = (folder / "outputs.bin").read_bytes()
    records = (folder / "records.bin").read_bytes()
    length = len(outputs) // len(inputs)
    return (
        [outputs[i * length : (i + 1) * length] for i in range(len(inputs))],
        [
            _record(words, layers, board.timer.hertz)
            for words in struct.iter_unpack(f"<{3 + layers if layers else 2}I", records)
        ],
    )


def _record(words: tuple[int, ...], layers: int, hertz: int) -> Record:
    ticks, stack_bytes, *rest = words
    hook, *ends = rest or [0]
    starts = [0, *ends]
    spent = (end - start - hook for start, end in zip(starts, ends, strict=False))
    return Record(instructions(ticks, hertz), stack_bytes, tuple(max(instructions(t, hertz), 0) for t in spent))
