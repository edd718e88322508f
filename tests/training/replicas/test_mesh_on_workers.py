"""The strategy `mesh` on hosts: callbacks act where the user is, and a lost host costs the steps since a checkpoint."""

import json
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.errors import ClusterError, ModelError, NonFiniteError

random = np.random.default_rng(5)
X = random.normal(size=(256, 6)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
SETTINGS: dict[str, Any] = {"batch_size": 16, "seed": 2, "eval_every": 60, "steps": 240}


class Doubling(keras.layers.Layer):
    """A layer that workers do not have."""

    def call(self, x: Any) -> Any:
        return twice(x)


def twice(x: Any) -> Any:
    return x * 2


def mean_error(y: Any, predicted: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y, predicted, from_logits=True)


class Watching(keras.callbacks.Callback):
    """Lowers the learning rate, and notes what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.weights: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        assert self.model
        self.epochs.append(epoch)
        self.weights.append(float(np.sum(self.model.get_weights()[-2])))
        self.model.optimizer.learning_rate = 0.01 / (epoch + 2)


class Losing(keras.callbacks.Callback):
    """Ends the training and kills a host, at the end of an epoch that is undone by that; does not do so again."""

    def __init__(self, crew: Any) -> None:
        super().__init__()
        self._crew = crew

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1 and "b" in self._crew.names:
            self._crew.kill("b")
            assert self.model
            self.model.stop_training = True


def made() -> Any:
    set_seed(4)
    model = keras.Sequential(
        [keras.Input((6,)), Doubling(), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)]
    )
    model.compile(keras.optimizers.Adam(0.01), loss=mean_error, metrics=["accuracy"])
    return model


def test_a_lost_host_costs_no_more_than_the_steps_since_a_checkpoint(crew: Any, tmp_path: Path) -> None:
    alone, watching_alone = made(), Watching()
    expected = rudel.fit(alone, X, Y, validation=(X, Y), callbacks=[watching_alone], **SETTINGS).history

    model, watching = made(), Watching()
    found = rudel.fit(
        model, X, Y, validation=(X, Y), callbacks=[watching, Losing(crew)], client=crew.client, strategy="mesh",
        run=tmp_path / "run", checkpoint_every=20, **SETTINGS,
    )  # fmt: skip
    assert found.epoch == [0, 1, 2, 3]
    for name, values in expected.items():
        np.testing.assert_allclose(found.history[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
    assert watching.epochs == watching_alone.epochs
    np.testing.assert_allclose(watching.weights, watching_alone.weights, rtol=1e-3)
    for one, other in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["hosts"] == ["a"]
    assert [restart["lost"] for restart in summary["restarts"]] == [["b"]]
    assert [(restart["step"], restart["from_step"]) for restart in summary["restarts"]] == [(120, 100)]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["strategy_options"] == summary["strategy_options"]
    assert config["strategy_options"]["axes"] == "data=1"
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [60, 120, 180, 240]


def test_a_finished_run_of_another_strategy_stays_what_it_is(crew: Any, tmp_path: Path) -> None:
    settings = SETTINGS | {"steps": 10, "run": tmp_path / "run"}
    rudel.fit(made(), X, Y, **settings)
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    for _ in range(2):
        rudel.fit(made(), X, Y, client=crew.client, strategy="mesh", resume=True, **settings)
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        for name in ("strategy", "hosts", "samples", "steps"):
            assert summary[name] == before[name], name


def test_a_loss_that_is_not_finite_ends_it_with_the_same_sentence(crew: Any) -> None:
    crew.only("a")
    with pytest.raises(NonFiniteError, match="The loss became NaN or infinite at step 1:"):
        rudel.fit(made(), X * np.float32(1e38), Y, client=crew.client, strategy="mesh", **SETTINGS)


@pytest.mark.parametrize("strategy", ["mesh", "diloco"])
def test_a_callback_that_freezes_a_layer_is_one_sentence(crew: Any, strategy: str) -> None:
    class Freezing(keras.callbacks.Callback):
        model: Any

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.layers[1].trainable = False

    crew.only("a")
    with pytest.raises(ModelError, match="or frozen or unfrozen layers of it, at step"):
        rudel.fit(made(), X, Y, client=crew.client, strategy=strategy, callbacks=[Freezing()], **SETTINGS)


class CallingBack(keras.layers.Layer):
    """A layer whose function fails while the training runs."""

    def call(self, x: Any) -> Any:
        jax.debug.callback(self._fail)
        return x

    def _fail(self) -> None:
        raise ZeroDivisionError("nothing can be divided by this")


def test_an_error_on_a_host_says_its_cause_and_leaves_nothing_there(crew: Any) -> None:
    model = keras.Sequential([keras.Input((6,)), CallingBack(), keras.layers.Dense(2)])
    model.compile("sgd", loss=mean_error)
    with pytest.raises(ClusterError, match="ZeroDivisionError: nothing can be divided by this"):
        rudel.fit(model, X, Y, client=crew.client, strategy="mesh", **SETTINGS)
    assert list(crew.folder.glob("rudel-mesh-*")) == []
