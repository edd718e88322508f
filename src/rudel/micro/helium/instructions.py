"""The condition for code with Helium, and bytes that are moved by vectors.

Loops are those of `WLSTP` and `LETP`, which leave the last, partial vector to the core: nothing beyond an array is read
or written, and no array has to be padded. They are in assembly, because compilers do not make them of intrinsics.
Elsewhere plain C computes the same, so that code for a Cortex-M55 can be compiled and tested on any computer.
"""

from rudel.micro.emit import Kernel

HELIUM = Kernel(
    "helium",
    """\
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#define RUDEL_VECTORS 1
/* Functions in assembly, which the compiler must not look into. */
#define RUDEL_OPAQUE __attribute__((naked, noinline))
#if defined(__has_attribute)
#if __has_attribute(noipa)
#undef RUDEL_OPAQUE
#define RUDEL_OPAQUE __attribute__((naked, noinline, noipa))
#endif
#endif
#endif
#ifdef __GNUC__
#define RUDEL_UNREAD __attribute__((unused))
#else
#define RUDEL_UNREAD
#endif
""",
)

MOVE = Kernel(
    "vector_move",
    """\
/* Copies rows of bytes. */
static inline RUDEL_UNREAD void rudel_vector_copy(int8_t *to, int32_t to_step, const int8_t *from, int32_t from_step,
                                                  int32_t bytes, int32_t rows)
{
#ifdef RUDEL_VECTORS
    int8_t *out;
    const int8_t *in;
    __asm__ volatile("1:\\n\\tmov %[in], %[from]\\n\\tmov %[out], %[to]\\n\\twlstp.8 lr, %[bytes], 3f\\n"
                     "2:\\n\\tvldrb.8 q0, [%[in]], #16\\n\\tvstrb.8 q0, [%[out]], #16\\n\\tletp lr, 2b\\n"
                     "3:\\n\\tadd %[from], %[from], %[from_step]\\n\\tadd %[to], %[to], %[to_step]\\n\\t"
                     "subs %[rows], %[rows], #1\\n\\tbgt 1b"
                     : [to] "+&r"(to), [from] "+&r"(from), [rows] "+&r"(rows), [out] "=&r"(out), [in] "=&r"(in)
                     : [to_step] "r"(to_step), [from_step] "r"(from_step), [bytes] "r"(bytes)
                     : "q0", "lr", "cc", "memory");
#else
    for (; rows > 0; rows--, to += to_step, from += from_step) memcpy(to, from, (size_t)bytes);
#endif
}

/* Puts one value. */
static inline RUDEL_UNREAD void rudel_vector_fill(int8_t *to, int32_t value, int32_t bytes)
{
#ifdef RUDEL_VECTORS
    __asm__ volatile("vdup.8 q0, %1\\n\\twlstp.8 lr, %2, 1f\\n"
                     "2:\\n\\tvstrb.8 q0, [%0], #16\\n\\tletp lr, 2b\\n1:"
                     : "+&r"(to)
                     : "r"(value), "r"(bytes)
                     : "q0", "lr", "memory");
#else
    memset(to, (int)value, (size_t)bytes);
#endif
}
""",
    (HELIUM,),
)
