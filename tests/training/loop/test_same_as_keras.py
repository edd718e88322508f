"""The compiled loop does what `model.fit` does, step by step, whatever the model overrides."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.errors import DataError
from rudel.loop.batch_sizes import batch_size_of

layers, ops = keras.layers, keras.ops
random = np.random.default_rng(3)
PICTURES = random.integers(0, 256, (96, 12, 12, 1)).astype("uint8")
LABELS = random.integers(0, 4, 96).astype("int32")
TABLE = random.normal(size=(96, 5)).astype("float32")


def convolutional() -> tuple[Any, Any, Any]:
    model = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2),
            layers.SeparableConv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(3, strides=2, padding="same"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss=loss, metrics=["accuracy"])
    return model, PICTURES, LABELS


def with_schedule_and_clipping() -> tuple[Any, Any, Any]:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
    schedule: Any = keras.optimizers.schedules.CosineDecay(0.02, 12)
    model.compile(optimizer=keras.optimizers.AdamW(schedule, clipnorm=1.0), loss="mse", metrics=["mae"])
    return model, TABLE, TABLE.sum(1, keepdims=True)


def several_inputs_and_outputs() -> tuple[Any, Any, Any]:
    picture, table = keras.Input((12, 12, 1), name="picture"), keras.Input((5,), name="table")
    joined = layers.Concatenate()([layers.Flatten()(layers.Rescaling(1 / 255)(picture)), table])
    kind = layers.Dense(4, activation="softmax", name="kind")(joined)
    total = layers.Dense(1, name="total")(joined)
    model = keras.Model({"picture": picture, "table": table}, {"kind": kind, "total": total})
    losses = {"kind": "sparse_categorical_crossentropy", "total": "mse"}
    weights = {"total": 0.3, "kind": 1.0}
    model.compile(optimizer="sgd", loss=losses, metrics={"kind": ["accuracy"]}, loss_weights=weights)
    return model, {"picture": PICTURES, "table": TABLE}, {"kind": LABELS, "total": TABLE.sum(1, keepdims=True)}


def custom_loss_and_metric() -> tuple[Any, Any, Any]:
    def asymmetric(truth: Any, predicted: Any) -> Any:
        error = predicted - truth
        return ops.mean(ops.where(error > 0, error**2, 3 * error**2), axis=-1)

    def worst(truth: Any, predicted: Any) -> Any:
        return ops.max(ops.abs(truth - predicted), axis=-1)

    model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activity_regularizer="l2"), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss=asymmetric, metrics=[worst])
    return model, TABLE, TABLE.sum(1, keepdims=True)


class Halving(keras.Model):
    """Overrides `train_step`: trains on half the loss, and logs something of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, state: Any, data: Any) -> Any:
        import jax

        trainable, non_trainable, optimizer, metrics = state
        x, y = data

        def loss_of(trainable: Any, non_trainable: Any) -> Any:
            predicted, non_trainable = self.stateless_call(trainable, non_trainable, x)[:2]
            return ops.mean(self.loss(y, predicted)) / 2, non_trainable

        (loss, non_trainable), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, non_trainable)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        return {"loss": loss, "half": loss / 2}, (trainable, non_trainable, optimizer, metrics)


def padded_sequences() -> tuple[Any, Any, Any]:
    """Sequences whose last steps are left out, and labelled -1."""
    model = keras.Sequential([keras.Input((6, 5)), layers.Masking(), layers.SimpleRNN(4, return_sequences=True)])
    model.add(layers.Dense(3, activation="softmax"))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.stack([(part + 1) * TABLE for part in range(6)], axis=1)
    y = np.stack([(LABELS + part) % 3 for part in range(6)], axis=1)
    x[:, 4:], y[:, 4:] = 0, -1
    return model, x, y


def overridden_train_step() -> tuple[Any, Any, Any]:
    model = Halving()
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, TABLE, LABELS


MODELS = (
    *(convolutional, with_schedule_and_clipping, several_inputs_and_outputs, custom_loss_and_metric),
    *(padded_sequences, overridden_train_step),
)


@pytest.mark.parametrize(
    ("batch_size", "make"),
    [  # whole batches, a smaller last one, and fewer examples than a batch: two models show that these do not matter
        pytest.param(
            size, make, id=f"{size}-{make.__name__}", marks=[pytest.mark.slow] * (size != 36 and make in MODELS[2:])
        )
        for size in (16, 36, 200)
        for make in MODELS
    ],
)
def test_ends_with_the_weights_of_model_fit(make: Callable[[], tuple[Any, Any, Any]], batch_size: int) -> None:
    set_seed(1)
    theirs, x, y = make()
    expected = theirs.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    set_seed(1)
    ours, x, y = make()
    history = rudel.fit(ours, x, y, batch_size=batch_size, epochs=2, shuffle=False)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
    assert set(history.history) == set(expected.history)
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=2e-3, atol=1e-4)


