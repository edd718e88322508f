"""Targets of the compiler: cores, and how much flash and RAM their boards have."""

from dataclasses import dataclass

from rudel.errors import CompileError


@dataclass(frozen=True)
class Target:
    """A kind of processor.

    Attributes:
        name: as on the command line.
        dsp: whether it has the DSP instructions of Armv7E-M (`SMLAD` and friends).
        helium: whether it has the vectors of Armv8.1-M (MVE, at least those of integers).
        flash: bytes of flash, or None where nothing is known of the board.
        ram: bytes of RAM, or None.
        words: the alignment in bytes that its kernels want for tensors.
    """

    name: str
    dsp: bool = False
    helium: bool = False
    flash: int | None = None
    ram: int | None = None
    words: int = 4


TARGETS = {
    target.name: target
    for target in (
        Target("generic"),
        Target("cortex-m0"),
        Target("cortex-m0plus"),
        Target("cortex-m3"),
        Target("cortex-m4", dsp=True),
        Target("cortex-m7", dsp=True),
        Target("cortex-m33", dsp=True),
        Target("cortex-m55", dsp=True, helium=True),
        Target("cortex-m85", dsp=True, helium=True),
        Target("rv32imc"),
        Target("esp32c3", flash=4 << 20, ram=400 << 10),
        Target("esp32c6", flash=4 << 20, ram=512 << 10),
        Target("nano33ble", dsp=True, flash=1 << 20, ram=256 << 10),
        Target("nrf5340", dsp=True, flash=1 << 20, ram=512 << 10),
        Target("pico", flash=2 << 20, ram=264 << 10),
        Target("pico2", dsp=True, flash=4 << 20, ram=520 << 10),
    )
}
"""By name. `nano33ble` is an nRF52840 (Cortex-M4F), `nrf5340` an nRF5340's application core (Cortex-M33), `pico` an
RP2040 (Cortex-M0+), `pico2` an RP2350 (Cortex-M33), `esp32c3` and `esp32c6` modules of that name (RV32IMC)."""


def target_named(name: str) -> Target:
    """Returns a target.

    Raises:
        CompileError: there is none of that name.
    """
    if name not in TARGETS:
        raise CompileError(f"There is no target `{name}`: choose one of {', '.join(TARGETS)}.")
    return TARGETS[name]
