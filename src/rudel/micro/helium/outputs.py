"""From sums to outputs by vectors, four channels at a time, with the bits of the interpreter.

Two forms do that. `line` is the one of `rudel.micro.dsp.scaling`, whose high product (VMULH) is the same instruction:

    output = clamp(((256 * sum + bias) * multiplier >> 32) + offset >> shift)

`twice` is the interpreters' own arithmetic where they round twice: VQRDMULH rounds the product, VRSHL the shift, half
upwards; the latter becomes half away from zero where one is taken from what is negative.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rudel.micro.dsp.convolution import SHIFTS
from rudel.micro.dsp.scaling import find_scaling
from rudel.micro.emit import Kernel
from rudel.micro.helium.instructions import HELIUM
from rudel.micro.requantisation import Requantisation

LANES = 4


@dataclass(frozen=True)
class VectorScaling:
    """Conversion of sums of products to outputs.

    Attributes:
        form: which of the two.
        rows: int64 (numbers, channels), what a channel needs: bias and multiplier, and the exponent of `twice`.
        add: the offset of `line`, the zero point of `twice`.
        shift: the exponent of `line`, negative; unused in `twice`.
        low: the least output.
        high: the greatest output.
    """

    form: Literal["line", "twice"]
    rows: np.ndarray
    add: int
    shift: int
    low: int
    high: int

    @property
    def fields(self) -> str:
        """The structure `rudel_vector_scaling` in C; `$parameters` is the array with the rows."""
        return f"{{$parameters, {self.add}, {self.shift}, {self.low}, {self.high}}}"

    def parameters(self, order: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
        """Parameters in the order of the kernels: for every four channels the rows one after the other; int32 in a row.

        Args:
            order: the channels of a block, one vector after the other; one that lacks some has the first again.
        """
        block = len(order)
        rows = np.pad(self.rows, [(0, 0), (0, -self.rows.shape[1] % block)], mode="wrap")
        blocks = rows.reshape(len(rows), -1, block)[:, :, list(order)].reshape(len(rows), -1, LANES)
        return (blocks.transpose(1, 0, 2).ravel() & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def vector_scaling(requantisation: Requantisation, products: tuple[np.ndarray, np.ndarray]) -> VectorScaling | None:
    """Returns the scaling of a layer; None where neither form has the interpreter's bits.

    Args:
        requantisation: what outputs are to be.
        products: int64 (channels) twice, the least and the greatest sum of products without bias.
    """
    r = requantisation
    for shift in SHIFTS:
        found = find_scaling(r, products, shift)
        if found is not None:
            rows = np.stack([found.bias, found.multiplier])
            return VectorScaling("line", rows, found.offset, -shift, r.low, r.high)
    if r.form != "twice":
        return None
    multiplier, bias, exponent = r.data.astype(np.int64).T
    if exponent.max() > -1 or exponent.min() < -31:
        return None
    return VectorScaling("twice", np.stack([bias, multiplier, exponent]), r.zero_point, 0, r.low, r.high)


SCALING = Kernel(
    "vector_scaling",
    """\
typedef struct {
    const int32_t *parameters;
    int32_t add, shift, low, high;
} rudel_vector_scaling;
""",
    (HELIUM,),
)

_PLAIN = {
    "line": """\
static inline RUDEL_UNREAD int8_t rudel_vector_scaled_line(int32_t sum, const int32_t *at,
                                                           const rudel_vector_scaling *s)
{
    const int32_t accumulator = (int32_t)(((uint32_t)sum << 8) + (uint32_t)at[0]);
    const int32_t result = ((int32_t)(((int64_t)accumulator * at[4]) >> 32) + s->add) >> -s->shift;
    return (int8_t)(result < s->low ? s->low : result > s->high ? s->high : result);
}
""",
    "twice": """\