def test_sample_weights_and_validation_are_those_of_keras(classifier: Any, blobs: Any) -> None:
    (x, y), weight = blobs, np.linspace(0, 2, 192).astype("float32")
    set_seed(1)
    theirs = classifier(weighted_metrics=["accuracy"])
    expected = theirs.fit(
        x, y, sample_weight=weight, batch_size=32, epochs=2, shuffle=False, verbose=0, validation_data=(x[:77], y[:77])
    )
    set_seed(1)
    ours = classifier(weighted_metrics=["accuracy"])
    history = rudel.fit(
        ours, x, y, sample_weight=weight, batch_size=32, epochs=2, shuffle=False, validation=(x[:77], y[:77])
    )
    assert history.history.keys() == expected.history.keys()
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-4, atol=1e-5)


def test_one_of_two_outputs_may_have_no_weights() -> None:
    def two() -> Any:
        set_seed(1)
        given = keras.Input((5,))
        model = keras.Model(given, [layers.Dense(1, name="one")(given), layers.Dense(2, name="two")(given)])
        model.compile("sgd", ["mse", "mse"])
        return model

    for weights in ([None, np.linspace(0, 2, 96, dtype="float32")], [np.linspace(0, 2, 96, dtype="float32"), None]):
        ours, theirs = two(), two()
        given = {"x": TABLE, "y": [TABLE[:, :1], TABLE[:, 1:3]], "sample_weight": weights, "shuffle": False}
        history, expected = rudel.fit(ours, **given).history, theirs.fit(**given, verbose=0).history
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=1e-5)
        for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_model_for_batches_of_one_size_is_asked_in_such_batches() -> None:
    def fixed() -> Any:
        set_seed(1)
        model = keras.Sequential([keras.Input(batch_shape=(16, 5, 1)), layers.SimpleRNN(4, stateful=True)])
        model.add(layers.Dense(1))
        model.compile("sgd", "mse")
        return model

    ours, theirs, x, y = fixed(), fixed(), TABLE[..., None], TABLE[:, :1]
    both = {"batch_size": 16, "shuffle": False, "validation_data": (x, y), "epochs": 2}
    history, expected = rudel.fit(ours, x, y, **both).history, theirs.fit(x, y, **both, verbose=0).history
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-4)
    theirs.set_weights(ours.get_weights())
    for model in (ours, theirs):
        model.layers[0].reset_states()
    assert rudel.evaluate(ours, x, y)["loss"] == pytest.approx(theirs.evaluate(x, y, 16, verbose=0), rel=1e-4)
    for model in (ours, theirs):
        model.layers[0].reset_states()
    np.testing.assert_allclose(rudel.predict(ours, x[:80]), theirs.predict(x[:80], 16, verbose=0), rtol=1e-3, atol=1e-5)
    assert rudel.predict(ours, x[:50]).shape == (50, 1)


@pytest.mark.parametrize("batch_size", [7, 32, 100])
def test_evaluation_counts_every_example_once(classifier: Any, blobs: Any, batch_size: int) -> None:
    x, y = blobs
    model = classifier()
    expected = model.evaluate(x[:101], y[:101], batch_size=batch_size, verbose=0, return_dict=True)
    found = rudel.evaluate(model, x[:101], y[:101], batch_size=batch_size)
    assert found == pytest.approx(expected, rel=1e-5)


class Seen(keras.metrics.Metric):
    """Counts examples, from its first training on."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(ops.cast(ops.shape(y)[0], "float32"))

    def result(self) -> Any:
        return self.count + 0

    def reset_state(self) -> None:
        pass


def test_metrics_reset_themselves_as_in_keras(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    (x, y), both = blobs, {"validation_data": (blobs[0][:50], blobs[1][:50]), "verbose": 0}
    expected = classifier(metrics=[Seen()]).fit(x, y, epochs=3, **both).history
    assert expected["seen"] == [192, 434, 676]
    found = rudel.fit(classifier(metrics=[Seen()]), x, y, epochs=3, **both).history
    rudel.fit(classifier(metrics=[Seen()]), x, y, epochs=2, run=tmp_path / "run", **both)
    resumed = rudel.fit(classifier(metrics=[Seen()]), x, y, epochs=3, run=tmp_path / "run", resume=True, **both).history
    for history in (found, resumed):
        assert {name: history[name] for name in ("seen", "val_seen")} == {
            name: expected[name] for name in ("seen", "val_seen")
        }


class Noisy(layers.Layer):
    """Adds noise, also outside of training, and counts its calls."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.generator = keras.random.SeedGenerator(3)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        return x + keras.random.normal(ops.shape(x), seed=self.generator)


