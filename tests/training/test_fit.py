"""`rudel.fit`: its arguments, callbacks, and what it says of mistakes."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import rudel
from rudel.backend import set_seed
from rudel.errors import DataError, ModelError, NonFiniteError, OptionError, RunError

FORKS = """
import os
import signal
import warnings
from pathlib import Path

import rudel
import keras
import numpy as np
from rudel.runs.model_file import load_model

x = np.ones((4, 3), "float32")

def made():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def forked(name, ask):
    if child := os.fork():
        os.waitpid(child, 0)
        return
    signal.alarm(60)  # nobody else ends one that hangs
    try:
        ask()
        print(name, "answered", flush=True)
    except rudel.RudelError as error:
        print(name, str(error).partition(" and ")[2].partition(":")[0], flush=True)
    finally:
        os._exit(0)

forked("predict before:", lambda: rudel.predict(made(), x))
model = made()
warnings.simplefilter("ignore", RuntimeWarning)  # of JAX, that a fork may hang
forked("fit after:", lambda: rudel.fit(model, x, x[:, 0]))
forked("predict after:", lambda: rudel.predict(model, x))
model.save("model.keras")
forked("load after:", lambda: load_model(Path("model.keras")))
forked("recipe after:", lambda: rudel.train_recipe("sine", steps=1))
"""


def weights_of(model: Any) -> list[np.ndarray]:
    return [np.array(w) for w in model.get_weights()]


def same_bits(a: Any, b: Any) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(weights_of(a), weights_of(b), strict=True))


def test_same_seed_same_bits_and_another_seed_others(classifier: Any, blobs: Any) -> None:
    models = []
    for seed in (1, 1, 2):
        set_seed(0)
        models.append(classifier())
        rudel.fit(models[-1], *blobs, epochs=2, seed=seed)
    assert same_bits(models[0], models[1])
    assert not same_bits(models[0], models[2])


def test_steps_may_end_within_an_epoch(classifier: Any, blobs: Any) -> None:
    model = classifier()
    history = rudel.fit(model, *blobs, steps=8, batch_size=32)  # 6 steps an epoch
    assert int(model.optimizer.iterations) == 8
    assert len(history.history["loss"]) == 2


@pytest.mark.parametrize("form", ["arrays", "tuple", "examples", "dataset"])
def test_takes_data_in_every_form(classifier: Any, blobs: Any, form: str) -> None:
    examples = rudel.Examples(*blobs)
    forms = {
        "arrays": blobs,
        "tuple": (blobs,),
        "examples": (examples,),
        "dataset": (rudel.Dataset(examples, examples),),
    }
    set_seed(0)
    history = rudel.fit(classifier(), *forms[form], validation=None if form == "dataset" else blobs, epochs=2)
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}


def test_several_inputs_may_be_a_named_tuple(blobs: Any) -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    x, y = blobs
    inputs = Pair(keras.Input((6,)), keras.Input((6,)))
    model: Any = keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.Add()(inputs)))
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert np.isfinite(rudel.fit(model, Pair(x, x), y).history["loss"]).all()


def test_holds_out_a_fraction(classifier: Any, blobs: Any) -> None:
    history = rudel.fit(classifier(), *blobs, validation=0.25, epochs=3)
    assert len(history.history["val_loss"]) == 3


def test_a_distribution_of_keras_is_refused(classifier: Any, blobs: Any) -> None:
    distribution = keras.distribution.DataParallel(devices=jax.devices()[:1])
    with distribution.scope(), pytest.raises(ModelError, match="leave it out, and give `strategy='mesh'`"):
        rudel.fit(classifier(), *blobs)


def test_a_model_without_targets(blobs: Any) -> None:
    class Autoencoder(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.code, self.back = keras.layers.Dense(3), keras.layers.Dense(6)

        def call(self, x: Any) -> Any:
            back = self.back(self.code(x))
            self.add_loss(keras.ops.mean((back - x) ** 2))
            return back

    model = Autoencoder()
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    history = rudel.fit(model, blobs[0], epochs=20)
    assert history.history["loss"][-1] < history.history["loss"][0] / 2


class TestCallbacks:
    def test_early_stopping_restores_the_best_weights(self, classifier: Any, blobs: Any) -> None:
        model = classifier(keras.optimizers.SGD(0.5))
        best: dict[str, Any] = {}

        class Watch(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if logs["val_loss"] < best.get("loss", np.inf):
                    best.update(loss=logs["val_loss"], weights=weights_of(self.model), epoch=epoch)

        stopping = keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)
        mislabelled = (blobs[0], np.roll(blobs[1], 1))  # the better the model, the worse its loss here
        history = rudel.fit(model, *blobs, validation=mislabelled, epochs=100, callbacks=[Watch(), stopping])
        assert len(history.history["loss"]) == best["epoch"] + 3 < 100
        for kept, final in zip(best["weights"], weights_of(model), strict=True):
            np.testing.assert_array_equal(kept, final)

    def test_learning_rates_set_between_epochs_are_used(self, classifier: Any, blobs: Any) -> None:
        model = classifier("sgd")
        stop_learning = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 2 else 0.0)
        history = rudel.fit(model, *blobs, validation=blobs, epochs=4, callbacks=[stop_learning])
        losses = history.history["val_loss"]
        assert losses[0] > losses[1]
        assert losses[1] == losses[2] == losses[3]

    def test_reduces_the_rate_on_a_plateau(self, classifier: Any, blobs: Any) -> None:
        model = classifier(keras.optimizers.SGD(1e-7))
        reduce = keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, factor=0.5, min_delta=1.0)
        rudel.fit(model, *blobs, epochs=4, callbacks=[reduce])
        assert float(model.optimizer.learning_rate) < 1e-7

    def test_model_checkpoints_can_be_loaded(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        model = classifier()
        path = tmp_path / "best.keras"
        rudel.fit(model, *blobs, validation=blobs, epochs=2, callbacks=[keras.callbacks.ModelCheckpoint(path)])
        assert same_bits(keras.models.load_model(path), model)

    def test_logs_for_tensorboard(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        board = keras.callbacks.TensorBoard(str(tmp_path))
        rudel.fit(classifier(), *blobs, validation=blobs, epochs=2, callbacks=[board])
        assert sorted(p.name for p in tmp_path.iterdir()) == ["train", "validation"]
        assert all(list(tmp_path.glob(f"{part}/events.out.tfevents.*")) for part in ("train", "validation"))

    def test_moving_averages_of_weights_take_their_place_at_the_end(self, classifier: Any, blobs: Any) -> None:
        model = classifier(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9))
        rudel.fit(model, *blobs, epochs=2)
        averages = [np.array(v) for v in model.optimizer._model_variables_moving_average]
        for average, weight in zip(averages, weights_of(model), strict=True):
            np.testing.assert_array_equal(average, weight)

    def test_a_model_can_be_trained_again_though_its_weights_share_arrays(self, classifier: Any, blobs: Any) -> None:
        model = classifier(keras.optimizers.SGD(0.1, use_ema=True))
        for _ in range(2):
            rudel.fit(model, *blobs)

    def test_evaluations_are_told_to_callbacks(self, classifier: Any, blobs: Any) -> None:
        calls: list[Any] = []

        class Watch(keras.callbacks.Callback):
            def on_test_begin(self, logs: Any = None) -> None:
                calls.append("begin")

            def on_test_end(self, logs: Any = None) -> None:
                calls.append(sorted(logs))

        rudel.fit(classifier(), *blobs, validation=blobs, epochs=2, callbacks=[Watch()])
        assert calls == ["begin", ["accuracy", "loss"]] * 2

    def test_callbacks_act_between_steps_as_in_keras(self, classifier: Any, blobs: Any) -> None:
        class Between(keras.callbacks.Callback):
            model: Any

            def __init__(self) -> None:
                super().__init__()
                self.seen: list[Any] = []

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                self.seen.append(batch)

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.seen.append((batch, round(logs["loss"], 4), round(float(np.sum(self.model.get_weights()[0])), 3)))
                if batch == 1:
                    self.model.optimizer.learning_rate = 0.001

        mine, theirs = Between(), Between()
        set_seed(0)
        rudel.fit(classifier(), *blobs, epochs=2, shuffle=False, callbacks=mine)
        set_seed(0)
        classifier().fit(*blobs, epochs=2, shuffle=False, verbose=0, callbacks=[theirs])
        assert mine.seen == theirs.seen

    def test_a_callback_ends_the_training_between_steps(self, classifier: Any, blobs: Any, tmp_path: Any) -> None:
        class Enough(keras.callbacks.Callback):
            model: Any

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.model.stop_training = batch == 2

        every_two: Any = 2
        often = keras.callbacks.ModelCheckpoint(str(tmp_path / "{batch}.keras"), save_freq=every_two)
        model = classifier()
        rudel.fit(model, *blobs, epochs=5, callbacks=[Enough(), often])
        assert int(model.optimizer.iterations) == 3
        assert [path.name for path in tmp_path.iterdir()] == ["2.keras"]

    def test_hooks_between_steps_are_refused_elsewhere(self, classifier: Any, blobs: Any) -> None:
        class Meddler(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

        of_tests: Any = keras.callbacks.LambdaCallback()
        of_tests.on_test_batch_end = print
        every_ten: Any = 10
        between = keras.callbacks.ModelCheckpoint("x.keras", save_freq=every_ten)
        backup = keras.callbacks.BackupAndRestore("backup")
        for callback, strategy, words in (
            (Meddler(), "mesh", "Meddler has `on_train_batch_end`, .* one device of this computer"),
            (between, "mesh", 'save_freq="epoch"'),
            (of_tests, None, "has `on_test_batch_end`, and no callback acts between steps of the evaluation"),
            (backup, "mesh", "resume=True"),
        ):
            with pytest.raises(ModelError, match=words):
                rudel.fit(classifier(), *blobs, callbacks=[callback], strategy=strategy)


class TestMistakes:
    """Each is one sentence that names what is wrong."""

    def test_arguments(self, classifier: Any, blobs: Any) -> None:
        for settings, words in (
            ({"batch_size": 0}, "`batch_size=` must be a whole number of at least 1, not 0"),
            ({"epochs": 0}, "`epochs=`"),
            ({"steps": 2.5}, "`steps=`"),
            ({"epochs": 1, "steps": 1}, "not both"),
            ({"resume": True}, "run directory"),
            ({"checkpoint_every": 5}, "`checkpoint_every=` has no effect without a run directory"),
            ({"validation_batch_size": 0}, "`validation_batch_size=`"),
            ({"validation": 2}, "`validation` is a fraction"),
        ):
            with pytest.raises(OptionError, match=words):
                rudel.fit(classifier(), *blobs, **settings)

    def test_data(self, classifier: Any, blobs: Any) -> None:
        x, y = blobs
        with_nan = x.copy()
        with_nan[17, 2] = np.nan
        wrong = y.copy()
        wrong[5] = 3
        for data, words in (
            ((x, y[:-1]), "`x` has 192, `y` has 191"),
            ((with_nan, y), "training x at example 17"),
            ((x, wrong), "label 3 of example 5 in training y is out of range: the model has 3 outputs"),
            ((x[:0], y[:0]), "no examples"),
            ((np.array([["a"] * 6] * 192), y), "give numbers"),
            (([[1.0], [2.0, 3.0]], y[:2]), "different lengths"),
            ((np.ma.masked_greater(x, 1), y), "The training x data holds masked values, which would count like others"),
            ((x, np.ma.masked_equal(y, 1)), "The training y data holds masked values"),
            ((np.zeros(192, [("a", "f4"), ("b", "f4")]), y), "The training x data holds structured values: give num"),
            ((x, np.zeros(192, "V4")), r"The training y data holds \|V4 values: give numbers"),
            ((csr_matrix(x), y), r"training data has a sparse csr_matrix: give its `toarray\(\)`"),
        ):
            with pytest.raises(DataError, match=words):
                rudel.fit(classifier(), *data)
        with pytest.raises(OptionError, match="A generator brings its own targets"):
            rudel.fit(classifier(), (row for row in x), y)
        with pytest.raises(DataError, match="validation y"):
            rudel.fit(classifier(), x, y, validation=(x, wrong))

    def test_data_to_evaluate_or_to_predict_on(self, classifier: Any, blobs: Any) -> None:
        data = rudel.Dataset(rudel.Examples(*blobs))
        for ask, what in ((rudel.evaluate, "evaluation"), (rudel.predict, "prediction")):
            with pytest.raises(DataError, match=f"The {what} data is a Dataset: say which part of it is meant"):
                ask(classifier(), data)
            with pytest.raises(DataError, match=f"The {what} data has a sparse csr_matrix"):
                ask(classifier(), csr_matrix(blobs[0]))

    def test_targets_are_not_given_beside_a_source_that_is_evaluated(
        self, classifier: Any, blobs: Any, listed: Any
    ) -> None:
        x, y = blobs
        twice: tuple[dict[str, Any], ...] = ({"y": y}, {"sample_weight": np.ones(len(y))})
        for given in twice:
            with pytest.raises(OptionError, match="A generator brings its own targets and weights: leave out `y`"):
                rudel.evaluate(classifier(), ((x, y) for _ in range(1)), **given)
            with pytest.raises(OptionError, match="A stream brings its own targets"):
                rudel.evaluate(classifier(), listed(x, y), **given)

    def test_inputs_by_other_names_than_the_models(self, blobs: Any) -> None:
        x, _ = blobs
        old: Any = keras.Input((6,), name="old")
        new: Any = keras.Input((6,), name="new")
        model: Any = keras.Model({"old": old, "new": new}, keras.layers.Dense(3)(old - 2 * new))
        model.compile("sgd", "mse")
        rudel.fit(model, {"new": x, "old": x}, x[:, :3])
        for wrong in ({"id": x, "old": x, "new": x}, {"before": x, "after": x}, {"old": x}):
            words = f"has the keys {', '.join(map(repr, wrong))}, and the model `{model.name}` takes 'old', 'new'"
            for call in (rudel.fit, rudel.evaluate):
                with pytest.raises(DataError, match=words):
                    call(model, wrong, x[:, :3])
            with pytest.raises(DataError, match=f"The prediction x {words}"):
                rudel.predict(model, wrong)

    def test_a_step_of_the_models_own_may_take_more_inputs(self, blobs: Any) -> None:
        class More(keras.Model):
            def predict_step(self, state: Any, data: Any) -> Any:
                return super().predict_step(state, ({"x": data[0]["x"] + data[0]["more"]},))

        x, _ = blobs
        inputs = keras.Input((6,), name="x")
        model = More({"x": inputs}, keras.layers.Dense(3)(inputs))
        np.testing.assert_allclose(
            rudel.predict(model, {"more": x, "x": x}), rudel.predict(model, {"more": 0 * x, "x": 2 * x})
        )

    def test_weights_of_some_outputs(self, blobs: Any) -> None:
        x, y = blobs
        inputs = keras.Input((6,))
        model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b", "c")})
        model.compile(loss="mse")
        targets, weights = {name: y.astype("float32") for name in ("a", "b", "c")}, {"b": np.ones(len(y), "float32")}
        with pytest.raises(ModelError, match="cannot take these examples: KeyError: 'a'"):
            rudel.evaluate(model, x, targets, sample_weight=weights)
        rudel.evaluate(model, x, targets, sample_weight=weights | {"a": None, "c": None})

    def test_targets_by_other_names_than_those_of_the_outputs(self, blobs: Any) -> None:
        x, y = blobs
        inputs = keras.Input((6,))
        a, b = (keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b"))
        both, only_b = "the outputs `a` and `b`: give", "the outputs `a` and `b`, with a loss for `b`: give"
        for outputs, loss, names, words in (
            ({"a": a, "b": b}, "mse", ("a", "q"), both),
            ([a, b], "mse", (0, 1), both),  # Keras would train on the numbers 0 and 1
            ({"a": a, "b": b}, {"b": "mse"}, ("a",), only_b),  # and `b` on the targets of `a`
            ([a, b], [None, "mse"], ("a",), only_b),
            ({"a": a, "b": b}, {"c": "mse"}, ("c",), "the outputs `a` and `b`, with a loss for none of them: give"),
        ):
            model = keras.Model(inputs, outputs)
            model.compile(loss=loss)
            targets = {name: y.astype("float32") for name in names}
            given = " and ".join(f"`{name}`" for name in names)
            for ask in (rudel.fit, rudel.evaluate):
                with pytest.raises(ModelError, match=f"the targets are called {given}, and {words}"):
                    ask(model, x, targets)

    def test_targets_of_some_outputs_of_outputs_in_lists_and_of_one_that_is_there_twice(self, blobs: Any) -> None:
        x, y = blobs[0], blobs[1].astype("float32")
        inputs = keras.Input((6,))
        a, b, c = (keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b", "c"))
        for outputs, loss, targets in (
            ({"a": a, "b": b}, {"b": "mse"}, {"b": y}),
            ([a, b], [None, "mse"], {"b": y}),
            ({"a": a, "b": a}, "mse", {"a": y, "b": y}),
            ({"a": [a, b], "c": c}, "mse", {"a": [y, y], "c": y}),
        ):
            model = keras.Model(inputs, outputs)
            model.compile(loss=loss)
            assert rudel.evaluate(model, x, targets)["loss"] > 0

    def test_a_key_that_a_loss_of_the_models_own_misses(self, blobs: Any) -> None:
        class Named(keras.Model):
            def call(self, x: Any) -> Any:
                return x

            def compute_loss(self, x: Any, y: Any, *_: Any, **__: Any) -> Any:
                return y["kind"]

        model = Named()
        model.compile()
        with pytest.raises(ModelError, match=r"cannot be compiled: KeyError: 'kind'\.$"):
            rudel.fit(model, blobs[0], {"class": blobs[1]})

    def test_models(self, classifier: Any, blobs: Any) -> None:
        class Branching(keras.Model):
            def call(self, x: Any) -> Any:
                total: Any = keras.ops.sum(x)
                return x if total > 0 else -x

        branching = Branching()
        branching.compile(optimizer="sgd", loss="mse")
        uncompiled = keras.Sequential([keras.layers.Dense(3)])
        for model, words in (
            (uncompiled, "not compiled"),
            (classifier(run_eagerly=True), "run_eagerly"),
            (branching, "branching.* cannot"),
        ):
            with pytest.raises(ModelError, match=words):
                rudel.fit(model, *blobs)
        with pytest.raises(ModelError, match="cannot take these examples"):
            rudel.fit(classifier(), blobs[0][:, :4], blobs[1])

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked on Unix")
    def test_a_process_that_was_forked_after_jax_had_started(self, warm_python: str, tmp_path: Path) -> None:
        program = tmp_path / "forks.py"
        program.write_text(FORKS)
        command = [warm_python, program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        refused = [f"{name} after: JAX hangs in such a process" for name in ("fit", "predict", "load", "recipe")]
        assert done.stdout.splitlines() == ["predict before: answered", *refused], done.stderr

    def test_a_jax_that_compiles_nothing(self, classifier: Any, blobs: Any) -> None:
        model = classifier()
        for ask in (rudel.fit, rudel.evaluate, lambda model, x, y: rudel.predict(model, x)):
            with jax.disable_jit(), pytest.raises(ModelError, match=r"unset JAX_DISABLE_JIT, leave `jax\.disable_jit"):
                ask(model, *blobs)

    def test_only_a_model_that_wants_values_is_told_of_tracing(self, classifier: Any, blobs: Any) -> None:
        def wants_a_value(y: Any, outputs: Any) -> Any:
            return outputs * float(y[0])

        def has_other_shapes(y: Any, outputs: Any) -> Any:
            return keras.ops.matmul(outputs, keras.ops.ones((7, 2)))

        for loss, has_note in ((wants_a_value, True), (has_other_shapes, False)):
            with pytest.raises(ModelError) as caught:
                rudel.fit(classifier(loss=loss, metrics=[]), *blobs)
            assert ("jax.numpy" in str(caught.value)) is has_note
            assert str(caught.value).endswith(".")

    def test_a_loss_that_explodes_is_told_with_its_step(self, blobs: Any) -> None:
        x, y = blobs
        x = x.copy()
        x[70:] = 1e30  # the third of the batches of 32
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        with pytest.raises(NonFiniteError, match="loss became NaN or infinite at step 3:"):
            rudel.fit(model, x, y.astype("float32"), shuffle=False)

    def test_weights_that_explode_in_the_last_step_show_in_the_validation(self, blobs: Any) -> None:
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(1e38), loss="mse")
        with pytest.raises(NonFiniteError, match="validation loss"):
            rudel.fit(model, blobs[0], 100 * blobs[1], steps=1, validation=blobs)


def test_a_metric_of_classes_is_logged_by_class(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    x, y = blobs
    y = np.eye(3, dtype="float32")[y]
    histories = []
    fits: list[Any] = [keras.Model.fit, rudel.fit]
    for fit in fits:
        set_seed(0)
        model = classifier(loss="categorical_crossentropy", metrics=[keras.metrics.F1Score()])
        histories.append(fit(model, x, y, epochs=2, shuffle=False, verbose=0, validation_data=(x, y)).history)
    theirs, ours = histories
    for metric in ("f1_score", "val_f1_score"):
        by_class = np.stack([ours[f"{metric}/{number}"] for number in range(3)], 1)
        np.testing.assert_allclose(by_class, np.stack(theirs[metric]), rtol=1e-4)
    monitor = "val_f1_score/dog"
    model = classifier(loss="categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    data = rudel.Dataset(rudel.Examples(x, y), rudel.Examples(x, y), class_names=("cat", "dog", "cow"))
    history = rudel.fit(model, data, monitor=monitor, run=tmp_path / "run").history
    assert {f"{split}f1_score/{name}" for split in ("", "val_") for name in data.class_names} < set(history)
    assert (tmp_path / "run/best.keras").exists()
    assert (tmp_path / "run/report.html").exists()


def test_classes_that_the_loss_ignores_are_no_wrong_labels(classifier: Any, blobs: Any) -> None:
    x, y = blobs
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    rudel.fit(classifier(loss=loss, metrics=[]), x, np.where(np.arange(192) < 9, -1, y))


@pytest.mark.parametrize("kind", ["arrays", "stream"])
def test_examples_that_the_loss_ignores_are_not_in_the_predictions(
    classifier: Any, blobs: Any, listed: Any, tmp_path: Path, kind: str
) -> None:
    x, y = blobs
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    held_out = (x, np.where(np.arange(192) % 4 == 0, -1, y).astype("int32"))
    validation = listed(*held_out) if kind == "stream" else held_out
    rudel.fit(classifier(loss=loss, metrics=[]), x, y, validation=validation, run=tmp_path / "run")
    with np.load(tmp_path / "run/predictions.npz") as kept:
        np.testing.assert_array_equal(kept["truth"], y[np.arange(192) % 4 != 0])
    assert (tmp_path / "run/summary.json").exists()


@pytest.mark.parametrize("loss", ["binary_crossentropy", keras.losses.BinaryFocalCrossentropy()])
def test_targets_of_a_binary_loss_are_from_0_to_1(loss: Any) -> None:
    x = np.random.default_rng(0).random((12, 4, 4, 1), np.float32)
    mask = (x > 0.5) * np.uint8(255)
    mask[:3] = 0
    model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(1, 1, activation="sigmoid")])
    model.compile("sgd", loss)
    with pytest.raises(DataError, match=r"target 255 of example 3 in training y is out of range: the loss .*inary"):
        rudel.fit(model, x, mask, verbose=False)
    with pytest.raises(DataError, match=r"target -0\.5 of example 0 in training y"):
        rudel.fit(model, x, np.full_like(x, -0.5), verbose=False)
    rudel.fit(model, x, x * np.float32(1 + 1e-6), verbose=False)
    rudel.fit(model, x, mask, sample_weight=(np.arange(12) < 3).astype("float32").reshape(12, 1, 1), verbose=False)


@pytest.mark.parametrize("form", [dict, list])
def test_the_labels_of_each_output_fit_its_loss(form: Any) -> None:
    inputs, x = keras.Input((3,)), np.zeros((8, 3), np.float32)
    outputs = [keras.layers.Dense(1, "sigmoid", name="mask")(inputs), keras.layers.Dense(3, name="kind")(inputs)]
    losses = ["binary_crossentropy", keras.losses.SparseCategoricalCrossentropy(from_logits=True)]

    def formed(mask: Any, kind: Any) -> Any:
        return form(mask=mask, kind=kind) if form is dict else [mask, kind]

    model = keras.Model(inputs, outputs)
    model.compile("sgd", formed(*losses))
    mask, kind = np.arange(8)[:, None] % 2, np.arange(8) % 3
    names = ["'mask'", "'kind'"] if form is dict else ["0", "1"]
    with pytest.raises(DataError, match=rf"target 255 of example 1 in training y\[{names[0]}\] is out of range"):
        rudel.fit(model, x, formed(255 * mask, kind), verbose=False)
    with pytest.raises(DataError, match=rf"label 3 of example 2 in evaluation y\[{names[1]}\] is out of range"):
        rudel.evaluate(model, x, formed(mask, kind + 1))
    with pytest.raises(DataError, match=rf"labels in training y\[{names[1]}\] have the shape \(8, 3\), one-hot"):
        rudel.fit(model, x, formed(mask, np.eye(3)[kind]), verbose=False)
    model.compile("sgd", formed("mse", losses[1]))
    rudel.fit(model, x, formed(255 * mask, kind), verbose=False)


def test_steps_of_the_models_own_compare_targets_as_they_like() -> None:
    class Masked(keras.Model):
        def compute_loss(self, x: Any, y: Any, y_pred: Any, *others: Any, **more: Any) -> Any:
            return super().compute_loss(x, y["mask"], y_pred["mask"] * y["scale"], *others, **more)

    inputs, x = keras.Input((3,)), np.zeros((8, 3), np.float32)
    model: Any = Masked(inputs, {"mask": keras.layers.Dense(1, "sigmoid")(inputs), "scale": inputs})
    model.compile("sgd", "binary_crossentropy")
    rudel.fit(model, x, {"mask": np.ones((8, 1)), "scale": np.full((8, 1), 7.0)}, verbose=False)


def test_labels_fit_a_model_that_is_not_built() -> None:
    x, y = np.zeros((8, 3), np.float32), np.arange(8) % 3 + 1
    for ask in (rudel.fit, rudel.evaluate):
        model = keras.Sequential([keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        with pytest.raises(DataError, match=r"The label 3 of example 2 in .* is out of range"):
            ask(model, x, y)


def test_complex_numbers_keep_their_imaginary_part_or_are_refused() -> None:
    z = np.full((4, 2), 1 + 2j, np.complex64)
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    with pytest.raises(DataError, match="The training x holds complex64 values, of which the model would compute with"):
        rudel.fit(model, z, z.real, verbose=False)
    with pytest.raises(DataError, match="The training y holds complex64"):
        rudel.fit(model, z.real, z, verbose=False)
    model(z.real)
    for ask in (lambda: rudel.predict(model, z), lambda: rudel.evaluate(model, z, z.real)):
        with pytest.raises(DataError, match="x holds complex64"):
            ask()
    given = keras.Input((2,), dtype="complex64")
    model = keras.Model(given, keras.layers.Lambda(keras.ops.absolute, (2,), dtype="complex64")(given))
    np.testing.assert_allclose(rudel.predict(model, z), np.abs(z), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")  # Keras' loss is complex until it is added up
def test_a_loss_of_complex_numbers_takes_complex_targets() -> None:
    class Distance(keras.losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            return keras.ops.absolute(y_true - keras.ops.cast(y_pred, "complex64"))

    z = np.full((4, 2), 1 + 2j, np.complex64)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.compile("sgd", Distance(dtype="complex64"))
    expected = np.abs(z - rudel.predict(model, z.real)).mean()
    np.testing.assert_allclose(rudel.evaluate(model, z.real, z)["loss"], expected, rtol=1e-5)


def test_a_loss_of_the_users_own_may_be_called_as_a_binary_one_of_keras() -> None:
    def bce(y: Any, predicted: Any) -> Any:
        known: Any = keras.ops.cast(y >= 0, "float32")
        return keras.ops.mean(known * keras.ops.binary_crossentropy(y, predicted), -1)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "sigmoid")])
    model.compile("sgd", bce)
    rudel.fit(model, np.zeros((4, 2)), np.array([[-1, 1], [0, -1], [1, 1], [0, 0]], np.float32), verbose=False)


@pytest.mark.parametrize("kind", ["arrays", "stream"])
def test_labels_of_weight_0_may_be_any(classifier: Any, blobs: Any, listed: Any, tmp_path: Path, kind: str) -> None:
    x, y = blobs
    weight = (np.arange(192) % 4 != 0).astype("float32")
    wrong, models = np.where(weight == 0, -1, y), []
    for labels in (wrong, y):
        set_seed(0)
        data = rudel.Examples(x, labels, weight)
        if kind == "stream":
            stream = listed(x, labels)
            stream.examples = data
            data = stream
        models.append(classifier())
        rudel.fit(models[-1], data, validation=data, run=tmp_path / f"run{len(models)}")
    assert same_bits(*models)
    assert (tmp_path / "run1/report.html").exists()
    assert rudel.evaluate(models[0], (x, wrong, weight))["loss"] == rudel.evaluate(models[0], (x, y, weight))["loss"]
    with pytest.raises(DataError, match=r"The label -1 of example 4 .* \(47 of 192 labels are wrong\)"):
        rudel.fit(models[0], x, wrong, sample_weight=np.where(np.arange(192) == 0, 0, 1))


@pytest.mark.parametrize("shape", [(20, 1), (20, 3), (20, 3, 1)])
def test_a_step_of_weight_0_may_have_any_label(shape: tuple[int, ...]) -> None:
    model = keras.Sequential([keras.Input((3, 5)), keras.layers.Dense(4)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, weight = np.ones((20, 3, 5), "float32"), np.ones(shape, "float32")
    y = np.zeros((20, 3, 1), "int32")
    weight[2], y[2] = 0, 4
    rudel.fit(model, x, y, sample_weight=weight)
    with pytest.raises(DataError, match="out of range"):
        rudel.fit(model, x, y)


def ordinal_crossentropy(y: Any, outputs: Any) -> Any:
    """Of labels from 0 to 2 and the probabilities that they are above 0 and above 1."""
    labels: Any = keras.ops.reshape(keras.ops.cast(y, "int32"), (-1, 1))
    above = labels > keras.ops.arange(2)
    return keras.losses.binary_crossentropy(keras.ops.cast(above, "float32"), outputs)


def test_a_run_may_have_labels_that_are_no_numbers_of_outputs(blobs: Any, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2, "sigmoid")])
    model.compile("adam", ordinal_crossentropy)
    rudel.fit(model, *blobs, validation=blobs, run=tmp_path / "run")
    assert (tmp_path / "run/summary.json").exists()
    assert not (tmp_path / "run/predictions.npz").exists()


def test_test_examples_are_looked_at_at_the_end(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    model, part = classifier(), rudel.Examples(*blobs).take(np.arange(192) < 50)
    rudel.fit(model, rudel.Dataset(rudel.Examples(*blobs), test=part), run=tmp_path / "run")
    metrics = json.loads((tmp_path / "run/summary.json").read_text())["metrics"]
    expected = model.evaluate(part.x, part.y, verbose=0, return_dict=True)
    assert metrics["test_accuracy"] == pytest.approx(expected["accuracy"])


class TestRuns:
    def test_a_run_keeps_everything(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        model = classifier()
        data = rudel.Dataset(rudel.Examples(*blobs), rudel.Examples(*blobs), class_names=["a", "b", "c"])
        rudel.fit(model, data, epochs=3, run=tmp_path / "run")
        run = tmp_path / "run"
        summary = json.loads((run / "summary.json").read_text())
        assert summary["steps"] == 18
        assert summary["samples"] == 18 * 32
        assert set(summary["metrics"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [line["epoch"] for line in lines] == [1, 2, 3]
        assert lines[-1]["val_accuracy"] == summary["metrics"]["val_accuracy"]
        assert same_bits(rudel.load(run), model)
        assert "<svg" in (run / "report.html").read_text()
        assert rudel.evaluate(rudel.load(run), *blobs)["loss"] == pytest.approx(
            summary["metrics"]["val_loss"], rel=1e-5
        )

    def test_a_directory_holds_one_run(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        rudel.fit(classifier(), *blobs, run=tmp_path)
        before = (tmp_path / "model.keras").read_bytes()
        with pytest.raises(RunError, match="already holds a run"):
            rudel.fit(classifier(), *blobs, run=tmp_path)
        with pytest.raises(RunError, match="batch size 32, and this is 16"):
            rudel.fit(classifier(), *blobs, run=tmp_path, resume=True, batch_size=16)
        for other in (classifier("sgd"), classifier(keras.optimizers.Adam(0.5)), classifier(metrics=[])):
            with pytest.raises(RunError, match=r"optimizer|model"):
                rudel.fit(other, *blobs, run=tmp_path, resume=True)
        with pytest.raises(RunError, match=r"already done 6 steps, more than the 2 asked for"):
            rudel.fit(classifier(), *blobs, steps=2, run=tmp_path, resume=True)
        with pytest.raises(RunError, match="training data"):
            rudel.fit(classifier(), blobs[0] + 1, blobs[1], run=tmp_path, resume=True)
        assert (tmp_path / "model.keras").read_bytes() == before

    def test_a_length_that_changes_is_noted(
        self, classifier: Any, blobs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        notes = []
        for epochs in (1, 1, 2):
            rudel.fit(classifier(), *blobs, epochs=epochs, run=tmp_path, resume=True, verbose=True)
            notes.append("now has 12 steps, and had 6: " in " ".join(capsys.readouterr().err.split()))
        assert notes == [False, False, True]

    def test_a_model_that_cannot_be_saved_is_not_trained_into_a_run(self, blobs: Any, tmp_path: Path) -> None:
        class Scaled(keras.layers.Layer):
            def __init__(self, values: Any) -> None:
                super().__init__()
                self.values = values

            def call(self, x: Any) -> Any:
                return x * 2

        model: Any = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3), Scaled(object())])
        model.compile(optimizer="sgd", loss="mse")
        sentences = r"cannot be saved into a run: Object Scaled .* to be serializable\. Models and layers of your own"
        with pytest.raises(ModelError, match=sentences):
            rudel.fit(model, *blobs, run=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_two_trainings_cannot_share_a_directory(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        errors = []

        class Intruder(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                try:
                    rudel.fit(classifier(), *blobs, run=tmp_path, resume=True)
                except RunError as error:
                    errors.append(str(error))

        rudel.fit(classifier(), *blobs, run=tmp_path, callbacks=[Intruder()])
        assert len(errors) == 1
        assert "Another training is using" in errors[0]

    def test_a_finished_run_can_be_trained_further(self, classifier: Any, blobs: Any, tmp_path: Path) -> None:
        set_seed(0)
        whole = classifier()
        rudel.fit(whole, *blobs, epochs=5)
        set_seed(0)
        rudel.fit(classifier(), *blobs, epochs=2, run=tmp_path)
        resumed = classifier()
        history = rudel.fit(resumed, *blobs, epochs=5, run=tmp_path, resume=True)
        assert same_bits(whole, resumed)
        assert len(history.history["loss"]) == 5
        assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 30

    def test_an_optimizer_of_several_with_rates_of_their_own_goes_on(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        def fit(epochs: int, **given: Any) -> Any:
            set_seed(0)
            optimizers = keras.optimizers.OptimizerMap(
                keras.optimizers.Adam(0.01), {".*kernel": keras.optimizers.SGD(0.1)}
            )
            model = classifier(keras.optimizers.MultiOptimizer(optimizers))
            rudel.fit(model, *blobs, epochs=epochs, **given)
            return model

        fit(1, run=tmp_path)
        assert same_bits(fit(2, run=tmp_path, resume=True), fit(2))

    def test_a_rate_that_a_callback_has_changed_belongs_to_the_training(
        self, classifier: Any, blobs: Any, tmp_path: Path
    ) -> None:
        class Halving(keras.callbacks.Callback):
            model: Any

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) / 2

        def fit(model: Any, epochs: int, **given: Any) -> Any:
            rudel.fit(model, *blobs, epochs=epochs, callbacks=[Halving()], **given)
            return model

        set_seed(0)
        whole = fit(classifier(), 4)
        set_seed(0)
        model = fit(classifier(), 2, run=tmp_path)
        assert same_bits(fit(model, 3, run=tmp_path, resume=True), fit(classifier(), 3, run=tmp_path, resume=True))
        assert same_bits(fit(model, 4, run=tmp_path, resume=True), whole)
        model.optimizer.learning_rate = 0.5
        with pytest.raises(RunError, match="was begun with model"):
            fit(model, 5, run=tmp_path, resume=True)


def test_messages_in_python_name_arguments_of_python(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    rudel.fit(classifier(), *blobs, run=tmp_path / "run")
    with pytest.raises(RunError, match="add `resume=True` to continue it, or give another directory with `run=`"):
        rudel.fit(classifier(), *blobs, run=tmp_path / "run")


def test_whole_numbers_that_devices_do_not_have_are_refused() -> None:
    model = keras.Sequential([keras.Input((1,), dtype="int32"), keras.layers.Hashing(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.full((8, 1), 3_000_000_000), np.zeros((8, 1), np.float32)
    given: tuple[dict[str, Any], ...] = ({"x": x, "y": y}, {"x": iter([(x, y)]), "steps_per_epoch": 1})
    for arguments in given:
        with pytest.raises(DataError, match=r"There is 3,000,000,000 in .* with whole numbers of 32 bits: number such"):
            rudel.fit(model, **arguments)
    with pytest.raises(DataError, match="There is 3,000,000,000 in prediction x, and devices compute with whole"):
        rudel.predict(model, x)


def test_numpy_in_a_model_is_recognised(blobs: Any) -> None:
    class Mine(keras.Sequential):
        def call(self, *given: Any, **more: Any) -> Any:
            return keras.ops.convert_to_tensor(np.maximum(np.asarray(super().call(*given, **more)), 0))

    model = Mine([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    words = (
        r"cannot be compiled: .* __array__\(\) was called on traced .* in `Mine\.call` \(test_fit\.py:\d+\)\. Use keras"
    )
    with pytest.raises(ModelError, match=words):
        rudel.fit(model, blobs[0], blobs[0][:, :3])


def test_a_function_that_uses_a_package_is_named_and_not_the_package(classifier: Any, blobs: Any) -> None:
    def with_pandas(y: Any, outputs: Any) -> Any:
        return pd.DataFrame(outputs).to_numpy().mean()

    model = classifier()
    model.compile("sgd", "mse", metrics=[with_pandas])
    with pytest.raises(ModelError, match=r"cannot be compiled: .* in `with_pandas` \(test_fit\.py:\d+\)"):
        rudel.fit(model, blobs[0], np.zeros((len(blobs[0]), 3), np.float32))


@pytest.mark.parametrize("part", ["loss", "metrics", "layer"])
def test_tensorflow_in_a_model_is_recognised(classifier: Any, blobs: Any, part: str) -> None:
    tf = pytest.importorskip("tensorflow")

    def difference(y: Any, outputs: Any) -> Any:
        return tf.reduce_mean(tf.abs(outputs))

    class Rectified(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.nn.relu(x)

    if part == "layer":
        model: Any = keras.Sequential([keras.layers.Dense(3), Rectified()])
        model.compile("sgd", "mse")
    else:
        model = classifier(**{"loss": difference, "metrics": []} if part == "loss" else {"metrics": [difference]})
    name = "Rectified.call" if part == "layer" else "difference"
    with pytest.raises(ModelError, match=rf"cannot be compiled: `{name}` \(test_fit\.py:\d+\) calls TensorFlow\. Use"):
        rudel.fit(model, *blobs)


def test_a_strategy_of_tensorflow_is_refused_with_the_one_in_its_place(classifier: Any, blobs: Any) -> None:
    theirs = pytest.importorskip("tensorflow").distribute.OneDeviceStrategy("/cpu:0")
    with pytest.raises(OptionError, match=r"not TensorFlow's: `strategy='mesh'` sums gradients over devices in every"):
        rudel.fit(classifier(), *blobs, strategy=theirs)


@pytest.mark.parametrize("head", ["Flatten", "GlobalAveragePooling2D"])
def test_a_layer_that_crops_at_random_is_named(head: str) -> None:
    x, y = np.zeros((4, 8, 8, 3), np.float32), np.zeros((4, 1))
    crop = keras.layers.RandomCrop(6, 6)
    model = keras.Sequential([keras.Input((8, 8, 3)), crop, getattr(keras.layers, head)(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=rf"its layer `{crop.name}` \(RandomCrop\) does not run in compiled programs"):
        rudel.fit(model, x, y, verbose=False)


def test_a_layer_that_crops_at_random_is_not_blamed_for_targets_of_another_shape() -> None:
    x = np.zeros((4, 8, 8, 3), np.float32)
    crop, pool = keras.layers.RandomCrop(6, 6), keras.layers.GlobalAveragePooling2D()
    model = keras.Sequential([keras.Input((8, 8, 3)), crop, pool, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert rudel.evaluate(model, x, np.zeros((4, 1)))["loss"] == 0
    with pytest.raises(ModelError, match="Incompatible shapes for broadcasting"):
        rudel.evaluate(model, x, np.zeros((4, 5, 7)))


def test_a_dropout_of_everything_is_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(1.0, name="all"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="The layer `all` drops everything in training: give it a rate below 1"):
        rudel.fit(model, np.zeros((4, 3)), np.zeros((4, 1)), verbose=False)


@pytest.mark.parametrize("kind", ["Hashing", "IntegerLookup"])
def test_a_layer_of_keras_that_does_not_run_on_jax_is_named(kind: str) -> None:
    pytest.importorskip("tensorflow")
    numbers = np.arange(8).reshape(8, 1).astype("int32")
    layer = keras.layers.Hashing(8) if kind == "Hashing" else keras.layers.IntegerLookup(vocabulary=[1, 2, 3])
    model = keras.Sequential([keras.Input((1,), dtype="int32"), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    named = rf"cannot be compiled: its layer `{layer.name}` \({kind}\) does not run on JAX\. Leave it out of the model"
    with pytest.raises(ModelError, match=named):
        rudel.fit(model, numbers, numbers.astype("float32"))
    beforehand = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    beforehand.compile("sgd", "mse")
    rudel.fit(beforehand, np.asarray(layer(numbers)), numbers.astype("float32"), verbose=False)
