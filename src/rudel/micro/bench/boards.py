"""Boards that QEMU pretends to be, and the compiler's options for the cores that models are compiled for.

Every core runs on a board that counts its instructions exactly: a CMSDK timer and `-icount`. There is none with a
Cortex-M0+, whose code is a subset of what a Cortex-M4 executes, so the former's is run on the latter and counts alike.
"""

from dataclasses import dataclass

from rudel.errors import RudelError


@dataclass(frozen=True)
class Board:
    """A computer that `qemu-system-arm` pretends to be.

    Args:
        machine: its name there.
        flash: where code begins, bytes.
        flash_bytes: how much of it there is.
        ram: where data begins, bytes.
        ram_bytes: how much of it there is.
        timer: where the registers of a CMSDK timer begin.
        timer_hertz: how fast it counts.
    """

    machine: str
    flash: int = 0x0000_0000
    flash_bytes: int = 4 << 20
    ram: int = 0x2000_0000
    ram_bytes: int = 4 << 20
    timer: int = 0x4000_0000
    timer_hertz: int = 25_000_000


@dataclass(frozen=True)
class Core:
    """What a target of the compiler is built with and runs on here.

    Args:
        options: of `arm-none-eabi-gcc`, which name the core and its floating-point unit.
        board: where it runs.
    """

    options: tuple[str, ...]
    board: Board


_M4_BOARD = Board("mps2-an386")
_HARD_SINGLE = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")

CORES = {
    "cortex-m0": Core(("-mcpu=cortex-m0", "-mfloat-abi=soft"), _M4_BOARD),
    "cortex-m0plus": Core(("-mcpu=cortex-m0plus", "-mfloat-abi=soft"), _M4_BOARD),
    "cortex-m3": Core(("-mcpu=cortex-m3", "-mfloat-abi=soft"), Board("mps2-an385")),
    "cortex-m4": Core(("-mcpu=cortex-m4", *_HARD_SINGLE), _M4_BOARD),
    "cortex-m7": Core(("-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"), Board("mps2-an500")),
    "cortex-m33": Core(
        ("-mcpu=cortex-m33", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
        Board("mps2-an505", flash=0x1000_0000, ram=0x3800_0000, timer=0x5000_0000, timer_hertz=20_000_000),
    ),
}
"""By the compiler's name of the target."""


def core(target: str) -> Core:
    """The core that a target of the compiler stands for.

    Raises:
        RudelError: there is no board for that target.
    """
    if target not in CORES:
        raise RudelError(f"`{target}` cannot be measured: there are boards for {', '.join(CORES)}.")
    return CORES[target]
