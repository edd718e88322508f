"""What makers say that one device multiplies at best, in TFLOP/s: dense matrices, accumulated in float32.

`float32` is what JAX uses for float32 by default: TF32 where NVIDIA's tensor cores have it, one pass of bfloat16 on
TPUs. Makers often print the figure for matrices half of which are zeros; here it is halved.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_GOOGLE = "https://cloud.google.com/tpu/docs"


@dataclass(frozen=True)
class Ceiling:
    """A maker's figures.

    Args:
        tflops: by precision; a precision that the device does not have in hardware is missing.
        source: where they are from.
    """

    tflops: Mapping[str, float]
    source: str


def _of(bfloat16: float, float32: float, source: str) -> Ceiling:
    return Ceiling({"bfloat16": bfloat16, "float32": float32}, source)


CEILINGS: Mapping[str, Ceiling] = {
    "B200": _of(2250, 1125, f"{_NVIDIA}/dgx-b200/ (an eighth of the system's)"),
    "H200 NVL": _of(835.5, 417.5, f"{_NVIDIA}/h200/"),
    "H200": _of(989.5, 494.5, f"{_NVIDIA}/h200/"),
    "H100 NVL": _of(835.5, 417.5, f"{_NVIDIA}/h100/"),
    "H100 PCIe": _of(756.5, 378, "NVIDIA H100 Tensor Core GPU Architecture, whitepaper"),
    "H100": _of(989.5, 494.5, f"{_NVIDIA}/h100/"),
    "A100": _of(312, 156, f"{_NVIDIA}/a100/"),
    "A30": _of(165, 82, f"{_NVIDIA}/products/a30-gpu/"),
    "L40S": _of(366, 183, f"{_NVIDIA}/l40s/"),
    "L4": _of(121, 60, f"{_NVIDIA}/l4/"),
    "V100-SXM2": Ceiling({"float32": 15.7}, f"{_NVIDIA}/v100/"),
    "T4": Ceiling({"float32": 8.1}, f"{_NVIDIA}/tesla-t4/"),
    "RTX 5090": _of(209.5, 104.8, "NVIDIA RTX Blackwell GPU Architecture, whitepaper"),
    "RTX 4090": _of(165.2, 82.6, "NVIDIA Ada GPU Architecture, whitepaper"),
    "RTX 3090": _of(71, 35.6, "NVIDIA Ampere GA102 GPU Architecture, whitepaper"),
    "TPU v2": _of(22.5, 22.5, f"{_GOOGLE}/v2 (half a chip: JAX shows its two cores as devices)"),
    "TPU v3": _of(61.5, 61.5, f"{_GOOGLE}/v3 (half a chip: JAX shows its two cores as devices)"),
    "TPU v4": _of(275, 275, f"{_GOOGLE}/v4"),
    "TPU v5 lite": _of(197, 197, f"{_GOOGLE}/v5e"),
    "TPU v5": _of(459, 459, f"{_GOOGLE}/v5p"),
    "TPU v6 lite": _of(918, 918, f"{_GOOGLE}/v6e"),
}
"""By a part of JAX's name of the device; the first that fits counts."""


def ceiling_of(kind: str) -> Ceiling | None:
    """The maker's figures for a device.

    >>> ceiling_of("NVIDIA A100-SXM4-80GB").tflops["bfloat16"]
    312
    >>> ceiling_of("NVIDIA L40S").tflops["bfloat16"], ceiling_of("TPU v5 lite").tflops["bfloat16"]
    (366, 197)
    >>> ceiling_of("cpu") is None
    True
    """
    words = kind.replace("-", " ").split()
    for name, ceiling in CEILINGS.items():
        wanted = name.replace("-", " ").split()
        if any(words[i : i + len(wanted)] == wanted for i in range(len(words))):
            return ceiling
    return None
