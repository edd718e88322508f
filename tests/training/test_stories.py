"""What people bring: the code of public tutorials, with `rudel.fit(model, ` in the place of `model.fit(`."""

# Keras' annotations want other types than its tutorials give:
# pyright: reportArgumentType=false, reportAssignmentType=false, reportOptionalMemberAccess=false

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from distributed import Client, LocalCluster
from keras import layers

import rudel
from rudel.backend import set_seed
from rudel.errors import OptionError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (256, 12, 12), dtype=np.uint8)
LABELS = (IMAGES[:, :6].mean((1, 2)) > IMAGES[:, 6:].mean((1, 2))).astype("uint8")
TABLE = RANDOM.normal(size=(300, 9)).astype("float32")
PRICES = TABLE @ np.arange(9, dtype="float32") + 3
WORDS = RANDOM.integers(1, 100, (240, 20))
GOOD = (WORDS < 40).sum(1) > 8


@pytest.fixture(autouse=True)
def _seeded() -> None:
    set_seed(1)


def test_the_first_tutorial_with_logits_and_probabilities() -> None:
    model = keras.Sequential(
        [layers.Input((12, 12)), layers.Flatten(), layers.Dense(32, "relu"), layers.Dropout(0.2), layers.Dense(2)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    rudel.fit(model, IMAGES / 255.0, LABELS, epochs=25)
    assert model.evaluate(IMAGES / 255.0, LABELS, verbose=0)[1] > 0.8
    probabilities = keras.Sequential([model, layers.Softmax()]).predict(IMAGES[:3] / 255.0, verbose=0)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_a_convolutional_network_with_validation_data() -> None:
    model = keras.Sequential()
    model.add(layers.Input((12, 12, 1)))
    model.add(layers.Conv2D(8, (3, 3), activation="relu"))
    model.add(layers.MaxPooling2D((2, 2)))
    model.add(layers.Flatten())
    model.add(layers.Dense(2, activation="softmax"))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = IMAGES[..., None].astype("float32") / 255
    history = rudel.fit(model, x[:200], LABELS[:200], epochs=3, validation_data=(x[200:], LABELS[200:]))
    assert set(history.history) == {"accuracy", "loss", "val_accuracy", "val_loss"}
    assert history.epoch == [0, 1, 2]


def test_regression_with_a_normalisation_layer_and_a_validation_split() -> None:
    normalise = layers.Normalization(axis=-1)
    normalise.adapt(TABLE)
    model = keras.Sequential([normalise, layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.1), loss="mean_absolute_error")
    history = rudel.fit(model, TABLE, PRICES, epochs=60, verbose=0, validation_split=0.2)
    assert history.history["val_loss"][-1] < 0.2 * history.history["val_loss"][0]


def test_reviews_with_an_embedding_and_one_sigmoid() -> None:
    model = keras.Sequential(
        [layers.Embedding(100, 16), layers.Dropout(0.2), layers.GlobalAveragePooling1D(), layers.Dense(1, "sigmoid")]
    )
    metric = keras.metrics.BinaryAccuracy(threshold=0.5)
    model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(0.03), metrics=[metric])
    history = rudel.fit(model, WORDS, GOOD, epochs=15)
    assert history.history["binary_accuracy"][-1] > 0.8


def test_early_stopping_and_a_schedule() -> None:
    schedule = keras.optimizers.schedules.InverseTimeDecay(0.1, decay_steps=80, decay_rate=1, staircase=False)
    model = keras.Sequential([layers.Input((9,)), layers.Dense(16, "elu"), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(schedule), loss="mse")
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)
    noise = RANDOM.normal(size=300)
    history = rudel.fit(model, TABLE, noise, validation_split=0.3, epochs=100, callbacks=stop, verbose=0)
    assert len(history.epoch) < 100


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # as with Keras' own fit
def test_checkpoints_of_weights(tmp_path: Path) -> None:
    def create_model() -> Any:
        model = keras.Sequential([layers.Input((9,)), layers.Dense(8, "relu"), layers.Dense(1)])
        model.compile("adam", "mse")
        return model

    path = tmp_path / "training_1" / "cp.weights.h5"
    path.parent.mkdir()
    callback = keras.callbacks.ModelCheckpoint(filepath=str(path), save_weights_only=True, verbose=0)
    model = create_model()
    rudel.fit(model, TABLE, PRICES, epochs=2, validation_data=(TABLE, PRICES), callbacks=[callback])
    other = create_model()
    other.load_weights(path)
    assert other.evaluate(TABLE, PRICES, verbose=0) == pytest.approx(model.evaluate(TABLE, PRICES, verbose=0))


class Crash(keras.callbacks.Callback):
    """The power fails in the third epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise RuntimeError("out of power")


def trained(*callbacks: Any) -> Any:
    set_seed(3)
    model = keras.Sequential([layers.Input((9,)), layers.Dense(8, "relu"), layers.Dense(1)])
    model.compile("adam", "mse")
    return model, rudel.fit(model, TABLE, PRICES, epochs=4, callbacks=list(callbacks), verbose=0)


@pytest.mark.parametrize("every", ["epoch", 13])
def test_a_backup_is_restored_after_a_crash(tmp_path: Path, every: Any) -> None:
    whole, history = trained()
    with pytest.raises(RuntimeError, match="out of power"):
        trained(keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=every), Crash())
    assert (tmp_path / "backup").is_dir()
    restored, rest = trained(keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=every))
    assert not (tmp_path / "backup").exists()
    if every == "epoch":
        assert rest.epoch == [2, 3]
        assert rest.history["loss"] == history.history["loss"][2:]
        np.testing.assert_array_equal(restored.get_weights()[0], whole.get_weights()[0])
    else:
        assert rest.epoch == [1, 2, 3]


def test_imbalanced_data_with_class_weights_and_many_metrics() -> None:
    rare = (TABLE[:, 0] > 1.2).astype("int32")
    bias = keras.initializers.Constant(np.log(rare.sum() / (1 - rare).sum()))
    model = keras.Sequential([layers.Input((9,)), layers.Dense(1, activation="sigmoid", bias_initializer=bias)])
    metrics = [keras.metrics.TruePositives(name="tp"), keras.metrics.AUC(name="prc", curve="PR")]
    model.compile(keras.optimizers.Adam(0.05), keras.losses.BinaryCrossentropy(), metrics=metrics)
    weights = {0: 0.5, 1: 5.0}
    history = rudel.fit(model, TABLE, rare, batch_size=64, epochs=30, class_weight=weights)
    assert history.history["tp"][-1] > 0.9 * rare.sum()


def test_transfer_learning_and_fine_tuning() -> None:
    base = keras.Sequential([layers.Input((12, 12, 1)), layers.Conv2D(4, 3), layers.BatchNormalization()])
    base.trainable = False
    inputs = keras.Input((12, 12, 1))
    x = layers.Rescaling(1 / 127.5, offset=-1)(layers.RandomFlip("horizontal")(inputs))
    model = keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(base(x, training=False))))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    kernel = np.array(base.layers[0].kernel)
    rudel.fit(model, IMAGES[..., None], LABELS, epochs=1)
    np.testing.assert_array_equal(kernel, np.array(base.layers[0].kernel))
    base.trainable = True
    model.compile(keras.optimizers.RMSprop(1e-4), loss, metrics=["accuracy"])
    rudel.fit(model, IMAGES[..., None], LABELS, epochs=1)
    assert not np.array_equal(kernel, np.array(base.layers[0].kernel))


def test_windows_of_a_time_series_with_an_lstm() -> None:
    series = np.sin(np.arange(400) / 7).astype("float32")
    x = np.stack([series[i : i + 24] for i in range(370)])[..., None]
    model = keras.Sequential([layers.LSTM(16), layers.Dense(1)])
    model.compile(loss=keras.losses.MeanSquaredError(), optimizer=keras.optimizers.Adam(0.01), metrics=["mae"])
    rudel.fit(model, x, series[24:394], epochs=8, verbose=0)
    assert model.evaluate(x, series[24:394], verbose=0, return_dict=True)["mae"] < 0.2


def test_several_inputs_and_outputs_by_name() -> None:
    title, tags = keras.Input((20,), dtype="int32", name="title"), keras.Input((9,), name="tags")
    x = layers.Concatenate()([layers.GlobalAveragePooling1D()(layers.Embedding(100, 8)(title)), tags])
    outputs = [layers.Dense(1, name="priority")(x), layers.Dense(2, name="department")(x)]
    model = keras.Model([title, tags], outputs)
    losses = {"priority": "mse", "department": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    model.compile("rmsprop", losses, loss_weights={"priority": 1.0, "department": 0.2})
    history = rudel.fit(
        model, {"title": WORDS, "tags": TABLE[:240]},
        {"priority": PRICES[:240], "department": GOOD.astype("int32")}, epochs=3, batch_size=32,
    )  # fmt: skip
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert "priority_loss" in history.history


class CustomModel(keras.Model):
    """Keras' guide to steps of one's own in JAX."""

    def compute_loss_and_updates(self, trainable: Any, others: Any, x: Any, y: Any) -> Any:
        y_pred, others = self.stateless_call(trainable, others, x, training=True)
        return self.compute_loss(x, y, y_pred), (y_pred, others)

    def train_step(self, state: Any, data: Any) -> Any:
        trainable, others, slots, metrics = state
        gradient = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        (loss, (y_pred, others)), grads = gradient(trainable, others, *data)
        trainable, slots = self.optimizer.stateless_apply(slots, grads, trainable)
        logs, new_metrics = {}, []
        for metric in self.metrics:
            values = metrics[len(new_metrics) : len(new_metrics) + len(metric.variables)]
            seen = (loss,) if metric.name == "loss" else (data[1], y_pred)
            values = metric.stateless_update_state(values, *seen)
            logs[metric.name] = metric.stateless_result(values)
            new_metrics += values
        return logs, (trainable, others, slots, new_metrics)


def test_a_train_step_of_ones_own() -> None:
    inputs = keras.Input((9,))
    model = CustomModel(inputs, layers.Dense(1)(inputs))
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
    history = rudel.fit(model, TABLE, PRICES, epochs=20)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]


def test_callbacks_of_tutorials(tmp_path: Path) -> None:
    rates: list[float] = []

    class PrintLR(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            optimizer: Any = self.model.optimizer
            rates.append(float(np.asarray(optimizer.learning_rate)))

    model = keras.Sequential([layers.Input((9,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    decay = keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 if epoch < 2 else 1e-4)
    file = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    rudel.fit(model, TABLE, PRICES, epochs=3, callbacks=[decay, PrintLR(), file], verbose=0)
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4])
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4


class Batches(keras.utils.PyDataset):
    """Batches by number."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> Any:
        rows = slice(number * 30, number * 30 + 30)
        return TABLE[rows], PRICES[rows]


class Again:
    """An iterable of batches that begins again, as a PyTorch DataLoader is."""

    def __iter__(self) -> Any:
        return iter([(TABLE[i : i + 30], PRICES[i : i + 30]) for i in range(0, 300, 30)])


@contextlib.contextmanager
def two_hosts() -> Iterator[Client]:
    """A client of two workers in this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as made,
        Client(made) as client,
    ):
        yield client


def linear() -> Any:
    model = keras.Sequential([layers.Input((9,)), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    return model


def generator() -> Any:
    return (batch for _ in range(20) for batch in Again())


@pytest.mark.parametrize("source", [Batches, Again, generator])
def test_sources_of_data(source: Any) -> None:
    steps = {"steps_per_epoch": 10} if source is generator else {}
    losses = rudel.fit(linear(), source(), epochs=15, verbose=0, **steps).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_sources_of_data_on_two_hosts() -> None:
    with two_hosts() as client:
        for source in (Batches, Again):
            losses = rudel.fit(linear(), source(), epochs=15, client=client, verbose=0).history["loss"]
            assert losses[-1] < 0.7 * losses[0]
        with pytest.raises(OptionError, match="one pass of a generator into memory"):
            rudel.fit(linear(), generator(), steps_per_epoch=10, client=client, verbose=0)


def test_low_rank_adapters_on_two_hosts() -> None:
    tokens = keras.Input((20,), dtype="int32")
    x = layers.Embedding(100, 16)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    model = keras.Model(tokens, layers.Dense(1, "sigmoid")(layers.GlobalAveragePooling1D()(x)))
    embedding = model.layers[1]
    embedding.enable_lora(4)
    model.compile(keras.optimizers.Adam(0.03), "binary_crossentropy")
    before = np.array(embedding._embeddings)
    with two_hosts() as client:
        losses = rudel.fit(model, WORDS, GOOD, epochs=12, client=client, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_array_equal(np.array(embedding._embeddings), before)
    assert not np.array_equal(np.array(embedding.embeddings), before)


def test_an_autoencoder_that_removes_noise() -> None:
    inputs = keras.Input((12, 12, 1))
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(x)
    autoencoder = keras.Model(inputs, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))
    autoencoder.compile(keras.optimizers.Adam(0.01), loss="binary_crossentropy")
    clean = np.repeat(LABELS, 144).reshape(-1, 12, 12, 1).astype("float32")
    noisy = np.clip(clean + 0.4 * RANDOM.normal(size=clean.shape), 0, 1)
    history = rudel.fit(autoencoder, x=noisy, y=clean, epochs=4, batch_size=64, validation_data=(noisy, clean))
    assert history.history["val_loss"][-1] < 0.5 * history.history["val_loss"][0]


def test_the_best_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((9,)), layers.Dense(16, "relu"), layers.Dropout(0.1), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best_model.keras", save_best_only=True, monitor="val_loss"),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=2, min_lr=0.0001),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, verbose=1),
    ]
    noise = RANDOM.normal(size=300)
    history = rudel.fit(model, TABLE, noise, epochs=60, callbacks=callbacks, validation_split=0.2, verbose=0)
    assert len(history.epoch) < 60
    best: Any = keras.models.load_model(tmp_path / "best_model.keras")
    assert best.evaluate(TABLE[240:], noise[240:], verbose=0)[0] == pytest.approx(min(history.history["val_loss"]))


def test_stories_are_under_twenty_lines() -> None:
    stories = [node for node in ast.parse(Path(__file__).read_text()).body if isinstance(node, ast.FunctionDef)]
    lengths = {story.name: (story.end_lineno or 0) - story.lineno for story in stories}
    assert {name: lines for name, lines in lengths.items() if lines >= 20} == {}
