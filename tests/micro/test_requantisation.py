"""The cheap forms of requantisation against what they stand for, over the accumulators that weights can reach."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudel.micro.arithmetic import (
    half_away,
    multiply,
    quantise_multiplier,
    scaling_once,
    scaling_to_even,
    scaling_twice,
)
from rudel.micro.requantisation import evaluate, plan

_SCALINGS = {"twice": scaling_twice, "once": scaling_once, "to even": scaling_to_even}


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    how=st.sampled_from(sorted(_SCALINGS)),
    exponents=st.lists(st.floats(-14, 1.5), min_size=1, max_size=5),
    powers=st.booleans(),
    zero_point=st.integers(-128, 127),
    ends=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    seed=st.integers(0, 2**32 - 1),
)
def test_planned_outputs_are_the_exact_ones(how, exponents, powers, zero_point, ends, seed):
    generator = np.random.default_rng(seed)
    factors = np.float32(2.0) ** np.array(np.round(exponents) if powers else exponents, np.float32)
    channels = len(factors)
    bias = generator.integers(-20000, 20000, channels)
    width = generator.integers(1, 200_000, channels)
    reach = (bias - width, bias + width)
    scaling = _SCALINGS[how](factors.astype(np.float64))
    limits = (min(ends), max(ends))
    planned = plan(scaling, bias, reach, zero_point, limits)
    sums = np.stack([generator.integers(-reached, reached + 1, 500) for reached in width])
    sums[:, 0], sums[:, 1] = -width, width
    expected = np.clip(scaling.apply(sums + bias[:, None]) + zero_point, *limits)
    np.testing.assert_array_equal(evaluate(planned, sums), expected)


def test_activations_that_cut_off_at_zero_are_a_line():
    generator = np.random.default_rng(0)
    scaling = scaling_twice(generator.uniform(0.0008, 0.004, 64))
    width = np.full(64, 300_000)
    assert plan(scaling, np.zeros(64, np.int64), (-width, width), -128, (-128, 127)).form == "line"


def test_linear_outputs_rounded_twice_are_no_line():
    generator = np.random.default_rng(0)
    scaling = scaling_twice(generator.uniform(0.0008, 0.004, 64))
    width = np.full(64, 300_000)
    assert plan(scaling, np.zeros(64, np.int64), (-width, width), 0, (-128, 127)).form == "twice"


@pytest.mark.parametrize(("real", "expected"), [(0.1, (1717986918, -3)), (2.5, (1342177280, 2)), (1e-12, (0, 0))])
def test_multipliers(real, expected):
    assert quantise_multiplier(real) == expected


def test_a_product_is_rounded_twice():
    # 3 * 0.5 = 1.5 becomes 2 in the high half of the product, and 2 / 4 = 0.5 then becomes 1.
    assert multiply(np.array([3]), 1 << 30, -2) == 1
    assert half_away(3 * 0.5 / 4) == 0