def test_layers_with_a_state_continue_from_batch_to_batch_as_in_keras() -> None:
    x = np.zeros((50, 2), "float32")
    quiet: Any = 0  # the stubs of Keras want a text
    models = [keras.Sequential([keras.Input((2,)), Noisy()]) for _ in range(2)]
    for model in models:
        model.compile("sgd", "mse")
    found, expected = models
    np.testing.assert_allclose(
        rudel.predict(found, x, batch_size=10), expected.predict(x, batch_size=10, verbose=quiet), rtol=1e-5
    )
    loss = expected.evaluate(x, x, batch_size=8, verbose=quiet)
    assert rudel.evaluate(found, x, x, batch_size=8)["loss"] == pytest.approx(loss, rel=1e-5)
    assert [float(model.layers[0].calls) for model in models] == [12.0, 12.0]


def test_predicts_what_keras_predicts(classifier: Any, blobs: Any) -> None:
    model = classifier()
    np.testing.assert_allclose(
        rudel.predict(model, blobs[0], batch_size=50), model.predict(blobs[0], verbose=0), rtol=1e-5
    )


def test_what_a_validation_changes_stays_in_the_model_as_in_keras(tmp_path: Path) -> None:
    def fit(how: Any, epochs: int = 2, **given: Any) -> tuple[Any, Any]:
        set_seed(1)
        model = keras.Sequential([keras.Input((5,)), Noisy(), layers.Dense(1)])
        model.compile("sgd", "mse")
        x, y = TABLE, TABLE[:, :1]
        both = {"validation_data": (x, y), "validation_batch_size": 40, "shuffle": False, "verbose": 0}
        return how(model, x, y, epochs=epochs, **both, **given).history, model

    (found, ours), (expected, theirs) = fit(rudel.fit), fit(keras.Model.fit)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4)
    assert float(ours.layers[0].calls) == float(theirs.layers[0].calls) == 2 * (3 + 3)
    _, whole = fit(rudel.fit, run=tmp_path / "whole")
    fit(rudel.fit, epochs=1, run=tmp_path / "run")
    _, resumed = fit(rudel.fit, run=tmp_path / "run", resume=True)
    for one, other in zip(whole.variables, resumed.variables, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("kind", ["arrays", "stream", "source"])
def test_predicts_what_keras_predicts_of_a_model_that_computes_across_the_batch(kind: str, listed: Any) -> None:
    inputs = keras.Input((5,))
    model = keras.Model(inputs, layers.Dense(2)(inputs - ops.mean(inputs, axis=0, keepdims=True)))
    x = TABLE[:70]
    given = {"arrays": x, "stream": listed(x), "source": (x[i : i + 32] for i in range(0, 70, 32))}[kind]
    quiet: Any = 0  # the stubs of Keras want a text
    expected = model.predict(x, batch_size=32, verbose=quiet)
    np.testing.assert_allclose(rudel.predict(model, given, batch_size=32), expected, rtol=1e-5, atol=1e-6)


def test_predicts_all_rows_of_outputs_that_have_more_than_the_inputs() -> None:
    inputs: Any = keras.Input((5,))
    model = keras.Model(inputs, ops.reshape(layers.Dense(4)(inputs), (-1, 2)))
    expected = model.predict(TABLE, verbose=0)  # type: ignore[call-arg]
    np.testing.assert_allclose(rudel.predict(model, TABLE, batch_size=40), expected, rtol=1e-5, atol=1e-6)
    inputs = keras.Input(batch_shape=(40, 5))
    model = keras.Model(inputs, model(inputs))  # whose last batch is filled up
    np.testing.assert_allclose(rudel.predict(model, TABLE), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [None, 8])
def test_one_number_for_a_batch_is_learned_from_and_not_predicted(size: int | None) -> None:
    inputs: Any = keras.Input(batch_shape=(size, 5))
    model = keras.Model(inputs, ops.mean(layers.Dense(1)(inputs)))
    model.compile("sgd", lambda truth, outputs: outputs)
    assert np.isfinite(rudel.fit(model, TABLE, TABLE, batch_size=8).history["loss"]).all()
    with pytest.raises(DataError, match="one number for a whole batch"):
        rudel.predict(model, TABLE[:90])


def compared(truth: Any, outputs: Any) -> Any:
    """A loss that has the other examples of a batch as negatives, as those of two towers have."""
    every: Any = keras.ops.logsumexp(outputs @ keras.ops.transpose(outputs), axis=-1)
    return every - keras.ops.sum(outputs * truth, -1)


def centred(inputs: Any) -> Any:
    return inputs - keras.ops.mean(inputs, axis=0, keepdims=True)


class Centred(keras.Layer):
    def call(self, inputs: Any) -> Any:
        return centred(inputs)


@pytest.mark.parametrize("between", [Centred(), centred, layers.Activation(centred), layers.Dense(4, centred), None])
def test_evaluates_and_predicts_in_keras_batches_where_examples_may_be_compared(between: Any) -> None:
    x: Any = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    inputs: Any = keras.Input((4,))
    middle: Any = layers.Dense(4)(inputs)
    model = keras.Model(inputs, between(middle) if between else middle)
    wrapped = keras.metrics.MeanMetricWrapper(lambda truth, outputs: centred(outputs) ** 2, "mean")
    model.compile("sgd", "mse" if between else compared, metrics=[] if between else [wrapped])
    quiet: Any = 0  # the stubs of Keras want a text
    expected: Any = model.evaluate(x, x, verbose=quiet, return_dict=True)
    assert rudel.evaluate(model, x, x) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(rudel.predict(model, x), model.predict(x, verbose=quiet), rtol=1e-5, atol=1e-6)
    fitted = rudel.fit(model, x, x, batch_size=16, validation_data=(x, x))
    expected = model.evaluate(x, x, batch_size=16, verbose=quiet, return_dict=True)
    assert fitted.history["val_loss"] == [pytest.approx(expected["loss"], rel=1e-5)]


@pytest.mark.parametrize(
    ("loss", "metric", "first"),
    [
        ("dice", "mae", layers.Identity()),
        (keras.losses.MeanSquaredError("sum"), "mae", layers.Identity()),
        (keras.losses.MeanSquaredError("mean_with_sample_weight"), "mae", layers.Identity()),
        ("mse", keras.losses.tversky, layers.Identity()),
        ("mse", "mae", layers.Masking()),
    ],
)
def test_evaluates_in_keras_batches_where_a_loss_is_no_mean_over_examples(loss: Any, metric: Any, first: Any) -> None:
    x: Any = np.random.default_rng(0).uniform(size=(100, 4, 1)).astype("float32")
    x[:40, 1:] = 0
    model = keras.Sequential([keras.Input((4, 1)), first, layers.Dense(1, "sigmoid")])
    model.compile("sgd", loss, metrics=[metric])
    weights = np.linspace(0, 1, 400).reshape(100, 4)
    quiet: Any = 0  # the stubs of Keras want a text
    expected: Any = model.evaluate(x, x, sample_weight=weights, verbose=quiet, return_dict=True)
    assert rudel.evaluate(model, x, x, sample_weight=weights) == pytest.approx(expected, rel=1e-5)


def test_what_computes_each_element_by_itself_is_predicted_in_large_batches() -> None:
    inputs: Any = keras.Input((4,))
    scaled = inputs / 2.0
    plain = keras.Model(inputs, layers.Dense(4)(scaled) + keras.ops.relu(scaled))
    assert batch_size_of(plain, None) == 256
    means: Any = keras.ops.mean(inputs, axis=-1)
    mixed = keras.Model(inputs, keras.ops.expand_dims(means, 1) + means)
    assert (batch_size_of(mixed, None), batch_size_of(mixed, None, 8), batch_size_of(mixed, 7)) == (32, 8, 7)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_learns_and_scales_its_loss(blobs: Any, policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    finally:
        keras.config.set_dtype_policy("float32")
    history = rudel.fit(model, *blobs, epochs=8)
    assert history.history["accuracy"][-1] > 0.95
    if policy == "mixed_float16":
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        assert float(model.optimizer.dynamic_scale) > 1


def test_a_second_training_goes_on_with_the_loss_scale(classifier: Any, blobs: Any, tmp_path: Path) -> None:
    model = classifier(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)))
    rudel.fit(model, *blobs, run=tmp_path / "run")
    count = len(model.optimizer.variables)
    model.optimizer.dynamic_scale.assign(128.0)
    rudel.evaluate(model, *blobs)
    rudel.fit(model, *blobs)
    assert float(model.optimizer.dynamic_scale) == 128
    assert len(model.optimizer.variables) == count
    assert len(rudel.fit(model, *blobs, epochs=2, run=tmp_path / "run", resume=True).history["loss"]) == 2


def test_overflowing_float16_gradients_are_skipped_not_fatal(blobs: Any) -> None:
    x, y = blobs
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**30)
        model.compile(optimizer=scaled, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    finally:
        keras.config.set_dtype_policy("float32")
    rudel.fit(model, x, y, epochs=20)
    assert float(scaled.dynamic_scale) < 2.0**30
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_uint8_stays_uint8_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Looking(layers.Layer):
        def call(self, x: Any) -> Any:
            seen.append(str(x.dtype))
            return ops.cast(x, "float32") / 255

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.look, self.flat, self.dense = Looking(), layers.Flatten(), layers.Dense(4)

        def call(self, x: Any) -> Any:
            return self.dense(self.flat(self.look(x)))

    model = Net()
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rudel.fit(model, PICTURES, LABELS)
    assert set(seen) == {"uint8"}
