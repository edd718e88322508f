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
        estimated_cycles: clock cycles of one inference, by the core's published timings.
    """

    instructions: int
    code: int | None
    ram: int | None
    flash: int | None = None
    estimated_cycles: int | None = None


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
    "ad01": Needs(320_000, 3_000, 768, estimated_cycles=486_000),
    "kws_dscnn": Needs(3_400_000, 9_000, 8_256, estimated_cycles=5_180_000),
    "ic_resnet8": Needs(12_700_000, 9_000, 33_872, estimated_cycles=19_815_000),
    "vww_96": Needs(6_500_000, 9_000, 37_168, 88_000, 10_670_000),
    "sww_ref": Needs(950_000, 9_000, 3_840, estimated_cycles=2_140_000),
}
"""What Rudel needs at most."""


@dataclass(frozen=True)
class Result:
    """The best result on a Cortex-M4 that a vendor has published.

    Args:
        vendor: who.
        round: of MLPerf Tiny.
        rate: inferences a second, the median of the result's file.
        hertz: the clock of the board, a NUCLEO-L4R5ZI.
    """

    vendor: str
    round: str
    rate: float
    hertz: int = 120_000_000

    @property
    def cycles(self) -> int:
        """Clock cycles of an inference."""
        return round(self.hertz / self.rate)


VENDORS = {
    "ad01": Result("Plumerai", "1.1", 246.814),
    "kws_dscnn": Result("STMicroelectronics", "1.2", 23.155),
    "ic_resnet8": Result("STMicroelectronics", "1.2", 6.056),
    "vww_96": Result("STMicroelectronics", "1.2", 11.245),
    "sww_ref": Result("STMicroelectronics", "1.3", 55.908),
}
"""By model, from closed/*/results/NUCLEO_L4R5ZI*/*/performance/results.txt of github.com/mlcommons/tiny_results_v*."""

SOURCES = (
    "Vendor's best: clock cycles on silicon, of the best result for a Cortex-M4 in the closed division of MLPerf Tiny "
    "1.1 to 1.3 (https://github.com/mlcommons/tiny_results_v1.1, _v1.2, _v1.3): 120 MHz by the inferences a second of "
    "the file. Those of sww_ref include the features of the sound. Rudel's cycles are an estimate for memory without "
    "wait states, not a measurement."
)


def slower(estimates: Mapping[str, int | None]) -> list[str]:
    """A sentence for every model whose estimated cycles are not below a vendor's."""
    return [
        f"{name}: an estimate of {cycles:,} cycles is not below the {VENDORS[name].cycles:,} of {VENDORS[name].vendor}."
        for name, cycles in estimates.items()
        if cycles is not None and name in VENDORS and cycles >= VENDORS[name].cycles
    ]


def broken(measured: Mapping[str, Needs]) -> list[str]:
    """A sentence for every claim that does not hold."""
    sentences = []
    for name, needs in measured.items():
        for what in ("instructions", "code", "ram", "flash", "estimated_cycles"):
            value, limit = getattr(needs, what), getattr(CLAIMS[name], what)
            if limit is not None and value is not None and value > limit:
                sentences.append(f"{name}: {what.replace('_', ' ')} {value:,}, claimed at most {limit:,}")
    return sentences
