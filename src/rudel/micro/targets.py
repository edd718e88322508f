"""What models are compiled for: cores, and how much flash and RAM their boards have."""

from dataclasses import dataclass

from rudel.errors import CompileError


@dataclass(frozen=True)
class Target:
    """A kind of processor.

    Attributes:
        name: as on the command line.
        dsp: whether it has the DSP instructions of Armv7E-M (`SMLAD` and friends).
        flash: bytes of flash, or None where nothing is known of the board.
        ram: bytes of RAM, or None.
        words: the alignment in bytes that its kernels want for tensors.
    """

    name: str
    dsp: bool = False
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
        Target("nano33ble", dsp=True, flash=1 << 20, ram=256 << 10),
        Target("pico", flash=2 << 20, ram=264 << 10),
    )
}
"""By name. `nano33ble` is an nRF52840 (Cortex-M4F), `pico` an RP2040 (Cortex-M0+)."""


def target_named(name: str) -> Target:
    """Returns a target.

    Raises:
        CompileError: there is none of that name.
    """
    if name not in TARGETS:
        raise CompileError(f"There is no target `{name}`: choose one of {', '.join(TARGETS)}.")
    return TARGETS[name]
