"""Callbacks: what they do between steps and in resumed trainings, and how they forget what is undone."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.cli import interrupts
from rudel.errors import ModelError
from rudel.loop.read_ahead import Ahead
from rudel.session.callbacks import forget, remembered, restore, snapshot
from rudel.session.session import Session


class Learning(keras.callbacks.Callback):
    """Has plain values, arrays, and what is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.sums = np.zeros(2)
        self.open: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)
        self.sums += epoch
        self.open = object()
        self.last = epoch


def stopping() -> Any:
    found = keras.callbacks.EarlyStopping("val_loss", min_delta=1, patience=1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    found.set_model(model)
    found.on_train_begin()
    return found


def test_what_was_learned_since_a_snapshot_is_forgotten() -> None:
    learning = Learning()
    at_begin = remembered([learning])
    arrays: dict[str, np.ndarray] = {}
    learning.on_epoch_end(1)
    kept = snapshot([learning], at_begin, arrays)
    for _ in range(2):  # as often as hosts are lost
        learning.on_epoch_end(2)
        forget([learning], at_begin)
        restore([learning], kept, arrays)
        assert (learning.epochs, learning.last, learning.sums.tolist()) == ([1], 1, [1, 1])


def test_what_was_learned_since_the_beginning_is_forgotten() -> None:
    learning = Learning()
    at_begin = remembered([learning])
    for _ in range(2):
        learning.on_epoch_end(2)
        forget([learning], at_begin)
        assert (learning.epochs, learning.sums.tolist(), learning.open) == ([], [0, 0], None)
        assert not hasattr(learning, "last")


def test_early_stopping_waits_as_if_undone_epochs_had_not_been() -> None:
    callback = stopping()
    at_begin = remembered([callback])
    before = snapshot([callback], at_begin, {})
    for _ in range(2):
        callback.on_epoch_end(0, {"val_loss": 10.0})
        callback.on_epoch_end(1, {"val_loss": 9.5})  # no better by 1
        assert callback.wait == 1
        assert callback.model.stop_training
        callback.model.stop_training = False
        forget([callback], at_begin)
        restore([callback], before, {})
        assert (callback.wait, callback.best, callback.min_delta) == (0, None, 1)


class Batches(keras.callbacks.Callback):
    """Notes the batches whose ends it hears of; presses Ctrl-C when there are so many."""

    def __init__(self, most: int = 0) -> None:
        super().__init__()
        self.most = most
        self.seen: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(batch)
        if len(self.seen) == self.most:
            signal.raise_signal(signal.SIGINT)


def test_what_a_callback_changes_before_a_step_counts_as_in_keras(classifier: Any, blobs: Any) -> None:
    class Before(keras.callbacks.Callback):
        model: Any

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.1 / (batch + 1)
            if batch == 3:
                self.model.layers[0].bias.assign(np.ones(16))

    set_seed(0)
    ours = classifier("sgd")
    history = rudel.fit(ours, *blobs, epochs=2, shuffle=False, callbacks=[Before()]).history
    set_seed(0)
    theirs = classifier("sgd")
    expected = theirs.fit(*blobs, epochs=2, shuffle=False, verbose=0, callbacks=[Before()]).history
    assert history["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert float(ours.optimizer.learning_rate) == float(theirs.optimizer.learning_rate)
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "hook", ["on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"]
)
@pytest.mark.parametrize("change", ["freeze", "swap", "compile"])
def test_a_callback_that_changes_what_was_compiled_is_one_sentence(
    classifier: Any, blobs: Any, hook: str, change: str
) -> None:
    def act(number: Any, logs: Any = None) -> None:
        if number == 1 or hook == "on_train_begin":
            kept.extend(model.get_weights())
            model.layers[0].trainable, model.layers[1].trainable = change == "compile", True
            if change == "compile":
                model.compile("adam", "mse")

    callback, kept = keras.callbacks.Callback(), []
    setattr(callback, hook, act)
    model = classifier("adam")
    model.layers[1].trainable = change != "swap"
    with pytest.raises(ModelError, match=r"has compiled the model .* again, or frozen or unfrozen layers"):
        rudel.fit(model, *blobs, epochs=3, callbacks=[callback])
    for one, other in zip(model.get_weights(), kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("hook", "steps"), [("on_train_begin", 1), ("on_epoch_begin", 7)])
def test_a_training_that_a_callback_ends_before_a_step_takes_that_one_as_in_keras(
    classifier: Any, blobs: Any, hook: str, steps: int
) -> None:
    def fit(how: Any) -> tuple[Any, Any]:
        def stop(epoch: int = 1, logs: Any = None) -> None:
            model.stop_training = bool(epoch)

        set_seed(0)
        model = classifier("sgd")
        callback = keras.callbacks.Callback()
        setattr(callback, hook, stop if hook == "on_epoch_begin" else lambda logs=None: stop())
        given = {"validation_data": blobs, "epochs": 3, "shuffle": False, "verbose": 0, "callbacks": [callback]}
        return how(model, *blobs, **given).history, model

    (found, ours), (expected, theirs) = fit(rudel.fit), fit(keras.Model.fit)
    assert int(ours.optimizer.iterations) == int(theirs.optimizer.iterations) == steps
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-4)
    rudel.fit(ours, *blobs)  # which begins with no wish to end
    assert int(ours.optimizer.iterations) == steps + 6


