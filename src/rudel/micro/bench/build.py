"""C sources to an image for a board, by a cross compiler; and how much flash and RAM an image takes."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rudel.micro.bench.boards import Core, Timer
from rudel.micro.bench.tools import BenchError, program

STANDARD = ("-std=c99", "-O2", "-ffunction-sections", "-fdata-sections")
OWN = ("board.h", "board.ld", "startup.c", "harness.c")
"""Files of the bench itself."""


@dataclass(frozen=True)
class Size:
    """Sizes of an image's sections, in bytes.

    Args:
        flash: code, constants, and the initial values of variables.
        ram: variables, initialised or zero; without stack.
    """

    flash: int
    ram: int

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.flash - other.flash, self.ram - other.ram)


def build(
    folder: Path, core: Core, sources: Mapping[str, str], *, macros: Sequence[str] = (), options: Sequence[str] = ()
) -> Path:
    """Compiles and links the bench with the sources that are given.

    Args:
        folder: where files are written; it exists.
        core: what to build for.
        sources: texts of `.c` and `.h` files by name; among them what `harness.c` asks for, or another
            `harness.c`.
        macros: `NAME=VALUE`, for all sources.
        options: more options of the compiler.

    Returns:
        The image, an ELF file.

    Raises:
        BenchError: the compiler is not there, or refuses a source.
    """
    compiler = program(f"{core.tools}-gcc")
    own = {name: (resources.files("rudel.micro.bench") / name).read_text() for name in OWN}
    for name, text in {**own, **sources}.items():
        (folder / name).write_text(text)
    board = core.board
    places = {
        "BENCH_VECTORS": board.flash if board.vectors is None else board.vectors,
        "BENCH_FLASH": board.flash,
        "BENCH_FLASH_BYTES": board.flash_bytes,
        "BENCH_RAM": board.ram,
        "BENCH_RAM_BYTES": board.ram_bytes,
    }
    image = folder / "image.elf"
    command = [
        compiler,
        *core.options,
        *STANDARD,
        *options,
        *_timer_macros(board.timer),
        *(f"-D{macro}" for macro in macros),
        "-nostartfiles",
        *(f"-Wl,--defsym={name}={value:#x}" for name, value in places.items()),
        "-Wl,--gc-sections",
        "-Tboard.ld",
        *sorted(name for name in {**sources, **own} if name.endswith(".c")),
        "-lm",
        "-o",
        image.name,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr.strip().splitlines() or ["nothing said"])[-3:])
        raise BenchError(f"{core.tools}-gcc could not build the image for {board.machine} ({said}).")
    return image


def _timer_macros(timer: Timer) -> list[str]:
    start = " ".join(f"TIMER({place:#x}u) = {value:#x}u;" for place, value in timer.start)
    now = f"TIMER({timer.value:#x}u)"
    return [f"-DBENCH_TIMER_START={start}", f"-DBENCH_TIMER_NOW={now if timer.down else f'(0u - {now})'}"]


def size(image: Path, core: Core) -> Size:
    """Flash and RAM of an image for a core."""
    done = subprocess.run([program(f"{core.tools}-size"), str(image)], capture_output=True, text=True, check=True)
    text, data, bss = map(int, done.stdout.splitlines()[1].split()[:3])
    return Size(text + data, data + bss)
