"""exp, logistic, tanh and 1 / sqrt in gemmlowp's fixed point, on arrays of NumPy, bit for bit.

Numbers are int64 that hold 32-bit fixed-point numbers: `raw / 2**(31 - integer bits)`.
Source: https://github.com/google/gemmlowp/blob/master/fixedpoint/fixedpoint.h (what is computed, not how it is
    written).
"""

import numpy as np

from rudel.micro.arithmetic import INT32_MAX, INT32_MIN, divide_by_power, high_product


def _fixed(value: float) -> int:
    """Returns a real in [-1, 1] without integer bits."""
    return min(max(round(value * 2.0**31), INT32_MIN), INT32_MAX)


def shift_left(x: np.ndarray, bits: int) -> np.ndarray:
    """Returns x * 2**bits, saturated to 32 bits."""
    return np.clip(x << bits, INT32_MIN, INT32_MAX)


def _exp_between_quarter_and_0(x: np.ndarray) -> np.ndarray:
    """Returns exp(x) for x in [-1/4, 0), both without integer bits: a Taylor polynomial about -1/8."""
    centred = x + (1 << 28)
    square = high_product(centred, centred)
    cube = high_product(square, centred)
    fourth = high_product(square, square)
    quarter_of_fourth = divide_by_power(fourth, 2)
    tail = high_product(quarter_of_fourth + cube, 715827883) + square
    constant = 1895147668
    return np.clip(constant + high_product(centred + divide_by_power(tail, 1), constant), INT32_MIN, INT32_MAX)


_EXP_OF_MINUS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""exp(-(2**power)) without integer bits, by power."""


def exp_of_negative(x: np.ndarray, integer_bits: int) -> np.ndarray:
    """Returns exp(x), without integer bits, for x <= 0 with `integer_bits` integer bits."""
    fraction_bits = 31 - integer_bits
    quarter = np.int64(1) << (fraction_bits - 2)
    remainder = (x & (quarter - 1)) - quarter
    result = _exp_between_quarter_and_0(remainder << integer_bits)
    multiples = remainder - x
    for power, factor in _EXP_OF_MINUS:
        if integer_bits > power:
            bit = np.int64(1) << (fraction_bits + power)
            result = np.where(multiples & bit, high_product(result, factor), result)
    if integer_bits > 5:
        result = np.where(x < -(np.int64(1) << (fraction_bits + 5)), 0, result)
    return np.where(x == 0, INT32_MAX, result)


def _half_sum(a: np.ndarray, b: int) -> np.ndarray:
    """Returns the mean of numbers that are not negative, a half rounded up."""
    return (a + b + 1) >> 1


def one_over_one_plus(x: np.ndarray) -> np.ndarray:
    """Returns 1 / (1 + x) for x in [0, 1], both without integer bits: three steps of Newton and Raphson."""
    half_denominator = _half_sum(x, INT32_MAX)
    guess = 1515870810 + high_product(half_denominator, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - high_product(half_denominator, guess)
        guess = guess + shift_left(high_product(guess, rest), 2)
    return shift_left(guess, 1)


def one_minus_over_one_plus(x: np.ndarray) -> np.ndarray:
    """Returns (1 - x) / (1 + x) for x in [0, 1], both without integer bits."""
    half_denominator = _half_sum(x, INT32_MAX)
    guess = 1515870810 + high_product(half_denominator, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - high_product(half_denominator, guess)
        guess = guess + shift_left(high_product(guess, rest), 2)
    return shift_left(guess - (1 << 29), 2)


def logistic(x: np.ndarray, integer_bits: int) -> np.ndarray:
    """Returns 1 / (1 + exp(-x)), without integer bits."""
    of_magnitude = one_over_one_plus(exp_of_negative(-np.abs(x), integer_bits))
    return np.where(x == 0, 1 << 30, np.where(x > 0, of_magnitude, INT32_MAX - of_magnitude))


def tanh(x: np.ndarray, integer_bits: int) -> np.ndarray:
    """Returns tanh(x), without integer bits."""
    of_magnitude = one_minus_over_one_plus(exp_of_negative(-np.abs(x), integer_bits + 1))
    return np.where(x == 0, 0, np.where(x > 0, of_magnitude, -of_magnitude))


def inverse_root(x: int) -> tuple[int, int]:
    """Returns the multiplier and the exponent of 1 / sqrt(x) for a positive integer: five steps of Newton and Raphson.

    1 / sqrt(x) is about multiplier / 2**31 * 2**exponent.
    """
    if x == 1:
        return INT32_MAX, 0
    exponent = 11
    while x >= 1 << 29:
        x, exponent = x // 4, exponent + 1
    pairs = (32 - x.bit_length() - 1) // 2 - 1
    half = np.array(x << 2 * pairs >> 1)  # with 3 integer bits, as the guess
    guess = np.array(1 << 28)
    for _ in range(5):
        cube = shift_left(high_product(high_product(guess, guess), guess), 6)
        rest = high_product(np.array((1 << 28) + (1 << 27)), guess) - high_product(divide_by_power(half, 1), cube)
        guess = shift_left(rest, 3)
    root = int(high_product(guess, 1518500250))  # sqrt(2) / 2 without integer bits
    exponent -= pairs
    return (root << -exponent, 0) if exponent < 0 else (root, -exponent)
