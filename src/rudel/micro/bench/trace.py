"""An estimate of the cycles that a function takes on a Cortex-M4, from the blocks of code that QEMU executes.

QEMU counts how often each block runs, and how often its last branch is taken (`trace.c`); `timings.py` says what that
takes.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rudel.micro.bench.boards import Core
from rudel.micro.bench.timings import block_cycles, disassembled, refill
from rudel.micro.bench.tools import BenchError, program
from rudel.micro.host import OPTIONS, c_compiler

_OUT = "trace.txt"
_PLUGIN = "trace.so"
_CALL, _CALL_CYCLES = 2, 3
"""Cost of a call of a mark, whose own code is not counted: an instruction for its argument, and a branch."""


@dataclass(frozen=True)
class Block:
    """Count of the runs of a block of code.

    Args:
        start: its address.
        instructions: how many it has.
        runs: how often it ran.
        taken: how often another block than the next in memory ran after it.
        unaligned: how many of these led to a 32-bit instruction at an address that is not a multiple of four.
    """

    start: int
    instructions: int
    runs: int
    taken: int
    unaligned: int


@dataclass(frozen=True)
class Section:
    """Instructions that ran until a mark, or until the function returned.

    Args:
        blocks: that ran.
        unaligned_cycles: that loads from unaligned addresses take more.
        marked: whether it ended at a mark.
    """

    blocks: tuple[Block, ...]
    unaligned_cycles: int
    marked: bool

    @property
    def instructions(self) -> int:
        """Number that ran, without those of calling the mark."""
        return sum(block.instructions * block.runs for block in self.blocks) - _CALL * self.marked


def can_trace(core: Core) -> bool:
    """Whether there can be an estimate: the timings of the core are published, and QEMU takes plugins here."""
    if "-mcpu=cortex-m4" not in core.options or sys.platform != "linux":
        return False
    options = subprocess.run([program("qemu-system-arm"), "-help"], capture_output=True, text=True, check=True).stdout
    return "-plugin" in options


def build_plugin(folder: Path) -> Path:
    """Builds the plugin in a folder, for as many images as there are.

    Raises:
        BenchError: the C compiler of this computer refuses the source.
        CompileError: there is no C compiler.
    """
    version = subprocess.run([program("qemu-system-arm"), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"version (\d+)", version.stdout)
    major = int(found[1]) if found else 0
    interface = 1 if major < 9 else 2 if major < 10 else 4  # what trace.c uses is the same in all of them
    source = folder / "trace.c"
    source.write_text((resources.files("rudel.micro.bench") / source.name).read_text())
    command = [*c_compiler(), *OPTIONS, f"-DTRACE_INTERFACE={interface}", source.name, "-o", _PLUGIN]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"The plugin that counts blocks of code could not be built ({done.stderr.strip()}).")
    return folder / _PLUGIN


def loading(plugin: Path, image: Path, function: str, mark: str | None = None) -> str:
    """QEMU's option to load the plugin when an image runs.

    Args:
        plugin: what `build_plugin` made.
        image: what will run.
        function: the name of the function whose code is counted.
        mark: that of a function that ends a section; calls of it count for nothing.
    """
    symbols = _symbols(image)
    marks = f",mark={symbols[mark]:#x}" if mark else ""
    place = os.path.relpath(plugin, image.parent)  # the names of folders may have commas, which QEMU would split at
    return f"./{place},begin={symbols[function]:#x}{marks},out={_OUT}"


def _symbols(image: Path) -> dict[str, int]:
    done = subprocess.run([program("arm-none-eabi-nm"), str(image)], capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {line[2]: int(line[0], 16) & ~1 for line in lines if len(line) == 3}


def sections(image: Path) -> list[list[Section]]:
    """Sections of each call of the function, after QEMU has run an image."""
    calls: list[list[Section]] = [[]]
    blocks: list[Block] = []
    for line in (image.parent / _OUT).read_text().splitlines():
        what, *numbers = line.split()
        if what not in ("mark", "end"):
            blocks.append(Block(*map(int, (what, *numbers))))
            continue
        calls[-1].append(Section(tuple(blocks), int(numbers[0]), what == "mark"))
        blocks = []
        if what == "end":
            calls.append([])
    return calls[:-1]


def estimates(image: Path) -> list[list[int]]:
    """Cycles by call and section, after QEMU has run an image, without those of calling the mark."""
    code = disassembled(image)
    places = list(code)
    numbers = {place: number for number, place in enumerate(places)}

    def cycles(block: Block) -> int:
        first = numbers[block.start]
        instructions = [code[place] for place in places[first : first + block.instructions]]
        taken = block.runs if instructions[-1].always_branches else block.taken
        refills = taken * refill(instructions[-1]) if taken else 0
        return block.runs * block_cycles(instructions) + refills + block.unaligned

    def section_cycles(section: Section) -> int:
        return sum(map(cycles, section.blocks)) + section.unaligned_cycles - _CALL_CYCLES * section.marked

    return [list(map(section_cycles, call)) for call in sections(image)]
