"""A replica by itself: what its local weights and the global ones are, whenever merges come."""

import sys
import threading
import time
from dataclasses import replace
from typing import Any

import jax
import keras
import numpy as np
import pytest

from rudel.loop.compiled_loop import Progress, compile_training
from rudel.replicas.codec.delta_codec import make_codec
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.replica_messages import Answer
from rudel.replicas.slots_by_pieces import SlotsReceiver
from rudel.shipping import array_bytes

layers, ops = keras.layers, keras.ops
random = np.random.default_rng(3)
TABLE = random.normal(size=(64, 5)).astype("float32")
DATA = (TABLE, TABLE[:, :1] * 2 - TABLE[:, 1:2], None)
EXACT = make_codec("float32")


def decoded(message: bytes, like: Any) -> list[np.ndarray]:
    layout = Layout.of(like)
    return layout.arrays(EXACT.decode(message, layout))


def encoded(arrays: Any) -> bytes:
    layout = Layout.of(arrays)
    return EXACT.encode(layout.vector(arrays), layout)[0]


def regression(optimizer: Any = None) -> Any:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
    model.compile(optimizer=optimizer or keras.optimizers.Adam(0.05), loss="mse", metrics=["mae"])
    return model


def linear(inputs: int = 5) -> Any:
    """Its gradient, the mean input of a batch, does not depend on the weights: steps add up, wherever they begin."""
    model = keras.Sequential([keras.Input((inputs,)), layers.Dense(1, use_bias=False)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss=lambda truth, predicted: ops.mean(predicted, axis=-1))
    return model


def movement(batches: range) -> np.ndarray:
    """What these batches of 8, counted on and on, add to the weights of the linear model at the rate 0.05."""
    means = TABLE.reshape(8, 8, 5).mean(1)
    return -0.05 * np.sum([means[number % 8] for number in batches], axis=0)[:, None]


def test_a_step_that_takes_long_is_measured_once(hosted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, taken = hosted(regression(), DATA).replica, []
    run = one._run

    class Counted:
        weights, put = run.weights, run.put

        def __call__(self, *arguments: Any) -> Any:
            taken.append(int(arguments[-1] - arguments[-2]))
            return run(*arguments)

    one._run = Counted()
    one.rehearse(0.05)
    assert len(taken) > 3
    monkeypatch.setattr("rudel.replicas.replica._LONG_STEP", 1e-9)  # as if each of them did
    taken.clear()
    one.rehearse(0.05)
    assert taken == [1]


@pytest.mark.parametrize("seconds", [0.2, 0.5])
def test_a_first_step_that_is_held_up_says_nothing_of_the_others(hosted: Any, seconds: float) -> None:
    one = hosted(regression(), DATA).replica
    run, held_up, usual = one._run, [], one.rehearse(0.1)

    class HeldUp:
        weights, put = run.weights, run.put

        def __call__(self, *arguments: Any) -> Any:
            if not held_up:
                held_up.append(True)
                time.sleep(seconds)
            return run(*arguments)

    one._run = HeldUp()
    assert one.rehearse(0.1) < 8 * usual


def test_rounds_are_encoded_though_the_model_makes_no_numbers_of_zeros(hosted: Any) -> None:
    model = linear()
    model.compile(optimizer="sgd", loss=lambda truth, predicted: ops.mean(predicted / predicted, axis=-1))
    one = hosted(model, DATA).replica
    take, taken = one._exchange.take, []

    def counted(*arguments: Any) -> Any:
        taken.append(arguments)
        return take(*arguments)

    one._exchange.take = counted
    one.rehearse_rounds(0.05, 2, one.rehearse(0.05))
    assert len(taken) > 3  # what each round would send


def test_the_speed_of_steps_is_that_of_many_and_not_of_those_between_tried_exchanges(hosted: Any) -> None:
    one = hosted(linear(), DATA).replica
    measured = one.step_seconds
    one.rehearse_rounds(0.05, 2, measured)
    assert one.step_seconds == measured


def test_one_replica_whose_deltas_are_taken_as_they_are_trains_as_one_computer_does(hosted: Any) -> None:
    model = regression()
    one = hosted(model, DATA)
    one.begin()
    lengths = [1, 30, 600, 13]  # more than a call of the program can take, too
    weights = [np.asarray(w) for w in one.state.trainable]
    for number, steps in enumerate(lengths):
        one.plan(number, steps, pieces=one.everything if number == 0 else None)
        answer = one.answer(number)
        assert (answer.steps, answer.bad_step) == (steps, -1)
        weights = [w + d for w, d in zip(weights, decoded(answer.delta, weights), strict=True)]
        one.merge(number, answer.delta)
    order = np.resize(np.arange(64, dtype=np.int32), (sum(lengths), 8))
    program, logs = compile_training(model, one.state, DATA, order)
    progress = Progress(jax.device_put(one.state), logs, np.asarray(-1, np.int32))
    key = jax.random.key(0)
    progress, _ = program.run(progress, DATA, order, key, np.int32(0), np.int32(sum(lengths)), np.int32(0))
    for ours, expected in zip(weights, progress.state.trainable, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)


def test_a_delta_is_what_its_round_has_moved_whenever_the_last_merge_comes(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    one.begin()
    taken = 0
    for number, steps in enumerate((3, 40, 5000, 17)):
        one.plan(number, steps, pieces=one.everything if number == 0 else None)
        if number:  # at some moment of the round; what the others did is very different
            one.merge(number - 1, encoded([np.full((5, 1), 10.0 * number)]))
        answer = one.answer(number)
        (delta,) = decoded(answer.delta, one.state.trainable)
        np.testing.assert_allclose(delta, movement(range(taken, taken + steps)), rtol=1e-3, atol=1e-3)
        assert 0 <= answer.merged_at <= steps
        taken += steps


def test_a_round_goes_on_without_the_last_merge_and_waits_for_it_at_its_end_alone(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    one.begin()
    for number, steps in ((0, 5), (1, 7)):
        one.plan(number, steps, pieces=one.everything if number == 0 else None)
    first = one.answer(0)
    one.plan(2, 4)
    with pytest.raises(AssertionError, match="no answer"):
        one.answer(1, seconds=0.3)
    one.merge(0, first.delta)
    second = one.answer(1)
    assert second.merged_at == 7
    assert second.waited > 0.2
    assert second.seconds >= second.waited
    np.testing.assert_allclose(
        decoded(second.delta, one.state.trainable)[0], movement(range(5, 12)), rtol=1e-3, atol=1e-4
    )


def test_replicas_that_get_the_same_merges_have_the_same_weights_to_the_bit(hosted: Any) -> None:
    codec = make_codec("top8")
    settings = {"delta_codec": codec.name, "merge_codec": codec.name, "shuffle": True}
    pair = [hosted(regression(), DATA, number=number, **settings) for number in (0, 1)]
    layout = Layout.of(pair[0].state.trainable)
    shared_weights = layout.vector(pair[0].state.trainable)
    left = np.zeros_like(shared_weights)
    for one in pair:
        one.begin(pair[0].state.trainable)
    for number in range(5):
        for place, one in enumerate(pair):
            one.plan(number, 20 + place, pieces=[(32 * place, 32 * place + 32)] if number == 0 else None)
        for one in pair:
            left += np.float32(0.5) * codec.decode(one.answer(number).delta, layout)
        message, merged = codec.encode(left, layout)
        left -= merged
        shared_weights += merged
        for one in pair:
            one.merge(number, message)
    for one in pair:
        one.plan(5, 1)
        one.answer(5)
        assert layout.vector(one.replica._shared).tobytes() == shared_weights.tobytes()


def test_what_was_not_sent_stays_in_the_weights_and_is_part_of_what_is_sent_next(hosted: Any) -> None:
    table = random.normal(size=(64, 2000)).astype("float32")
    one = hosted(linear(2000), (table, table[:, :1], None), delta_codec="top8")
    layout, codec = Layout.of(one.state.trainable), make_codec("top8")
    one.begin()
    arrived = np.zeros(layout.size, np.float32)
    for number in range(4):
        one.plan(number, 8, pieces=one.everything if number == 0 else None)
        sent = codec.decode(one.answer(number).delta, layout)
        assert 0 < np.count_nonzero(sent) < 600
        arrived += sent
        one.merge(number, EXACT.encode(sent, layout)[0])  # as if all others had sent the same
    one.plan(4, 1, rates=0.0)
    one.answer(4)
    kept = layout.vector(one.replica._carried[0]) - layout.vector(one.replica._shared)
    movement = -0.05 * 4 * table.reshape(8, 8, -1).mean(1).sum(0)  # the 8 batches, four times
    np.testing.assert_allclose(arrived + kept, movement, rtol=1e-3, atol=1e-4)
    assert np.linalg.norm(kept) > 0.1 * np.linalg.norm(movement)


def test_who_joins_late_with_the_merges_since_a_standing_has_the_weights_of_the_others(hosted: Any) -> None:
    from rudel.replicas.replica_messages import Merge

    one, late = (hosted(linear(), DATA, number=number) for number in (0, 1))
    one.begin()
    merges = []
    for number in range(3):
        one.plan(number, 4, pieces=one.everything if number == 0 else None)
        merges.append(one.answer(number).delta)
        one.merge(number, merges[-1])
    one.plan(3, 1, rates=0.0)
    one.answer(3)
    late.begin(one.state.trainable, 3, [Merge(delta, array_bytes.pack([])) for delta in merges])
    late.plan(3, 1, rates=0.0, pieces=late.everything)
    (delta,) = decoded(late.answer(3).delta, one.state.trainable)
    assert not delta.any()
    for ours, theirs in zip(late.replica._shared, one.replica._shared, strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def test_every_step_has_the_learning_rate_of_the_plan(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    one.begin()
    rates = np.linspace(0, 1, 8)
    one.plan(0, 8, rates, pieces=one.everything)
    (delta,) = decoded(one.answer(0).delta, one.state.trainable)
    means = TABLE.reshape(8, 8, 5).mean(1)
    np.testing.assert_allclose(delta[:, 0], -(rates[:, None] * means).sum(0), rtol=1e-4, atol=1e-6)


def test_metrics_are_those_of_the_round_alone(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    one.begin()
    counts = []
    for number, steps in enumerate((3, 5)):
        one.plan(number, steps, rates=0.0, pieces=one.everything if number == 0 else None)
        answer = one.answer(number)
        one.merge(number, answer.delta)
        counts.append([float(value) for value in array_bytes.unpack(answer.metrics)][1])
    assert counts == [3 * 8, 5 * 8]


def test_moving_statistics_move_as_the_weights_do(hosted: Any) -> None:
    model = keras.Sequential([keras.Input((5,)), layers.BatchNormalization(momentum=0.5), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    one = hosted(model, (TABLE + 3, DATA[1], None))
    one.begin()
    one.plan(0, 50, rates=0.0, pieces=one.everything)
    answer = one.answer(0)
    mean, variance = array_bytes.unpack(answer.statistics)
    np.testing.assert_allclose(mean, TABLE.mean(0) + 3, atol=0.6)
    one.merge(0, answer.delta, array_bytes.pack([mean + 100, variance]))  # others have seen other examples
    one.plan(1, 1, rates=0.0)
    after, _ = array_bytes.unpack(one.answer(1).statistics)
    assert np.all(after > 40)


def test_moving_statistics_keep_pace_with_the_batches_of_all_replicas(hosted: Any) -> None:
    model = keras.Sequential([keras.Input((1,)), layers.BatchNormalization(momentum=0.9), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    one = hosted(model, (np.full((64, 1), 3.0, np.float32), np.zeros((64, 1), np.float32), None), replicas=4)
    one.begin()
    one.plan(0, 5, rates=0.0, pieces=one.everything)
    mean, variance = array_bytes.unpack(one.answer(0).statistics)
    np.testing.assert_allclose(mean, 3 * (1 - 0.9**20), rtol=1e-5)
    np.testing.assert_allclose(variance, 0.9**20, rtol=1e-5)
    assert model.layers[0].momentum == 0.9


def test_a_loss_that_is_not_finite_is_told_with_its_step(hosted: Any) -> None:
    one = hosted(regression(), DATA)
    one.begin()
    rates = np.full(600, 0.01)
    rates[530] = np.inf
    one.plan(0, 600, rates, pieces=one.everything)
    assert one.answer(0).bad_step == 531


def test_weights_that_are_not_finite_are_told_where_the_loss_does_not_show_it(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    one.begin()
    rates = np.full(5, 0.01)
    rates[4] = np.inf
    one.plan(0, 5, rates, pieces=one.everything)
    answer = one.answer(0)
    assert (answer.bad_step, answer.delta) == (4, b"")


def test_slots_go_from_one_replica_to_another_by_pieces_with_its_answers(hosted: Any) -> None:
    one, other = hosted(regression(), DATA), hosted(regression(), DATA, number=1)
    one.begin()
    one.plan(0, 30, pieces=one.everything, slots=100)
    receiver = SlotsReceiver()
    receiver.want(100)
    assert receiver.ask("one") == 100
    number = 0
    while receiver.newest is None:
        answer = one.answer(number)
        assert 0 < len(answer.slots) <= 100
        receiver.take("other", answer)
        receiver.take("one", answer)
        number += 1
        one.plan(number, 1)
        one.merge(number - 1, answer.delta)
    assert number > 3
    assert one.answer(number).slots == b"", "all are sent"
    slots = receiver.news()
    assert slots
    assert receiver.news() is None
    other.begin(slots=slots)
    other.plan(0, 1, pieces=other.everything, slots=10**6)
    found = other.answer(0).slots
    assert found
    before, after = array_bytes.unpack(slots), array_bytes.unpack(found)
    assert (int(before[0]), int(after[0])) == (30, 31)
    assert all(np.shape(a) == np.shape(b) for a, b in zip(before, after, strict=True))


def test_ends_at_once_whatever_it_waits_for(hosted: Any) -> None:
    waits_for_a_plan, waits_for_a_merge = hosted(linear(), DATA), hosted(linear(), DATA)
    for one in (waits_for_a_plan, waits_for_a_merge):
        one.begin()
    waits_for_a_merge.plan(0, 1, pieces=waits_for_a_merge.everything)
    waits_for_a_merge.plan(1, 1)
    waits_for_a_merge.answer(0)
    computes = hosted(linear(), DATA)
    computes.begin()
    computes.plan(0, 10**9, pieces=computes.everything)
    for one in (waits_for_a_plan, waits_for_a_merge, computes):
        one.replica.close()
        one.replica.close()


def test_can_begin_again_after_its_end(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    for number in (0, 7):
        one.begin(number=number)
        one.plan(number, 8, pieces=one.everything)
        assert one.answer(number).steps == 8


def test_what_goes_wrong_is_published_with_its_round(hosted: Any) -> None:
    one = hosted(linear(), DATA)
    one.begin()
    one.plan(0, 3, pieces=one.everything)
    one.answer(0)
    one.merge(0, b"rubbish")
    one.plan(1, 3)
    with pytest.raises(ValueError, match="damaged"):
        one.answer(1)


def test_an_exchange_takes_what_talking_takes_from_the_steps() -> None:
    answer = Answer(b"", b"", b"", b"", 100, seconds=1.2, waited=0.2, merged_at=0, bad_step=-1, memory=0, cpu=0.25)
    assert replace(answer, computed=1.0).exchange_seconds == pytest.approx(0.0)
    assert replace(answer, computed=0.7).exchange_seconds == pytest.approx(0.3)
    throttled = replace(answer, computed=1.0, network=0.02)  # 0.25 s of processor time in a second of the clock
    assert throttled.exchange_seconds == pytest.approx(0.08)


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="there is no clock of another thread: use Linux")
def test_talking_is_the_processor_time_of_the_thread_that_talks(hosted: Any) -> None:
    one = hosted(linear(), DATA, network=threading.get_ident())
    one.begin()
    one.plan(0, 8, pieces=one.everything)
    one.plan(1, 8)  # ends with the merge of round 0
    first, began = one.answer(0), time.thread_time()
    while time.thread_time() - began < 0.1:
        pass
    one.merge(0, first.delta)
    answer = one.answer(1)
    assert 0.1 <= answer.network <= answer.cpu
