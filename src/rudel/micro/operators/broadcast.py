"""Loops over two inputs that are broadcast to one output."""

from rudel.micro.emit import Kernel
from rudel.micro.graph import Operator, Tensor
from rudel.micro.operators.checks import require

BROADCAST = Kernel(
    "broadcast",
    """\
typedef struct {
    int32_t sizes[4], first[4], second[4];
} rudel_broadcast;
""",
)
"""Sizes of four dimensions, and how far apart neighbours along each of them are in both inputs."""


def broadcast_fields(operator: Operator, first: Tensor, second: Tensor, output: Tensor) -> str:
    """Returns the initialiser of a `rudel_broadcast`.

    Raises:
        CompileError: the shapes cannot be broadcast to the output's, or need more than four dimensions.
    """
    rank = len(output.shape)
    shapes = [(1,) * (rank - len(t.shape)) + t.shape for t in (first, second)]
    fits = all(len(t.shape) <= rank for t in (first, second)) and all(
        out == max(a, b) and a in (1, out) and b in (1, out) for a, b, out in zip(*shapes, output.shape, strict=True)
    )
    require(fits, operator, f"the shapes {list(first.shape)} and {list(second.shape)} do not give {list(output.shape)}")
    merged: list[list[int]] = []
    for a, b, size in zip(*shapes, output.shape, strict=True):
        if size == 1:
            continue
        kind = [int(a == size), int(b == size)]
        if merged and merged[-1][1:] == kind:
            merged[-1][0] *= size
        else:
            merged.append([size, *kind])
    require(len(merged) <= 4, operator, "its inputs are broadcast along more than four dimensions")
    sizes, strides = [1] * 4, [[0] * 4, [0] * 4]
    step = [1, 1]
    for place, (size, *kind) in zip(range(3, -1, -1), reversed(merged), strict=False):
        sizes[place] = size
        for number in (0, 1):
            if kind[number]:
                strides[number][place] = step[number]
                step[number] *= size
    return "{" + ", ".join("{" + ", ".join(map(str, row)) + "}" for row in (sizes, *strides)) + "}"


def broadcast_loop(name: str, kind: str, body: str, before: str = "") -> str:
    """Returns a function over a layer that starts with a `rudel_broadcast`; `body` reads *a and *b and writes
    *out++. `before` declares what it takes of the layer, which the compiler would read again after each write."""
    return f"""\
static void rudel_{name}(const rudel_{name}_layer *p, const {kind} *first, const {kind} *second, {kind} *out)
{{
    const rudel_broadcast *s = &p->shape;
{before}    for (int32_t i = 0; i < s->sizes[0] * s->sizes[1] * s->sizes[2]; i++) {{
        const int32_t x = i / (s->sizes[1] * s->sizes[2]), y = i / s->sizes[2] % s->sizes[1], z = i % s->sizes[2];
        const {kind} *a = first + x * s->first[0] + y * s->first[1] + z * s->first[2];
        const {kind} *b = second + x * s->second[0] + y * s->second[1] + z * s->second[2];
        const int32_t step_a = s->first[3], step_b = s->second[3];
        for (int32_t n = s->sizes[3]; n > 0; n--, a += step_a, b += step_b) {{
{body}        }}
    }}
}}
"""
