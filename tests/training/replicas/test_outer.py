"""Outer optimizers do what their formulas say, in float32."""

import numpy as np
import pytest

from rudel.errors import OptionError
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.replicas.outer_optimizer import make_outer
from rudel.replicas.round_lengths import Speeds

SIZE = 19


def some(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


@pytest.mark.parametrize("name", ["nesterov:1:0", "nesterov:0.7:0.6"])
def test_steps_follow_the_formula(name: str) -> None:
    outer = make_outer(name)
    lr, mu = map(float, name.split(":")[1:])
    memory, state = np.zeros(SIZE), outer.init(SIZE)
    for step in range(5):
        delta = some(step)
        movement = outer.step(delta, state)
        memory = mu * memory + delta
        np.testing.assert_allclose(movement, lr * (delta + mu * memory), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(delta, some(step))
        assert movement.dtype == state.dtype == np.float32


def test_without_momentum_a_full_step_is_the_average() -> None:
    outer = make_outer("nesterov:1:0")
    state = outer.init(SIZE)
    for number in range(3):
        np.testing.assert_array_equal(outer.step(some(number), state), some(number))


@pytest.mark.parametrize("name", ["nesterov:1:0", "nesterov:0.7:0.6"])
def test_names_come_back(name: str) -> None:
    assert make_outer(name).name == name


@pytest.mark.parametrize("name", ["adam", "", "average", "average:1", "Nesterov:1:0", "momentum:1:0.5"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^There is no outer optimizer '.*': it can be nesterov:LR:MU, as "):
        make_outer(name)


@pytest.mark.parametrize("name", ["nesterov", "nesterov:0.7", "nesterov:x:0.6", "nesterov:0:0.6", "nesterov:nan:0"])
def test_wrong_numbers_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"must be nesterov:LR:MU"):
        make_outer(name)


def test_there_is_one_for_any_number_of_replicas() -> None:
    for replicas in (1, 2, 1000, 100_000):
        assert make_outer(Diloco().chosen_for(replicas, 10**6, sgd=False).outer).name


@pytest.mark.parametrize(
    ("options", "weights", "chosen"),
    [
        (Diloco(), 4096, ("int8", "nesterov:1:0.5")),
        (Diloco(), 200_000, ("top8", "nesterov:1.25:0.5")),
        (Diloco(delta_codec="float32"), 200_000, ("float32", "nesterov:1:0.5")),
        (Diloco(delta_codec="top8"), 4096, ("top8", "nesterov:1.25:0.5")),
        (Diloco(outer="nesterov:0.7:0.9"), 4096, ("int8", "nesterov:0.7:0.9")),
    ],
)
def test_steps_are_longer_where_deltas_leave_much_for_later(
    options: Diloco, weights: int, chosen: tuple[str, str]
) -> None:
    speeds = Speeds(0.0007, 0.002, weights / 8, bytes_per_second=10e6, round_trip=0.003, weights=weights, worth=4)
    agreed = options.agree(4, 8192, speeds)
    assert (agreed.delta_codec, agreed.outer) == chosen
