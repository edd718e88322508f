"""How many floating-point operations the matrix products and convolutions of a function take, counted in its trace.

What is elementwise is left out, as in most published figures. A product of (m, k) by (k, n) counts 2 m k n.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax


def flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Operations of a call; of the arguments, only shapes and dtypes are looked at.

    >>> import numpy as np
    >>> flops(lambda a, b: a @ b, np.ones((3, 4)), np.ones((4, 5)))
    120
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: Any) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2 * _size(equation.outvars[0]) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs = kernel[parameters["dimension_numbers"].rhs_spec[0]]
        zeros = math.prod(parameters["lhs_dilation"])  # between the rows and columns of the input
        return 2 * _size(equation.outvars[0]) * math.prod(kernel) // (outputs * zeros)
    inner = [_of_jaxpr(jaxpr) for jaxpr in _inside(parameters)]
    if name == "cond":
        return max(inner, default=0)
    return sum(inner) * (parameters["length"] if name == "scan" else 1)


def _inside(parameters: dict[str, Any]) -> Iterator[Any]:
    for value in parameters.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield part


def _size(variable: Any) -> int:
    return math.prod(variable.aval.shape)
