"""Outer optimizers do what their formulas say, in float32, and leave alone what they are given."""

import numpy as np
import pytest

from rudel.errors import OptionError
from rudel.train.diloco.options import Diloco
from rudel.train.diloco.outer import average, make_outer, momentum, nesterov


def arrays(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for shape in [(5, 3), (3,), ()]]


@pytest.mark.parametrize("outer", [average(), momentum(0.9, 0.5), nesterov(0.7, 0.6)], ids=lambda outer: outer.name)
def test_steps_follow_the_formula(outer) -> None:
    weights = arrays(0)
    kind, *numbers = outer.name.split(":")
    lr, mu = map(float, numbers or (1, 0))
    expected, memory = weights[0].astype(np.float64), np.zeros((5, 3))
    state = outer.init(weights)
    for step in range(5):
        delta = arrays(step + 1)
        weights, state = outer.update(delta, state, weights)
        memory = mu * memory + delta[0]
        expected += lr * (delta[0] + mu * memory if kind == "nesterov" else memory)
    np.testing.assert_allclose(weights[0], expected, rtol=1e-5, atol=1e-5)
    assert {array.dtype for array in [*weights, *state]} == {np.dtype(np.float32)}
    assert [w.shape for w in weights] == [(5, 3), (3,), ()]


@pytest.mark.parametrize("name", ["average", "momentum:1:0.5", "nesterov:0.7:0.6"])
def test_nothing_given_is_changed(name: str) -> None:
    outer = make_outer(name)
    weights, delta = arrays(0), arrays(1)
    _, state = outer.update(delta, outer.init(weights), weights)
    kept = [array.copy() for array in [*weights, *delta, *state]]
    outer.update(delta, state, weights)
    for array, before in zip([*weights, *delta, *state], kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_without_momentum_a_full_step_is_the_average() -> None:
    weights, delta = arrays(0), arrays(1)
    outer = make_outer("nesterov:1:0")
    moved, _ = outer.update(delta, outer.init(weights), weights)
    for a, b in zip(moved, average().update(delta, [], weights)[0], strict=True):
        np.testing.assert_array_equal(a, b)


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
