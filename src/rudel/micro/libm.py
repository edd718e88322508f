"""exp, expm1, tanh and erfc in single precision as the C library of this computer computes them.

LiteRT's tables of curves are made with these functions when a model is loaded. No C library rounds all of their results
to nearest, and two of them differ in a last bit now and then, which decides how a number next to a half is rounded.
Where the C library cannot be called, results are rounded to nearest.
"""

import ctypes
import math
from collections.abc import Callable
from functools import cache

import numpy as np


def expf(x: np.ndarray) -> np.ndarray:
    """Returns exp(x); float32 in and out."""
    return _applied("expf", np.exp, x)


def expm1f(x: np.ndarray) -> np.ndarray:
    """Returns exp(x) - 1; float32 in and out."""
    return _applied("expm1f", np.expm1, x)


def erfcf(x: np.ndarray) -> np.ndarray:
    """Returns 1 - erf(x); float32 in and out."""
    return _applied("erfcf", np.vectorize(math.erfc), x)


def tanhf(x: np.ndarray) -> np.ndarray:
    """Returns tanh(x); float32 in and out."""
    return _applied("tanhf", np.tanh, x)


def _applied(name: str, nearest: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    function = _function(name)
    with np.errstate(over="ignore"):
        if function is None:
            return nearest(x.astype(np.float64)).astype(np.float32)
        return np.array([function(float(value)) for value in x.ravel()], np.float32).reshape(x.shape)


@cache
def _function(name: str) -> Callable[[float], float] | None:
    """Returns a function of float32 in the C library, or None where it cannot be found."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, TypeError, AttributeError):
        return None
    function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
    return function
