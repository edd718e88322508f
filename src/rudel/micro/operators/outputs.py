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
    const int32_t mask = (int32_t)((1u << right) - 1u);
    x = (int32_t)(((int64_t)(int32_t)((uint32_t)x << left) * multiplier + (1 << 30)) >> 31);
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
    while ((product >> dropped) >= (1u << 24)) dropped++;
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

FORMS = {"line": _LINE, "twice": _TWICE, "even": _EVEN, "table": _TABLE}
"""By form: `static inline int8_t rudel_FORM(int32_t sum, const int32_t *row, const rudel_output *o)`."""


def output_fields(requantisation: Requantisation) -> str:
    """Returns the initialiser of a `rudel_output`."""
    r = requantisation
    return f"{{{r.shift}, {r.zero_point}, {r.low}, {r.high}}}"
