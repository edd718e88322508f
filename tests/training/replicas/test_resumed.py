"""A training on several hosts goes on where it was, however its driver ended."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from training.replicas.replica_jobs import KINDS, SHORT, TABLE, with_schedule

import rudel
from rudel.backend import set_seed
from rudel.errors import RunError
from rudel.replicas.asynchronous.async_options import Async
from rudel.session.store import RunStore

layers = keras.layers


def newest_checkpoint(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("*.npz"))[-1]


def vector_of(model: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def test_a_finished_run_is_told_again_as_it_was(crew: Any, tmp_path: Path) -> None:
    summaries = []
    for _ in range(2):
        settings = {"epochs": 2, "client": crew.client, "run": tmp_path, "resume": True, "strategy": SHORT}
        set_seed(1)
        rudel.fit(*with_schedule(), **settings)
        summaries.append(json.loads((tmp_path / "summary.json").read_text()))
    for name in ("hosts", "steps", "samples", "rounds", "bytes_sent", "metrics"):
        assert summaries[0][name] == summaries[1][name]


@pytest.mark.parametrize("strategy", [SHORT, Async(steps_between=8)], ids=["diloco", "async"])
def test_a_run_of_several_hosts_continues_on_one_and_on_several_again(crew: Any, tmp_path: Path, strategy: Any) -> None:
    kept = {}
    for hosts, steps in (("ab", 100), ("a", 200), ("ab", 300)):
        crew.only(*hosts)
        set_seed(1)
        model, x, y = with_schedule()
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "strategy": strategy}
        rudel.fit(model, x, y, steps=steps, batch_size=16, **settings)
        kept[steps] = np.load(newest_checkpoint(tmp_path))
        np.testing.assert_array_equal(vector_of(model), kept[steps]["recent/0" if len(hosts) > 1 else "weights/0"])
    assert kept[200]["recent/0"].size == 0
    assert np.abs(kept[300]["recent/0"] - kept[200]["weights/0"]).max() > 1e-3
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["steps"] == 100 // 2 + 100 + 100 // 2


@pytest.mark.parametrize(("before", "after"), [("ab", "a"), ("a", "ab")], ids=["two then one", "one then two"])
def test_the_journal_gives_back_what_the_hosts_of_its_rounds_made(
    crew: Any, tmp_path: Path, before: str, after: str
) -> None:
    found = []
    for hosts in (before, after):
        crew.only(*hosts)
        set_seed(1)
        model, x, y = with_schedule()
        rudel.fit(model, x, y, steps=200, client=crew.client, run=tmp_path, resume=True, strategy=SHORT)
        found.append(vector_of(model))
        assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 200 // len(before)
        if hosts == before:  # as if the driver had been killed before the last checkpoint
            newest_checkpoint(tmp_path).unlink()
    np.testing.assert_array_equal(*found)


def test_the_best_weights_that_the_journal_knows_of_outlive_a_kill(
    crew: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(validation: Any) -> Any:
        set_seed(1)
        model, x, y = with_schedule()
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "monitor": "val_loss", "strategy": SHORT}
        return rudel.fit(model, x, y, epochs=6, validation=validation, **settings)

    def save_best(self: Any, weights: Any, before: Any) -> None:
        save(self, weights, before)
        best.append(weights.step)
        if len(best) == 3:
            raise KeyboardInterrupt  # before there is a record of it

    save, best = RunStore.save_best, []
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "save_best", save_best)
        with pytest.raises(KeyboardInterrupt):
            train((TABLE, KINDS))
    train((TABLE, (KINDS + 1) % 4))
    assert json.loads((tmp_path / "summary.json").read_text())["best"]["step"] == best[1]
    rudel.load(tmp_path, best=True)


def test_the_record_of_a_training_that_ended_within_an_epoch_outlives_a_kill(crew: Any, tmp_path: Path) -> None:
    def train(steps: int, labels: Any) -> dict[str, Any]:
        set_seed(1)
        model, x, y = with_schedule()
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "monitor": "val_loss", "strategy": SHORT}
        rudel.fit(model, x, y, steps=steps, validation=(x, labels), **settings)
        return json.loads((tmp_path / "summary.json").read_text())["best"]

    best = train(24, KINDS)
    assert best["step"] == 24, "half an epoch after the first"
    worse = (KINDS + 1) % 4
    assert train(64, worse) == best
    newest_checkpoint(tmp_path).unlink()  # as if the driver had been killed before the last checkpoint
    assert train(64, worse) == best
    rudel.load(tmp_path, best=True)


def test_a_run_whose_journal_goes_further_than_it_is_to_is_refused(crew: Any, tmp_path: Path) -> None:
    def train(steps: int) -> np.ndarray:
        set_seed(1)
        model, x, y = with_schedule()
        rudel.fit(model, x, y, steps=steps, client=crew.client, run=tmp_path, resume=True, strategy=SHORT)
        return vector_of(model)

    whole = train(100)
    newest_checkpoint(tmp_path).unlink()  # as if the driver had been killed before the last checkpoint
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    with pytest.raises(RunError, match=r"has already done 1\d\d steps, more than the 48 asked for: ask for more"):
        train(48)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before
    np.testing.assert_array_equal(train(100), whole)


def test_a_learning_rate_that_a_callback_has_lowered_stays_so_in_a_resumed_run(crew: Any, tmp_path: Path) -> None:
    def train(epochs: int) -> Any:
        model = keras.Sequential([keras.Input((5,)), layers.Dense(4)])
        model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        lower = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=100.0, min_lr=1e-5)
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "strategy": SHORT}
        rudel.fit(model, TABLE, KINDS, epochs=epochs, callbacks=[lower], **settings)
        return model

    assert float(train(6).optimizer.learning_rate) < 0.01
    assert float(train(8).optimizer.learning_rate) < 0.01


@pytest.mark.parametrize("stops", [False, True], ids=["with the last epoch", "by a callback"])
def test_a_learning_rate_that_is_lowered_when_the_training_ends_stays_so_in_a_resumed_run(
    crew: Any, tmp_path: Path, stops: bool
) -> None:
    class Lowers(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if self.model:
                self.model.optimizer.learning_rate = 0.001
                self.model.stop_training = stops

    def train(epochs: int, *callbacks: Any) -> Any:
        set_seed(1)
        model = keras.Sequential([keras.Input((5,)), layers.Dense(4)])
        model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "strategy": SHORT}
        rudel.fit(model, TABLE, KINDS, epochs=epochs, callbacks=callbacks, **settings)
        return model

    train(100 if stops else 1, Lowers())
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert float(train(4).optimizer.learning_rate) == pytest.approx(0.001)


def test_a_lowered_learning_rate_stays_so_if_the_driver_ends_again_before_the_next_epoch(
    crew: Any, tmp_path: Path
) -> None:
    class LowersAfterTheFirst(keras.callbacks.Callback):
        def __init__(self, ends: bool) -> None:
            super().__init__()
            self.ends = ends

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if self.ends:
                raise RuntimeError("no more")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0 and self.model:
                self.model.optimizer.learning_rate = 0.001

    def train(epochs: int, ends: bool = False) -> Any:
        set_seed(1)
        model = keras.Sequential([keras.Input((5,)), layers.Dense(4)])
        model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "strategy": SHORT}
        rudel.fit(model, TABLE, KINDS, epochs=epochs, callbacks=[LowersAfterTheFirst(ends)], **settings)
        return model

    train(2)
    with pytest.raises(RuntimeError, match="no more"):
        train(4, ends=True)
    assert float(train(4).optimizer.learning_rate) == pytest.approx(0.001)


def test_an_epoch_that_has_begun_does_not_begin_again_in_a_resumed_run(crew: Any, tmp_path: Path) -> None:
    def train() -> list[int]:
        begun: list[int] = []
        note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(epoch))
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "strategy": SHORT}
        set_seed(1)
        model, x, y = with_schedule()
        rudel.fit(model, x, y, epochs=3, batch_size=4, callbacks=[note], checkpoint_every=1, keep=100, **settings)
        return begun

    assert train() == [0, 1, 2]
    for path in (tmp_path / "checkpoints").glob("step-*.npz"):
        if int(path.stem.removeprefix("step-")) >= 128:  # as if the driver had been killed in the first epoch
            path.unlink()
    assert train() == [1, 2]


def test_a_run_of_one_computer_is_not_resumed_on_several(crew: Any, tmp_path: Path) -> None:
    set_seed(1)
    rudel.fit(*with_schedule(), epochs=2, run=tmp_path)
    set_seed(1)
    with pytest.raises(RunError, match="was begun with another strategy"):
        rudel.fit(*with_schedule(), epochs=4, run=tmp_path, resume=True, client=crew.client)


def test_a_run_of_several_is_not_resumed_on_one_computer(crew: Any, tmp_path: Path) -> None:
    set_seed(1)
    rudel.fit(*with_schedule(), epochs=2, run=tmp_path, client=crew.client, strategy=SHORT)
    set_seed(1)
    with pytest.raises(RunError, match="was begun with another strategy"):
        rudel.fit(*with_schedule(), epochs=4, run=tmp_path, resume=True)
