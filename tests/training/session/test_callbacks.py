"""What callbacks have learned in steps that are undone is forgotten."""

from typing import Any

import keras
import numpy as np

from rudel.session.callbacks import forget, remembered, restore, snapshot


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
