"""C that makes outputs of accumulators: one function for each form of `rudel.micro.requantisation`."""

from rudel.micro.emit import Kernel
from rudel.micro.requantisation import Requantisation

OUTPUT = Kernel(
    "output",
    """\
typedef struct {
    int32_t shift, zero_point, low, high;
} rudel_output;

static inline int8_t rudel_clamp(int32_t value, const rudel_output *o)
{
    value = value < o->low ? o->low : value;
    return (int8_t)(value > o->high ? o->high : value);
}
""",
)

_LINE = Kernel(
    "line",
    """\
static inline int8_t rudel_line(int32_t sum, const int32_t *q, const rudel_output *o)
{
    const int64_t offset = (int64_t)(((uint64_t)(uint32_t)q[2] << 32) | (uint32_t)q[1]);
    return rudel_clamp((int32_t)(((int64_t)sum * q[0] + offset) >> 32) >> o->shift, o);
}
""",
    (OUTPUT,),
)

TWICE = Kernel(
    "scale_twice",
    """\
static inline int32_t rudel_scale_twice(int32_t x, int32_t multiplier, int32_t exponent)
{
    const uint32_t left = exponent > 0 ? (uint32_t)exponent : 0u, right = exponent > 0 ? 0u : (uint32_t)-exponent;
    const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1u);
    x = (int32_t)(((int64_t)(int32_t)((uint32_t)x << left) * multiplier + ((int32_t)1 << 30)) >> 31);
    return (x >> right) + ((x & mask) > (mask >> 1) + (x < 0));
}
""",
)

_TWICE = Kernel(
    "twice",
    """\
static inline int8_t rudel_twice(int32_t sum, const int32_t *q, const rudel_output *o)
{
    return rudel_clamp(rudel_scale_twice(sum + q[1], q[0], q[2]) + o->zero_point, o);
}
""",
    (OUTPUT, TWICE),
)

EVEN = Kernel(
    "scale_even",
    """\
static int32_t rudel_scale_even(int32_t x, int32_t multiplier, int32_t shift)
{
    /* What single-precision floating point makes of x * multiplier / 2^shift: the product is rounded to 24 bits and
     * then to an integer, both times half to even. The first matters only next to a half. */
    uint64_t product = (uint64_t)(x < 0 ? 0u - (uint32_t)x : (uint32_t)x) * (uint32_t)multiplier;
    uint32_t dropped = 0;
    while ((product >> dropped) >= ((uint32_t)1 << 24)) dropped++;
    if (dropped) {
        product = (product + (1ull << (dropped - 1)) - 1u + ((product >> dropped) & 1u)) >> dropped << dropped;
    }
    product = (product + (1ull << (shift - 1)) - 1u + ((product >> shift) & 1u)) >> shift;
    return x < 0 ? -(int32_t)product : (int32_t)product;
}
""",
)

_EVEN = Kernel(
    "even",
    """\
static inline int8_t rudel_even(int32_t sum, const int32_t *q, const rudel_output *o)
{
    return rudel_clamp(rudel_scale_even(sum + q[1], q[0], q[2]) + o->zero_point, o);
}
""",
    (OUTPUT, EVEN),
)

_TABLE = Kernel(
    "table",
    """\
static inline int8_t rudel_table(int32_t sum, const int32_t *q, const rudel_output *o)
{
    int32_t below = 0, above = o->high - o->low;
    sum += q[0];
    while (below < above) {
        const int32_t middle = (below + above) >> 1;
        if (sum >= q[1 + middle]) {
            below = middle + 1;
        } else {
            above = middle;
        }
    }
    return (int8_t)(o->low + below);
}
""",
    (OUTPUT,),
)

CLAMP_INT16 = Kernel(
    "clamp_int16",
    """\
static inline int16_t rudel_clamp_int16(int32_t value, const rudel_output *o)
{
    value = value < o->low ? o->low : value;
    return (int16_t)(value > o->high ? o->high : value);
}
""",
    (OUTPUT,),
)

_REDUCED = Kernel(
    "reduced",
    """\
static inline int16_t rudel_reduced(int64_t sum, const int32_t *q, const rudel_output *o)
{
    const uint64_t offset = ((uint64_t)(uint32_t)q[2] << 32) | (uint32_t)q[1];
    return rudel_clamp_int16((int32_t)((int64_t)((uint64_t)(sum * q[0]) + offset) >> q[3]), o);
}
""",
    (CLAMP_INT16,),
)

