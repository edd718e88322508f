"""Evaluations between epochs, the best weights, ending early, and what is kept of all that."""

import json
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.errors import OptionError, RunError
from rudel.session.best_weights import Watch


def lines(run: Path) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read]


def weights(model: Any) -> list[np.ndarray]:
    return [np.array(w) for w in model.get_weights()]


def mislabelled(blobs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The better the model, the worse its loss here."""
    return blobs[0], np.roll(blobs[1], 1)


def fit(classifier: Any, blobs: Any, run: Path, **settings: Any) -> Any:
    """Trains with SGD at a constant rate, 6 steps an epoch; it soon gets worse at what it is validated on."""
    set_seed(7)
    model = classifier(keras.optimizers.SGD(0.05))
    rudel.fit(model, *blobs, validation=mislabelled(blobs), run=run, **settings)
    return model


def test_evaluations_come_every_so_many_steps_and_change_no_weight(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    calls = []
    tell = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: calls.append((epoch, sorted(logs))))
    often = fit(classifier, blobs, tmp_path / "often", steps=20, eval_every=4, callbacks=[tell])
    by_epoch = fit(classifier, blobs, tmp_path / "epochs", steps=20)
    for a, b in zip(weights(often), weights(by_epoch), strict=True):
        np.testing.assert_array_equal(a, b)
    records = lines(tmp_path / "often")
    assert [record["step"] for record in records] == [4, 8, 12, 16, 20]
    assert [record["epoch"] for record in records] == [pytest.approx(step / 6) for step in (4, 8, 12, 16, 20)]
    assert [record["step"] for record in lines(tmp_path / "epochs")] == [6, 12, 18, 20]
    assert records[-1]["val_loss"] == lines(tmp_path / "epochs")[-1]["val_loss"]
    assert calls == [(number, ["accuracy", "loss", "val_accuracy", "val_loss"]) for number in range(5)]
    assert "<svg" in (tmp_path / "often/report.html").read_text()


def test_numbers_of_numpy_give_a_run_its_lengths(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    lengths = {"epochs": 2, "steps_per_epoch": 4, "checkpoint_every": 3, "keep": 5, "stop_early": 9}
    fit(classifier, blobs, tmp_path, **{name: np.int64(value) for name, value in lengths.items()})
    assert [record["step"] for record in lines(tmp_path)] == [4, 8]
    assert json.loads((tmp_path / "config.json").read_text())["eval_every"] == 4


def test_a_run_goes_on_with_more_steps_and_other_evaluations(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    whole = fit(classifier, blobs, tmp_path / "whole", steps=40, eval_every=10)
    fit(classifier, blobs, tmp_path / "parts", steps=15, eval_every=10)
    resumed = fit(classifier, blobs, tmp_path / "parts", steps=40, eval_every=20, keep=5, resume=True)
    for a, b in zip(weights(whole), weights(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [record["step"] for record in lines(tmp_path / "parts")] == [10, 15, 20, 40]
    assert lines(tmp_path / "parts")[-1]["val_loss"] == lines(tmp_path / "whole")[-1]["val_loss"]


def test_a_training_that_a_callback_has_ended_continues_with_more_epochs(
    classifier: Any, blobs: Any, tmp_path: Path
) -> None:
    stop = [keras.callbacks.EarlyStopping("loss", min_delta=10, patience=1)]
    fit(classifier, blobs, tmp_path, epochs=5, callbacks=stop)
    ended = [record["epoch"] for record in lines(tmp_path)]
    fit(classifier, blobs, tmp_path, epochs=5, resume=True)
    assert [record["epoch"] for record in lines(tmp_path)] == ended == [1, 2]
    fit(classifier, blobs, tmp_path, epochs=6, resume=True)
    assert [record["epoch"] for record in lines(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_as_many_checkpoints_are_kept_as_asked_for(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    fit(classifier, blobs, tmp_path, steps=30, checkpoint_every=5, keep=3)
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [f"step-{step:010d}.npz" for step in (20, 25, 30)]


class TestBest:
    def test_the_best_by_another_metric_is_counted_from_the_resumption(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        fit(classifier, blobs, tmp_path, epochs=4, monitor="accuracy", keep=4)
        resumed = fit(classifier, blobs, tmp_path, epochs=5, monitor="val_loss", resume=True)
        best = json.loads((tmp_path / "summary.json").read_text())["best"]
        last = lines(tmp_path)[-1]
        assert best == {"monitor": "val_loss", "value": last["val_loss"], "step": last["step"], "epoch": 5}
        for a, b in zip(weights(rudel.load(tmp_path, best=True)), weights(resumed), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_what_is_not_a_number_is_not_the_best(self) -> None:
        watch = Watch("val_precision", 1, patience=2)
        values = [float("nan"), 0.25, float("nan"), float("nan")]
        better = [watch.observe({"step": i, "epoch": i, "logs": {"val_precision": v}}) for i, v in enumerate(values)]
        assert better == [False, True, False, False]
        assert watch.exhausted

    def test_training_ends_early_and_the_best_weights_are_kept(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        model = fit(classifier, blobs, tmp_path, epochs=100, eval_every=3, stop_early=4, monitor="val_loss")
        values = [record["val_loss"] for record in lines(tmp_path)]
        best = int(np.argmin(values))
        assert len(values) == best + 5 < 200
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["stopped_early"] is True
        assert summary["best"] == {
            "monitor": "val_loss", "value": values[best], "step": 3 * (best + 1), "epoch": (best + 1) / 2,
        }  # fmt: skip
        found = rudel.evaluate(rudel.load(tmp_path, best=True), *mislabelled(blobs))
        assert found["loss"] == pytest.approx(values[best], rel=1e-6)
        assert rudel.evaluate(rudel.load(tmp_path), *mislabelled(blobs))["loss"] == pytest.approx(values[-1], rel=1e-6)
        assert rudel.evaluate(model, *mislabelled(blobs))["loss"] == pytest.approx(values[-1], rel=1e-6)
        assert len(list((tmp_path / "checkpoints").glob("best-*"))) == 1

    def test_a_crash_changes_neither_the_best_nor_the_end(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        class Crash(keras.callbacks.Callback):
            def __init__(self, at: int) -> None:
                super().__init__()
                self.at = at

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if epoch == self.at:
                    raise InterruptedError

        settings = {"epochs": 100, "eval_every": 3, "stop_early": 4, "monitor": "val_loss", "checkpoint_every": 7}
        fit(classifier, blobs, tmp_path / "whole", **settings)
        crashes = len(lines(tmp_path / "whole")) - 1
        for at in (0, crashes // 2, crashes):
            with pytest.raises(InterruptedError):
                fit(classifier, blobs, tmp_path / "parts", callbacks=[Crash(at)], resume=True, **settings)
        fit(classifier, blobs, tmp_path / "parts", resume=True, **settings)
        assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
        for best in (False, True):
            pairs = zip(*(weights(rudel.load(tmp_path / name, best=best)) for name in ("whole", "parts")), strict=True)
            for a, b in pairs:
                np.testing.assert_array_equal(a, b)

    def test_a_run_that_ended_early_goes_on_with_more_patience(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        fit(classifier, blobs, tmp_path, epochs=60, stop_early=2)
        ended = len(lines(tmp_path))
        fit(classifier, blobs, tmp_path, epochs=60, stop_early=2, resume=True)
        assert len(lines(tmp_path)) == ended < 50
        fit(classifier, blobs, tmp_path, epochs=60, stop_early=5, resume=True)
        assert len(lines(tmp_path)) == ended + 3

    def test_what_cannot_be_monitored_is_told(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        for settings, words in (
            ({"monitor": "val_acuracy"}, "no metric `val_acuracy` to monitor: it has accuracy, loss, val_accuracy"),
            ({"stop_early": 0}, "`stop_early=` must be a whole number of at least 1"),
            ({"keep": 0}, "`keep=`"),
            ({"eval_every": 0}, "`eval_every=`"),
            ({"monitor": 5}, "`monitor=` is the name of a metric"),
        ):
            with pytest.raises(OptionError, match=words):
                fit(classifier, blobs, tmp_path / "run", **settings)
        with pytest.raises(OptionError, match=r"`val_loss` to monitor \(there is no validation data\)"):
            rudel.fit(classifier(), *blobs, stop_early=3)
        odd = keras.metrics.MeanMetricWrapper(lambda y, p: keras.ops.sum(p, -1), name="odd")
        with pytest.raises(OptionError, match="higher or lower `odd` is better is not clear"):
            rudel.fit(classifier(metrics=[odd]), *blobs, monitor="odd")
        assert not (tmp_path / "run").exists()
        fit(classifier, blobs, tmp_path / "run", epochs=1)
        with pytest.raises(RunError, match="kept no best weights: train with `monitor=`, such as val_loss"):
            rudel.load(tmp_path / "run", best=True)


def scalars(run: Path, part: str) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(run / "tensorboard" / part))
        found.Reload()
        return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


class TestBoard:
    def test_tensorboard_reads_every_line_once_also_of_a_resumed_run(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        fit(classifier, blobs, tmp_path, steps=20, eval_every=4)
        fit(classifier, blobs, tmp_path, steps=30, eval_every=4, resume=True)
        records = lines(tmp_path)
        train, validation = scalars(tmp_path, "train"), scalars(tmp_path, "validation")
        assert set(train) == {"loss", "accuracy", "learning_rate"}
        assert set(validation) == {"loss", "accuracy"}
        for found, prefix in ((train, ""), (validation, "val_")):
            for name, points in found.items():
                expected = [(record["step"], pytest.approx(record[prefix + name], rel=1e-6)) for record in records]
                assert points == expected

    def test_what_was_asked_for_is_there_as_a_text_and_in_the_configuration(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        asked = {"eval_every": 4, "checkpoint_every": 3, "keep": 4, "monitor": "val_accuracy", "stop_early": 9}
        fit(classifier, blobs, tmp_path, steps=8, **asked)
        found = EventAccumulator(str(tmp_path / "tensorboard/train"))
        found.Reload()
        (event,) = found.Tensors("settings")
        text = event.tensor_proto.string_val[0].decode()
        config = json.loads((tmp_path / "config.json").read_text())
        for name, value in asked.items():
            assert config[name] == value
            assert f"| {name} | {value} |" in text
        assert found.SummaryMetadata("settings").plugin_data.plugin_name == "text"


class OwnSteps(keras.Sequential):
    """Takes no steps, and logs the mean of its targets; compiled with an optimizer alone."""

    def train_step(self, state: Any, data: Any) -> Any:
        return {"own_loss": keras.ops.mean(data[1])}, state

    def test_step(self, state: Any, data: Any) -> Any:
        return {"own_loss": keras.ops.mean(data[1])}, state


def own_steps() -> Any:
    model = OwnSteps([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd")
    return model


class TestOwnSteps:
    x = np.arange(20, dtype="float32")[:, None]

    def test_what_they_log_of_the_last_batch_is_the_result_as_in_keras(self, listed: Any, small_blocks: None) -> None:
        expected = own_steps().evaluate(self.x, self.x, batch_size=8, verbose=0, return_dict=True)
        batches = ((self.x[first : first + 8], self.x[first : first + 8]) for first in (0, 8, 16))
        assert expected == {"own_loss": 17.5}
        for given in ((self.x, self.x), (listed(self.x, self.x),), (batches,)):
            assert rudel.evaluate(own_steps(), *given, batch_size=8) == expected

    def test_callbacks_see_it(self) -> None:
        stop = keras.callbacks.EarlyStopping("val_own_loss", mode="min")
        given: Any = {"epochs": 5, "validation_data": (self.x, self.x), "callbacks": [stop]}
        history = rudel.fit(own_steps(), self.x, self.x, batch_size=5, shuffle=False, verbose=0, **given).history
        assert history == {"own_loss": [17.0, 17.0], "val_own_loss": [17.0, 17.0]}

    def test_it_can_be_monitored_and_nothing_else(self, tmp_path: Path) -> None:
        given: Any = {"epochs": 2, "batch_size": 5, "validation": (self.x, self.x), "run": tmp_path / "run"}
        with pytest.raises(OptionError, match="no metric `val_loss` to monitor: it has own_loss, val_own_loss"):
            rudel.fit(own_steps(), self.x, self.x, monitor="val_loss", verbose=0, **given)
        rudel.fit(own_steps(), self.x, self.x, monitor="val_own_loss", verbose=0, resume=True, **given)
        best = json.loads((tmp_path / "run/summary.json").read_text())["best"]
        assert (best["monitor"], best["value"]) == ("val_own_loss", 17.0)
