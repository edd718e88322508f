"""Boards that QEMU pretends to be, and the compiler's options for the cores that models are compiled for.

Every core runs on a board that counts its instructions exactly: a timer and `-icount`. Two run on a board with another
core, which executes their code and counts alike: there is no Cortex-M0+ with such a timer, and its code is a subset of
what a Cortex-M4 executes; nor a Cortex-M85, whose Armv8.1-M and Helium are those of the Cortex-M55.
"""

from dataclasses import dataclass, field

from rudel.errors import RudelError


@dataclass(frozen=True)
class Timer:
    """The timer of a board.

    Args:
        value: where its 32-bit register is.
        hertz: how fast it counts.
        down: whether it counts down.
        start: what to write first, as pairs of address and value.
    """

    value: int
    hertz: int
    down: bool = False
    start: tuple[tuple[int, int], ...] = ()


def _cmsdk(base: int, hertz: int = 25_000_000) -> Timer:
    """Arm's CMSDK timer: control, value and reload registers, from the greatest value down."""
    return Timer(base + 4, hertz, True, ((base + 8, 0xFFFF_FFFF), (base + 4, 0xFFFF_FFFF), (base, 1)))


@dataclass(frozen=True)
class Board:
    """A computer that QEMU pretends to be.

    Args:
        machine: its name there.
        flash: where code begins, bytes.
        flash_bytes: how much of it there is.
        ram: where data begins, bytes.
        ram_bytes: how much of it there is.
        vectors: where the core looks for its vectors, 64 bytes; None: where code begins.
        timer: what counts time.
        emulator: the program.
        options: more options of the emulator.
    """

    machine: str
    flash: int = 0x0000_0000
    flash_bytes: int = 4 << 20
    ram: int = 0x2000_0000
    ram_bytes: int = 4 << 20
    vectors: int | None = None
    timer: Timer = field(default_factory=lambda: _cmsdk(0x4000_0000))
    emulator: str = "qemu-system-arm"
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Core:
    """Toolchain and emulated board of a target of the compiler.

    Args:
        options: of the compiler, which name the core and its floating-point unit.
        board: where it runs.
        tools: what the names of compiler and binary utilities start with.
    """

    options: tuple[str, ...]
    board: Board
    tools: str = "arm-none-eabi"

    @property
    def programs(self) -> tuple[str, str, str]:
        """Programs that build, weigh and run an image."""
        return f"{self.tools}-gcc", f"{self.tools}-size", self.board.emulator


_M4_BOARD = Board("mps2-an386")
_M55_BOARD = Board(
    "mps3-an547",
    flash=0x1100_0000,
    flash_bytes=2 << 20,
    ram=0x3100_0000,
    ram_bytes=2 << 20,
    vectors=0x0000_0000,
    timer=Timer(0x5810_0008, 32_000_000, start=((0x5810_0000, 1),)),
)
_RISCV_BOARD = Board(
    "virt",
    flash=0x8000_0000,
    ram=0x8040_0000,
    timer=Timer(0x0200_BFF8, 10_000_000),
    emulator="qemu-system-riscv32",
    options=("-bios", "none"),
)

_M4 = Core(("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"), _M4_BOARD)
_M0PLUS = Core(("-mcpu=cortex-m0plus", "-mthumb", "-mfloat-abi=soft"), _M4_BOARD)
_M33 = Core(
    ("-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
    Board("mps2-an505", flash=0x1000_0000, ram=0x3800_0000, timer=_cmsdk(0x5000_0000, 20_000_000)),
)
_M55 = Core(("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"), _M55_BOARD)
_RV32IMC = Core(
    ("-march=rv32imc", "-mabi=ilp32", "-mcmodel=medany", "--specs=picolibc.specs"), _RISCV_BOARD, "riscv64-unknown-elf"
)

CORES = {
    "cortex-m0": Core(("-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft"), _M4_BOARD),
    "cortex-m0plus": _M0PLUS,
    "cortex-m3": Core(("-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"), Board("mps2-an385")),
    "cortex-m4": _M4,
    "cortex-m7": Core(("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"), Board("mps2-an500")),
    "cortex-m33": _M33,
    "cortex-m55": _M55,
    "cortex-m85": _M55,
    "rv32imc": _RV32IMC,
    "esp32c3": _RV32IMC,
    "esp32c6": _RV32IMC,
    "nano33ble": _M4,
    "nrf5340": _M33,
    "pico": _M0PLUS,
    "pico2": _M33,
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
