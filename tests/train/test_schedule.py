"""Which examples every step sees."""

import numpy as np
import pytest

from rudel.train.schedule import Schedule, plan_schedule


def test_an_epoch_is_a_permutation_without_what_does_not_fill_a_batch() -> None:
    schedule = Schedule(examples=103, batch_size=10, total_steps=25, seed=4)
    assert (schedule.steps_per_epoch, schedule.epochs) == (10, 3)
    orders = [schedule.order(epoch) for epoch in range(3)]
    for order in orders:
        assert order.shape == (10, 10)
        assert order.dtype == np.int32
        assert len(set(order.reshape(-1).tolist())) == 100
    left_out = [set(range(103)) - set(order.reshape(-1).tolist()) for order in orders]
    assert left_out[0] != left_out[1]
    np.testing.assert_array_equal(orders[1], Schedule(103, 10, 25, seed=4).order(1))


def test_the_last_epoch_may_be_cut_short() -> None:
    schedule = plan_schedule(100, 10, epochs=None, steps=25, seed=0)
    assert [(schedule.first_step(e), schedule.last_step(e)) for e in range(3)] == [(0, 10), (10, 20), (20, 25)]


@pytest.mark.parametrize(("epochs", "steps", "total"), [(None, None, 10), (3, None, 30), (None, 7, 7)])
def test_epochs_or_steps(epochs: int | None, steps: int | None, total: int) -> None:
    assert plan_schedule(100, 10, epochs, steps, seed=0).total_steps == total


def test_without_shuffling_the_examples_come_as_they_are() -> None:
    np.testing.assert_array_equal(Schedule(25, 10, 2, shuffle=False).order(7), np.arange(20).reshape(2, 10))
