"""What TensorFlow Lite Micro needs on a Cortex-M4F, what Rudel claims to need, and whether it does."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """What a model needs, or may need.

    Args:
        instructions: of one inference.
        code: bytes of flash that are not the model's own numbers.
        ram: bytes, without stack.
    """

    instructions: int
    code: int
    ram: int


TFLM = {
    "hello_world": Needs(3_500, 27_911, 1_432),
    "micro_speech": Needs(1_495_324, 44_052, 7_328),
    "person_detect": Needs(22_928_050, 43_544, 82_832),
    "ad": Needs(582_849, 27_912, 3_304),
    "kws": Needs(7_698_251, 53_278, 23_392),
    "ic": Needs(29_863_135, 53_580, 55_632),
    "vww": Needs(24_101_541, 55_784, 101_344),
}
"""TFLM of August 2026 with CMSIS-NN, -O2, int8-only registrations, measured for this project on QEMU's mps2-an386."""

CLAIMS = {
    "hello_world": Needs(1_200, 1_500, 100),
    "micro_speech": Needs(1_000_000, 5_000, 6_200),
    "person_detect": Needs(15_000_000, 12_000, 56_000),
    "ad": Needs(450_000, 3_000, 1_000),
    "kws": Needs(5_200_000, 9_000, 17_000),
    "ic": Needs(20_000_000, 9_000, 50_000),
    "vww": Needs(15_500_000, 12_000, 56_000),
}
"""What Rudel needs at most."""


def broken(measured: Mapping[str, Needs]) -> list[str]:
    """A sentence for every claim that does not hold."""
    sentences = []
    for name, needs in measured.items():
        for what in ("instructions", "code", "ram"):
            value, limit = getattr(needs, what), getattr(CLAIMS[name], what)
            if value > limit:
                sentences.append(f"{name}: {what} {value:,}, claimed at most {limit:,}")
    return sentences