_TWICE_INT16 = Kernel(
    "twice_int16",
    """\
static inline int16_t rudel_twice_int16(int64_t sum, const int32_t *q, const rudel_output *o)
{
    return rudel_clamp_int16(rudel_scale_twice((int32_t)(sum + q[1]), q[0], q[2]), o);
}
""",
    (CLAMP_INT16, TWICE),
)

_UPWARDS = Kernel(
    "upwards",
    """\
static inline int16_t rudel_upwards(int64_t sum, const int32_t *q, const rudel_output *o)
{
    const uint32_t left = q[2] > 0 ? (uint32_t)q[2] : 0u, right = q[2] > 0 ? 0u : (uint32_t)-q[2];
    const int32_t x = (int32_t)((uint32_t)(sum + q[1]) << left);
    const int64_t high = ((int64_t)x * q[0] + ((int32_t)1 << 30)) >> 31;
    return rudel_clamp_int16((int32_t)((high + ((1ll << right) >> 1)) >> right), o);
}
""",
    (CLAMP_INT16,),
)

_ONCE_INT16 = Kernel(
    "once_int16",
    """\
static inline int16_t rudel_once_int16(int64_t sum, const int32_t *q, const rudel_output *o)
{
    /* 31 bits of the factor tell the output but where the product is next to a half. There, it is computed in double
     * precision, and halves are counted, so that rounding takes no difference that could be fused with the product. */
    const int64_t mantissa = (int64_t)(((uint64_t)(uint32_t)q[1] << 32) | (uint32_t)q[0]);
    const int64_t total = sum + (int64_t)(((uint64_t)(uint32_t)q[4] << 32) | (uint32_t)q[3]);
    const int32_t shift = -22 - q[2];
    double halves;
    int32_t magnitude;
    if (shift >= 13 && shift <= 61 && total >= INT32_MIN && total <= INT32_MAX) {
        const int64_t product = (int32_t)total * (int64_t)(int32_t)(mantissa >> 22) + ((int64_t)1 << (shift - 1));
        const uint64_t whole = (uint64_t)1 << shift, rest = (uint64_t)product & (whole - 1), near = whole >> 13;
        const int64_t value = product >> shift;
        if (rest > near && rest < whole - near && value >= INT32_MIN / 2 && value <= INT32_MAX / 2) {
            return rudel_clamp_int16((int32_t)value, o);
        }
    }
    halves = ldexp((double)total * (double)mantissa, q[2] + 1);
    if (halves >= 4294967295.0) return (int16_t)o->low; /* what becomes of it on an x86 beyond 32 bits */
    magnitude = halves > 1e6 || halves < -1e6 ? 1000000 : (int32_t)(halves < 0 ? -halves : halves);
    return rudel_clamp_int16(halves < 0 ? -((magnitude + 1) >> 1) : (magnitude + 1) >> 1, o);
}
""",
    (CLAMP_INT16,),
    ("math.h",),
)

FORMS = {
    "line": _LINE,
    "twice": _TWICE,
    "even": _EVEN,
    "table": _TABLE,
    "reduced": _REDUCED,
    "twice_int16": _TWICE_INT16,
    "upwards": _UPWARDS,
    "once_int16": _ONCE_INT16,
}
"""By form: `static inline int8_t rudel_FORM(int32_t sum, const int32_t *row, const rudel_output *o)`; those for outputs
of int16 return `int16_t` and take sums of `int64_t`."""

_INT16 = ("reduced", "twice_int16", "upwards", "once_int16")


def element(form: str) -> str:
    """Returns the C type of the inputs and outputs that a form is for."""
    return "int16_t" if form in _INT16 else "int8_t"


def row_length(form: str, output: str) -> str:
    """Returns how many int32 a row of a form has; `output`: the `rudel_output` in C."""
    return {"table": f"1 + {output}.high - {output}.low", "reduced": "4", "once_int16": "5"}.get(form, "3")


def output_fields(requantisation: Requantisation) -> str:
    """Returns the initialiser of a `rudel_output`."""
    r = requantisation
    return f"{{{r.shift}, {r.zero_point}, {r.low}, {r.high}}}"
