"""Outer optimizers do what their formulas say, in float32, and say by how much the weights moved."""

import numpy as np
import pytest

from rudel.errors import OptionError
from rudel.train.diloco.options import Diloco
from rudel.train.diloco.outer import make_outer
from rudel.train.diloco.vector import Change

SIZE = 19


def some(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["average", "momentum:0.9:0.5", "nesterov:0.7:0.6"])
def test_steps_follow_the_formula(name: str, sparse: bool) -> None:
    outer, weights = make_outer(name), some(0)
    kind, *numbers = name.split(":")
    lr, mu = map(float, numbers or (1, 0))
    expected, memory = weights.astype(np.float64), np.zeros(SIZE)
    state = outer.init(SIZE)
    places = np.array([0, 3, 18]) if sparse else None
    for step in range(5):
        values, delta, before = some(step + 1), np.zeros(SIZE, np.float32), weights.copy()
        change = Change(values if places is None else values[places], places)
        change.add_to(delta)
        movement = outer.step(change, state, weights)
        np.testing.assert_array_equal(before + movement, weights)
        memory = mu * memory + delta
        expected += lr * (delta + mu * memory if kind == "nesterov" else memory)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-5)
    assert weights.dtype == state.dtype == np.float32


def test_without_momentum_a_full_step_is_the_average() -> None:
    moved, averaged, delta = some(0), some(0), Change(some(1))
    outer = make_outer("nesterov:1:0")
    outer.step(delta, outer.init(SIZE), moved)
    make_outer("average").step(delta, np.zeros(0, np.float32), averaged)
    np.testing.assert_array_equal(moved, averaged)


@pytest.mark.parametrize("name", ["average", "momentum:1:0.9", "nesterov:0.7:0.6"])
def test_names_come_back(name: str) -> None:
    assert make_outer(name).name == name


@pytest.mark.parametrize("name", ["adam", "", "average:1", "Nesterov:1:0"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^There is no outer optimizer '.*': it can be average, "):
        make_outer(name)


@pytest.mark.parametrize(
    "name", ["nesterov", "nesterov:0.7", "nesterov:x:0.6", "nesterov:0:0.6", "momentum:nan:0", "momentum:1:1"]
)
def test_wrong_numbers_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"must be (nesterov|momentum):LR:MU"):
        make_outer(name)


def test_there_is_one_for_any_number_of_replicas() -> None:
    for replicas in (1, 2, 1000, 100_000):
        assert make_outer(Diloco().chosen_for(replicas, 10**6).outer).name