def test_batches_are_counted_from_the_beginning_of_the_epoch_in_a_resumed_training(
    classifier: Any, blobs: Any, tmp_path: Path
) -> None:
    first, second = Batches(most=8), Batches()  # 6 steps an epoch
    with pytest.raises(KeyboardInterrupt, match="after 8 of 12 steps"):
        rudel.fit(classifier(), *blobs, epochs=2, run=tmp_path, callbacks=[first])
    rudel.fit(classifier(), *blobs, epochs=2, run=tmp_path, callbacks=[second], resume=True)
    assert first.seen == [*range(6), 0, 1]
    assert second.seen == [*first.seen, 2, 3, 4, 5]


def test_a_step_that_an_interrupt_prevents_does_not_end(
    classifier: Any, blobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rudel.loop.blocks.BLOCK_BYTES", 1.0)  # so that each batch is given away by itself
    closed, close = threading.Event(), Ahead.close

    def closing(ahead: Ahead[Any]) -> None:
        closed.set()
        close(ahead)

    monkeypatch.setattr(Ahead, "close", closing)

    class Stuck(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, number: int) -> Any:
            assert number < 2 or closed.wait(60)
            return tuple(part[:32] for part in blobs)

    class Interrupting(Batches):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                signal.raise_signal(signal.SIGINT)

    callback = Interrupting()
    with pytest.raises(KeyboardInterrupt, match="after 2 of 6 steps"):
        rudel.fit(classifier(), Stuck(), shuffle=False, callbacks=[callback])
    assert callback.seen == [0, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_handler_of_the_user_runs_and_the_training_goes_on_as_in_keras(
    classifier: Any, blobs: Any, number: signal.Signals
) -> None:
    class Signalled(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            signal.raise_signal(number)

    received: list[int] = []
    before = signal.signal(number, lambda number, frame: received.append(number))
    try:
        history = rudel.fit(classifier(), *blobs, epochs=2, callbacks=[Signalled()])
    finally:
        signal.signal(number, before)
    assert (history.epoch, received) == ([0, 1], [number] * 2)


def test_an_interrupt_at_any_moment_is_preceded_by_a_checkpoint(
    classifier: Any, blobs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_due, asked = Session.checkpoint_is_due, []

    def interrupted_just_after(session: Session) -> bool:
        due = is_due(session)
        asked.append(due)
        if len(asked) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return due

    monkeypatch.setattr(Session, "checkpoint_is_due", interrupted_just_after)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        rudel.fit(classifier(), *blobs, epochs=8, run=tmp_path, checkpoint_every=10_000, verbose=0)
    (step,) = (int(path.stem.removeprefix("step-")) for path in (tmp_path / "checkpoints").iterdir())
    assert str(interrupted.value).startswith(f"Interrupted after {step} of 48 steps; continue")


@pytest.mark.parametrize("within", ["a server that starts", "asyncio", "another training"])
def test_handlers_of_rudel_and_of_asyncio_wait_for_a_checkpoint(
    classifier: Any, blobs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    monkeypatch.setattr(interrupts, "leave", lambda code: pytest.fail("the process would end at once"))
    run = tmp_path / "run"

    def train() -> None:
        with pytest.raises(KeyboardInterrupt) as caught:
            rudel.fit(classifier(), *blobs, epochs=2, run=run, verbose=False, callbacks=[Batches(6)])
        assert str(caught.value) == f"Interrupted after 6 of 12 steps; continue with `run='{run}'` `resume=True`."

    async def main() -> None:
        train()

    def around(training: Callable[[], None]) -> None:
        outer = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: training())
        assert rudel.fit(classifier(), *blobs, callbacks=[outer]).epoch == [0]

    if within == "asyncio":
        asyncio.run(main())
    elif within == "another training":
        around(train)
    else:
        with interrupts.ending_at_once(contextlib.ExitStack()):
            train()
    assert [path.name for path in (run / "checkpoints").glob("*.npz")] == ["step-0000000006.npz"]
    assert rudel.fit(classifier(), *blobs, epochs=2, run=run, resume=True, verbose=False).epoch == [0, 1]


def test_what_callbacks_add_to_the_logs_is_in_the_history_of_a_resumed_training(
    classifier: Any, blobs: Any, tmp_path: Path
) -> None:
    class Adding(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs.update(f1=np.float32(epoch) / 2, remark="none")

    def fit(epochs: int, **given: Any) -> dict[str, Any]:
        set_seed(0)
        schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (1 + epoch))
        return rudel.fit(classifier(), *blobs, epochs=epochs, callbacks=[schedule, Adding()], **given).history

    whole = fit(4)
    fit(2, run=tmp_path)
    resumed = fit(4, run=tmp_path, resume=True)
    assert resumed.pop("remark") == ["none"] * 2  # only numbers are kept
    assert whole.pop("remark") == ["none"] * 4
    assert resumed == whole
    assert resumed["learning_rate"] == pytest.approx([0.1, 0.05, 0.1 / 3, 0.025])
