"""What TensorFlow Lite Micro needs on a Cortex-M4F, what Rudel claims to need, and whether it does."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """What a model needs, or may need; None where it is not known.

    Args:
        instructions: of one inference.
        code: bytes of flash that are not the model's own numbers.
        ram: bytes, without stack.
        flash: bytes, with the model's own numbers.
    """

    instructions: int
    code: int | None
    ram: int | None
    flash: int | None = None


TFLM = {
    "hello_world": Needs(3_500, 27_911, 1_432),
    "micro_speech": Needs(1_495_324, 44_052, 7_328),
    "person_detect": Needs(22_928_050, 43_544, 82_832),
    "ad01": Needs(582_849, 27_912, 3_304),
    "kws_dscnn": Needs(7_698_251, 53_278, 23_392),
    "ic_resnet8": Needs(29_863_135, 53_580, 55_632),
    "vww_96": Needs(24_101_541, 55_784, 101_344),
    "sww_ref": Needs(2_227_468, None, None),
}
"""TFLM of August 2026 with CMSIS-NN, -O2, int8-only registrations, measured for this project on QEMU's mps2-an386."""

CLAIMS = {
    "hello_world": Needs(1_200, 1_500, 100),
    "micro_speech": Needs(1_000_000, 5_000, 6_200),
    "person_detect": Needs(15_000_000, 12_000, 56_000),
    "ad01": Needs(320_000, 3_000, 768),
    "kws_dscnn": Needs(3_400_000, 9_000, 8_256),
    "ic_resnet8": Needs(13_400_000, 9_000, 33_872),
    "vww_96": Needs(6_500_000, 9_000, 37_168, 88_000),
    "sww_ref": Needs(950_000, 9_000, 3_840),
}
"""What Rudel needs at most."""

VENDOR_CYCLES = {
    "ad01": 486_000,
    "kws_dscnn": 5_210_000,
    "ic_resnet8": 19_880_000,
    "vww_96": 10_730_000,
    "sww_ref": 2_150_000,
}
"""Clock cycles of an inference: the best that a vendor of microcontrollers has published (`VENDORS`)."""

VENDORS = (
    "Vendor's best: cycles on silicon, not instructions, of the best result for a Cortex-M4 in MLPerf Tiny 1.1 to 1.3 "
    "(https://mlcommons.org/benchmarks/inference-tiny/)."
)


def broken(measured: Mapping[str, Needs]) -> list[str]:
    """A sentence for every claim that does not hold."""
    sentences = []
    for name, needs in measured.items():
        for what in ("instructions", "code", "ram", "flash"):
            value, limit = getattr(needs, what), getattr(CLAIMS[name], what)
            if limit is not None and value > limit:
                sentences.append(f"{name}: {what} {value:,}, claimed at most {limit:,}")
    return sentences