static inline RUDEL_UNREAD int8_t rudel_vector_scaled_twice(int32_t sum, const int32_t *at,
                                                           const rudel_vector_scaling *s)
{
    const int64_t high = ((int64_t)(sum + at[0]) * at[4] + (1 << 30)) >> 31, half = (int64_t)1 << (-at[8] - 1);
    const int32_t result = (int32_t)((high + half - (high < 0)) >> -at[8]) + s->add;
    return (int8_t)(result < s->low ? s->low : result > s->high ? s->high : result);
}
""",
}

SCALED = {
    "line": """
    vldrw.32 {free}, [{parameters}], #16
    vmla.s32 {free}, {sums}, {unit}
    vldrw.32 {sums}, [{parameters}], #16
    vmulh.s32 {free}, {free}, {sums}
    vadd.i32 {free}, {free}, {add}
    vshl.s32 {free}, {shift}""",
    "twice": """
    vldrw.32 {free}, [{parameters}], #16
    vadd.i32 {sums}, {sums}, {free}
    vldrw.32 {free}, [{parameters}], #16
    vqrdmulh.s32 {free}, {sums}, {free}
    vshr.s32 {sums}, {free}, #31
    vadd.i32 {free}, {free}, {sums}
    vldrw.32 {sums}, [{parameters}], #16
    vrshl.s32 {free}, {free}, {sums}
    vadd.i32 {free}, {free}, {add}""",
}
"""Assembly by form: four sums become outputs in `free`, which are still to be clamped; `unit` is 256."""

NUMBERS = {"line": 2, "twice": 3}
"""Rows of parameters of each form."""


def scaled_kernel(form: str) -> Kernel:
    """Returns the kernel that makes one output, in plain C."""
    return Kernel(f"vector_scaled_{form}", _PLAIN[form], (SCALING,))


def outputs_kernel(form: str) -> Kernel:
    """Returns the kernel that makes the outputs of some sums in memory."""
    body = SCALED[form].format(free="q0", sums="q1", parameters="%[at]", unit="%[unit]", add="%[s]", shift="%[shift]")
    lines = "\n".join(f'        "{line.strip()}\\n\\t"' for line in body.strip().splitlines())
    return Kernel(
        f"vector_outputs_{form}",
        f"""\
/* Outputs of some channels; returns the parameters of the next, if their number is a multiple of four. The assembly
 * knows the structure by its offsets. */
static const int32_t *rudel_vector_outputs_{form}(const int32_t *sums, const int32_t *at, int32_t channels,
                                                const rudel_vector_scaling *s, int8_t *out)
{{
#ifdef RUDEL_VECTORS
    int32_t shift;
    __asm__ volatile(
        "ldr %[shift], [%[s], #12]\\n\\tvdup.32 q2, %[shift]\\n\\t"
        "ldr %[shift], [%[s], #16]\\n\\tvdup.32 q3, %[shift]\\n\\t"
        "ldr %[shift], [%[s], #8]\\n\\tldr %[s], [%[s], #4]\\n\\t"
        "wlstp.32 lr, %[channels], 1f\\n"
        "2:\\n\\t"
        "vldrw.32 q1, [%[sums]], #16\\n\\t"
{lines}
        "vmax.s32 q0, q0, q2\\n\\t"
        "vmin.s32 q0, q0, q3\\n\\t"
        "vstrb.32 q0, [%[out]], #4\\n\\t"
        "letp lr, 2b\\n"
        "1:"
        : [sums] "+&r"(sums), [at] "+&r"(at), [out] "+&l"(out), [s] "+&r"(s), [shift] "=&r"(shift)
        : [channels] "r"(channels), [unit] "r"(256)
        : "q0", "q1", "q2", "q3", "lr", "memory");
#else
    for (int32_t i = 0; i < channels; i++) {{
        *out++ = rudel_vector_scaled_{form}(sums[i], at + (i & 3), s);
        if ((i & 3) == 3) at += {LANES * NUMBERS[form]};
    }}
#endif
    return at;
}}
""",
        (scaled_kernel(form),),
    )
