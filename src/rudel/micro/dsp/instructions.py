"""The DSP instructions, as functions of C.

Where the target has them they are those of `arm_acle.h`, or assembly where that header knows none; elsewhere they are
plain C that computes the same, so that code for a Cortex-M4 can be compiled and tested on any computer.
"""

from rudel.micro.emit import Kernel

DSP = Kernel(
    "dsp",
    """\
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#define RUDEL_ASSEMBLY 1
#include <arm_acle.h>
/* Functions in assembly, which the compiler must not look into. */
#if defined(__has_attribute)
#if __has_attribute(noipa)
#define RUDEL_NAKED __attribute__((naked, noinline, noipa))
#endif
#endif
#ifndef RUDEL_NAKED
#define RUDEL_NAKED __attribute__((naked, noinline))
#endif
#endif
#ifdef __GNUC__
#define RUDEL_UNUSED __attribute__((unused))
#else
#define RUDEL_UNUSED
#endif

/* The four bytes at a place that need not be a multiple of four. */
static inline RUDEL_UNUSED uint32_t rudel_load(const int8_t *from)
{
    uint32_t word;
    memcpy(&word, from, 4);
    return word;
}

#ifdef RUDEL_ASSEMBLY
/* Both 16-bit products of a and b, added to sum. */
static inline RUDEL_UNUSED uint32_t rudel_dual(uint32_t a, uint32_t b, uint32_t sum)
{
    return (uint32_t)__smlad((int16x2_t)a, (int16x2_t)b, (int32_t)sum);
}

/* Bytes 0 and 2 as 16-bit numbers. */
static inline RUDEL_UNUSED uint32_t rudel_evens(uint32_t bytes)
{
    return (uint32_t)__sxtb16((int8x4_t)bytes);
}

/* Bytes 1 and 3 as 16-bit numbers. */
static inline RUDEL_UNUSED uint32_t rudel_odds(uint32_t bytes)
{
    uint32_t result;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(result) : "r"(bytes));
    return result;
}

/* Differences of 16-bit numbers. */
static inline RUDEL_UNUSED uint32_t rudel_differences(uint32_t a, uint32_t b)
{
    return (uint32_t)__ssub16((int16x2_t)a, (int16x2_t)b);
}
#else
static inline RUDEL_UNUSED uint32_t rudel_halves(uint32_t low, uint32_t high)
{
    return (low & 0xFFFFu) | (high << 16);
}

static inline RUDEL_UNUSED uint32_t rudel_dual(uint32_t a, uint32_t b, uint32_t sum)
{
    return sum + (uint32_t)((int16_t)a * (int16_t)b) + (uint32_t)((int16_t)(a >> 16) * (int16_t)(b >> 16));
}

static inline RUDEL_UNUSED uint32_t rudel_evens(uint32_t bytes)
{
    return rudel_halves((uint32_t)(int8_t)bytes, (uint32_t)(int8_t)(bytes >> 16));
}

static inline RUDEL_UNUSED uint32_t rudel_odds(uint32_t bytes)
{
    return rudel_halves((uint32_t)(int8_t)(bytes >> 8), (uint32_t)(int8_t)(bytes >> 24));
}

static inline RUDEL_UNUSED uint32_t rudel_differences(uint32_t a, uint32_t b)
{
    return rudel_halves(a - b, (a >> 16) - (b >> 16));
}
#endif
""",
)


def naked(text: str) -> str:
    """Returns the body of a function in assembly, given line by line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(f'    "{line}\\n"' if line.endswith(":") else f'    "\\t{line}\\n"' for line in lines)


def scale_kernel(shift: str) -> Kernel:
    """Returns the kernel of `rudel.micro.dsp.scaling` for one form: accumulator, multiplier, offset to int8."""
    if shift == "twice":
        return TWICE
    return Kernel(
        f"scale_{shift}",
        f"""\
static inline RUDEL_UNUSED int8_t rudel_scale_{shift}(uint32_t sum, int32_t multiplier, int32_t offset)
{{
    int32_t result;
#ifdef RUDEL_ASSEMBLY
    __asm__("smmla %0, %1, %2, %3\\n\\tssat %0, #8, %0, asr #{shift}"
            : "=r"(result) : "r"(sum), "r"(multiplier), "r"(offset) : "cc");
#else
    result = ((int32_t)(((int64_t)(int32_t)sum * multiplier) >> 32) + offset) >> {shift};
    result = result < -128 ? -128 : result > 127 ? 127 : result;
#endif
    return (int8_t)result;
}}
""",
        (DSP,),
    )


TWICE = Kernel(
    "scale_rounded_twice",
    """\
static inline RUDEL_UNUSED int8_t rudel_scale_rounded_twice(uint32_t sum, int32_t multiplier, int32_t offset,
                                                            int32_t shift)
{
    const int32_t doubled = (int32_t)sum >> 7;
    int32_t high;
#ifdef RUDEL_ASSEMBLY
    __asm__("smmulr %0, %1, %2" : "=r"(high) : "r"(doubled), "r"(multiplier));
    high = (high + (high >> 31) + (int32_t)((uint32_t)offset << shift)) >> shift;
    __asm__("ssat %0, #8, %0, asr #1" : "+r"(high) : : "cc");
    return (int8_t)high;
#else
    high = (int32_t)(((int64_t)doubled * multiplier + 0x80000000LL) >> 32);
    high = ((high + (high >> 31) + (int32_t)((uint32_t)offset << shift)) >> shift) >> 1;
    return (int8_t)(high < -128 ? -128 : high > 127 ? 127 : high);
#endif
}
""",
    (DSP,),
)


def scaled(form: str, sums: tuple[tuple[str, str, str], ...], offset: str, free: tuple[str, str]) -> str:
    """Returns assembly that makes outputs of sums and stores them.

    Args:
        form: of the scaling.
        sums: for each output the registers of the sum, of the multiplier and of where it is stored; neighbours with
            the same multiplier are of one channel.
        offset: the register of the scaling's offset.
        free: registers to use for the channel's shift and its share of the offset; r2 is where shifts are read.
    """
    lines, last = [], ""
    shift, share = free
    for sum_, multiplier, out in sums:
        if form != "twice":
            lines += [f"smmla {sum_}, {sum_}, {multiplier}, {offset}", f"ssat {sum_}, #8, {sum_}, asr #{form}"]
        else:
            if multiplier != last:
                lines += [f"ldr {shift}, [r2], #4", f"lsl {share}, {offset}, {shift}"]
                last = multiplier
            lines += [
                f"asr {sum_}, {sum_}, #7",
                f"smmulr {sum_}, {sum_}, {multiplier}",
                f"add {sum_}, {sum_}, {sum_}, asr #31",
                f"add {sum_}, {sum_}, {share}",
                f"asr {sum_}, {sum_}, {shift}",
                f"ssat {sum_}, #8, {sum_}, asr #1",
            ]
        lines.append(f"strb {sum_}, [{out}], #1")
    return "\n".join(lines)
