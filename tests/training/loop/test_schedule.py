"""Which examples every step sees."""

import numpy as np
import pytest

from rudel.loop.schedule import Schedule, plan_schedule


def test_an_epoch_is_a_permutation_whose_last_batch_is_smaller() -> None:
    schedule = Schedule(examples=103, batch_size=10, total_steps=25, seed=4)
    assert (schedule.steps_per_epoch, schedule.epochs, schedule.sizes) == (11, 3, (10, 3))
    orders = [schedule.order(epoch) for epoch in range(3)]
    for order in orders:
        assert order.shape == (11, 10)
        assert order.dtype == np.int32
        seen = [order[step, : schedule.size(step)] for step in range(11)]
        assert sorted(np.concatenate(seen).tolist()) == list(range(103))
    assert (orders[0] != orders[1]).any()
    np.testing.assert_array_equal(orders[1], Schedule(103, 10, 25, seed=4).order(1))
    assert [schedule.size(step) for step in (9, 10, 11, 21)] == [10, 3, 10, 3]
    assert [schedule.same_size_until(step) for step in (0, 9, 10, 11, 22)] == [10, 10, 11, 21, 25]
    assert [schedule.samples(steps) for steps in (0, 10, 11, 12, 25)] == [0, 100, 103, 113, 236]


@pytest.mark.parametrize(
    ("examples", "total_steps", "sizes"), [(100, 20, (10,)), (103, 5, (10,)), (7, 3, (7,)), (103, 11, (10, 3))]
)
def test_sizes_of_batches(examples: int, total_steps: int, sizes: tuple[int, ...]) -> None:
    schedule = Schedule(examples, 10, total_steps)
    assert schedule.sizes == sizes
    steps = [schedule.size(step) for step in range(total_steps)]
    assert {size: schedule.steps_of(size) for size in sizes} == {size: steps.count(size) for size in sizes}


def test_the_last_epoch_may_be_cut_short() -> None:
    schedule = plan_schedule(100, 10, epochs=None, steps=25, seed=0)
    assert [(schedule.first_step(e), schedule.last_step(e)) for e in range(3)] == [(0, 10), (10, 20), (20, 25)]


@pytest.mark.parametrize(("epochs", "steps", "total"), [(None, None, 10), (3, None, 30), (None, 7, 7)])
def test_epochs_or_steps(epochs: int | None, steps: int | None, total: int) -> None:
    assert plan_schedule(100, 10, epochs, steps, seed=0).total_steps == total


def test_batches_larger_than_the_data_need_no_more_room_than_the_data() -> None:
    schedule = Schedule(12, 10**6, 2)
    order = schedule.order(1, width=12)
    assert order.shape == (1, 12)
    np.testing.assert_array_equal(order[0], schedule.order(1)[0, :12])


def test_without_shuffling_the_examples_come_as_they_are() -> None:
    order = Schedule(25, 10, 2, shuffle=False).order(7)
    np.testing.assert_array_equal(order.reshape(-1), [*range(25), *[-1] * 5])
