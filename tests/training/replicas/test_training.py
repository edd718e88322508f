"""What `rudel.fit` promises on one computer holds on several."""

import asyncio
import dataclasses
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from training.replicas.replica_jobs import KINDS, SHORT, TABLE, with_schedule

import rudel
from rudel.backend import set_seed
from rudel.errors import ClusterError, ModelError, NonFiniteError, OptionError
from rudel.loop.model_state import ModelState
from rudel.replicas import coordinator
from rudel.replicas.asynchronous import arrival_leader as arrivals
from rudel.replicas.asynchronous.async_options import Async
from rudel.replicas.diloco import round_leader as rounds
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.replicas.host_checks import check_memory, check_versions
from rudel.replicas.round_lengths import Speeds
from rudel.shipping.host_packages import VERSIONED

layers, ops = keras.layers, keras.ops
random = np.random.default_rng(3)
PICTURES = random.integers(0, 256, (512, 12, 12, 1)).astype("uint8")


class Halving(keras.Model):
    """Overrides `train_step`: trains on half the loss, and logs something of its own. Workers have no such class."""

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
        logs = {"loss": loss, "parts": {"half": loss / 2, "each": [loss, loss / 3]}}
        return logs, (trainable, non_trainable, optimizer, metrics)


def overridden_train_step() -> tuple[Any, Any, Any]:
    model = Halving()
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, TABLE, KINDS


def pictures() -> tuple[Any, Any, Any]:
    model = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, strides=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model, PICTURES, KINDS


def several_inputs_and_outputs() -> tuple[Any, Any, Any]:
    picture, table = keras.Input((12, 12, 1), name="picture"), keras.Input((5,), name="table")
    joined = layers.Concatenate()([layers.Flatten()(layers.Rescaling(1 / 255)(picture)), table])
    kind = layers.Dense(4, activation="softmax", name="kind")(joined)
    total = layers.Dense(1, name="total")(joined)
    model = keras.Model({"picture": picture, "table": table}, {"kind": kind, "total": total})
    losses = {"kind": "sparse_categorical_crossentropy", "total": "mse"}
    model.compile(optimizer="sgd", loss=losses, metrics={"kind": ["accuracy"], "total": ["mae"]})
    return model, {"picture": PICTURES, "table": TABLE}, {"kind": KINDS, "total": TABLE.sum(1, keepdims=True)}


def mixed_float16() -> tuple[Any, Any, Any]:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model, _, _ = with_schedule()
    finally:
        keras.config.set_dtype_policy(policy)
    return model, TABLE, KINDS


@pytest.mark.parametrize(
    "make",
    [overridden_train_step, pictures, several_inputs_and_outputs, mixed_float16, with_schedule],
    ids=lambda f: f.__name__,
)
def test_trains_what_one_computer_trains_and_tells_the_same(
    crew: Any, make: Callable[[], tuple[Any, Any, Any]]
) -> None:
    model, x, y = make()
    weight = np.linspace(0, 2, 512).astype("float32") if not isinstance(model, Halving) else None
    settings = {"epochs": 20, "batch_size": 16, "sample_weight": weight, "validation": None if weight is None else 0.25}
    found = rudel.fit(model, x, y, client=crew.client, strategy=SHORT, **settings)
    set_seed(7)
    alone = rudel.fit(make()[0], x, y, **settings)
    assert set(found.history) == set(alone.history)
    for values in found.history.values():
        assert np.all(np.isfinite(values))
        assert len(values) == len(found.epoch)
    assert found.history["loss"][-1] < 0.95 * found.history["loss"][0]
    assert found.epoch[-1] == 19


@pytest.mark.parametrize(("hosts", "tolerance"), [("a", 1e-5), ("ab", 0.1)], ids=["one", "two"])
def test_metrics_of_an_epoch_are_those_of_its_examples(crew: Any, hosts: str, tolerance: float) -> None:
    """One host passes over each example once in an epoch. Two with steps of some microseconds share them unevenly.

    The examples differ little, therefore: nine of ten labels are what the model predicts.
    """
    model, x, _ = with_schedule()
    model.compile(keras.optimizers.SGD(0.0), model.loss, metrics=["accuracy"])
    y = (model.predict(x, verbose=0).argmax(1) + (np.arange(len(x)) % 10 == 0)) % 4
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    crew.only(*hosts)
    history = rudel.fit(model, x, y, epochs=4, batch_size=16, validation=(x, y), client=crew.client, strategy=SHORT)
    for name, value in expected.items():
        np.testing.assert_allclose(history.history[name], value, rtol=tolerance)
        np.testing.assert_allclose(history.history[f"val_{name}"], value, rtol=1e-5)


def test_what_is_validated_is_what_comes_out(crew: Any) -> None:
    model, x, y = pictures()
    history = rudel.fit(model, x, y, epochs=6, batch_size=16, validation=(x, y), client=crew.client, strategy=SHORT)
    result = model.evaluate(x, y, verbose=0, return_dict=True)
    for name, value in result.items():
        assert history.history[f"val_{name}"][-1] == pytest.approx(value, rel=1e-4)
    assert any(np.any(variable.numpy() != 0) for variable in model.non_trainable_variables if "mean" in variable.path)


def test_the_run_says_who_did_what(crew: Any, tmp_path: Path, read_log: Any) -> None:
    model, x, y = with_schedule()
    rudel.fit(model, x, y, epochs=5, validation=0.2, client=crew.client, run=tmp_path, strategy=SHORT)
    summary = json.loads((tmp_path / "summary.json").read_text())
    rounds = read_log(tmp_path).rounds
    assert summary["strategy"] == "diloco"
    assert summary["hosts"] == ["a", "b"]
    assert summary["samples"] == 5 * math.ceil(410 / 32) * 32
    assert summary["rounds"] == len(rounds)
    assert (summary["workers_lost"], summary["workers_joined"]) == (0, 0)
    assert summary["bytes_sent"] == rounds[-1]["sent"] > 0
    assert summary["bytes_received"] == rounds[-1]["received"] > 0
    assert summary["train_seconds"] == pytest.approx(rounds[-1]["seconds"], abs=0.01)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == sorted({record["step"] for record in records})
    assert [record["seconds"] for record in records] == sorted(record["seconds"] for record in records)
    assert all("val_accuracy" in record for record in records)
    assert rudel.load(tmp_path).predict(x, verbose=0).tobytes() == model.predict(x, verbose=0).tobytes()


# -- callbacks ----------------------------------------------------------------------------------------------------


def test_a_callback_sets_the_learning_rate_of_the_replicas_from_the_first_step(crew: Any) -> None:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(4)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.get_weights()
    still = keras.callbacks.LearningRateScheduler(lambda epoch: 0.0)
    rudel.fit(model, TABLE, KINDS, epochs=3, client=crew.client, callbacks=[still], strategy=SHORT)
    for now, then in zip(model.get_weights(), before, strict=True):
        assert np.array_equal(now, then)


def test_early_stopping_ends_the_training_with_the_best_weights(crew: Any, tmp_path: Path) -> None:
    model, x, y = with_schedule()
    stop = keras.callbacks.EarlyStopping("loss", patience=2, min_delta=100, restore_best_weights=True)
    seen = []
    tell = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    settings = {"client": crew.client, "callbacks": [stop, tell], "run": tmp_path, "strategy": SHORT}
    history = rudel.fit(model, x, y, epochs=10_000, batch_size=16, **settings)
    assert len(history.epoch) == 3
    assert seen == history.epoch
    assert json.loads((tmp_path / "summary.json").read_text())["samples"] < 512 * 20


def test_weights_that_a_callback_changes_are_refused(crew: Any) -> None:
    class Clip(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            assert self.model
            self.model.set_weights([0 * weights for weights in self.model.get_weights()])

    model, x, y = with_schedule()
    with pytest.raises(ModelError, match=r"The callback `Clip` has changed the weights of the model, which hosts do"):
        rudel.fit(model, x, y, epochs=3, client=crew.client, callbacks=[Clip()], strategy=SHORT)


def test_an_error_in_a_callback_ends_the_training(crew: Any) -> None:
    def fail(epoch: int, logs: Any) -> None:
        raise RuntimeError("no more")

    model, x, y = with_schedule()
    failing = keras.callbacks.LambdaCallback(on_epoch_end=fail)
    with pytest.raises(RuntimeError, match="no more"):
        rudel.fit(model, x, y, epochs=100_000, client=crew.client, callbacks=[failing], strategy=SHORT)
    rudel.fit(*with_schedule(), epochs=2, client=crew.client)


# -- what goes over the network -----------------------------------------------------------------------------------


def cached(folder: Path) -> dict[str, int]:
    """Name and inode of every piece in the cache of the workers; a piece that is written anew has another one."""
    return {path.name: path.stat().st_ino for path in folder.glob("cache/pieces/*")}


def test_a_second_run_ships_no_data(crew: Any) -> None:
    x = random.normal(size=(512, 5)).astype("float32")
    before = set(cached(crew.folder))
    rudel.fit(with_schedule()[0], x, KINDS, epochs=1, client=crew.client)
    shipped = cached(crew.folder)
    assert len(set(shipped) - before) == 32
    rudel.fit(with_schedule()[0], x, KINDS, epochs=1, client=crew.client)
    assert cached(crew.folder) == shipped


def test_a_damaged_piece_is_fetched_anew(crew: Any) -> None:
    x, y = np.eye(64, dtype="float32").repeat(4, axis=0), np.arange(256, dtype="int32") // 4
    before = set(cached(crew.folder))

    def train(steps: int) -> Any:
        model = keras.Sequential([keras.Input((64,)), layers.Dense(64)])
        model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        rudel.fit(model, x, y, steps=steps, client=crew.client)
        return model

    train(1)
    for name in set(cached(crew.folder)) - before:
        (crew.folder / "cache" / "pieces" / name).write_bytes(b"rubbish")
    assert np.array_equal(train(1500).predict(x, verbose=0).argmax(1), y)


def test_a_cache_that_is_smaller_than_the_data_does_no_harm(crew: Any) -> None:
    def limit(size: float) -> None:
        from rudel.shipping import pieces

        pieces.LARGEST_CACHE = int(size)  # type: ignore[misc]

    crew.only("a")
    crew.client.run(limit, 300)
    try:
        x = random.normal(size=(512, 5)).astype("float32")
        rudel.fit(with_schedule()[0], x, KINDS, epochs=2, client=crew.client)
    finally:
        crew.client.run(limit, 4 * 2**30)


def test_a_cache_that_cannot_be_written_is_told(crew: Any) -> None:
    def move(folder: str) -> None:
        os.environ["RUDEL_CACHE"] = folder

    crew.client.run(move, "/proc/nowhere")
    try:
        x = random.normal(size=(512, 5)).astype("float32")
        with pytest.raises(ClusterError, match=r"cannot keep data in /proc/nowhere \(.*\): make room there"):
            rudel.fit(with_schedule()[0], x, KINDS, epochs=2, client=crew.client)
    finally:
        crew.client.run(move, str(crew.folder / "cache"))


def test_frozen_weights_stay_where_they_are(crew: Any, tmp_path: Path) -> None:
    frozen = layers.Dense(2000)
    model = keras.Sequential([keras.Input((100,)), frozen, layers.BatchNormalization(), layers.Dense(4)])
    frozen.trainable = False
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = random.normal(size=(512, 100)).astype("float32")
    before = frozen.get_weights()
    rudel.fit(model, x, KINDS, epochs=4, client=crew.client, run=tmp_path, strategy=SHORT)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert all(np.array_equal(a, b) for a, b in zip(frozen.get_weights(), before, strict=True))
    a_round = (summary["bytes_sent"] + summary["bytes_received"]) / summary["rounds"]
    assert a_round < 4 * sum(weights.nbytes for weights in model.get_weights()[2:])


@pytest.mark.parametrize("strategy", [SHORT, Async(steps_between=8)], ids=["diloco", "async"])
def test_a_model_with_nothing_to_train_is_refused(strategy: Any, crew: Any) -> None:
    model, x, y = with_schedule()
    model.trainable = False
    model.compile("sgd", model.loss)
    with pytest.raises(ModelError, match="has no trainable weights, which hosts merge"):
        rudel.fit(model, x, y, client=crew.client, strategy=strategy)


@pytest.mark.parametrize(("strategy", "lag"), [(SHORT, 0.25), (Async(steps_between=8), 0.75)], ids=["diloco", "async"])
def test_moving_statistics_keep_pace_with_those_of_one_computer(strategy: Any, lag: float, crew: Any) -> None:
    model = keras.Sequential([keras.Input((1,)), layers.BatchNormalization(momentum=0.95), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.full((512, 1), 3.0, "float32")
    rudel.fit(model, x, x, batch_size=8, epochs=1, client=crew.client, strategy=strategy)
    assert model.layers[0].moving_mean[0] == pytest.approx(3 * (1 - 0.95**64), abs=lag)


@pytest.mark.parametrize("strategy", [SHORT, Async(steps_between=8)], ids=["diloco", "async"])
def test_masks_stay_as_they_are_and_counts_come_back(crew: Any, strategy: Any) -> None:
    low = np.array([0, 0, -1e9, -np.inf, np.finfo("float32").min], "float32")

    class Masked(layers.Layer):
        def build(self, shape: Any) -> None:
            fixed = {"trainable": False, "shape": (5,), "initializer": lambda shape, dtype: low}
            self.mask = self.add_weight(name="mask", **fixed)
            begun = {"trainable": False, "shape": (), "initializer": "zeros"}
            self.count = self.add_weight(name="count", dtype="int32", **begun)
            self.small = self.add_weight(name="small", dtype="uint8", **begun)
            self.seen = self.add_weight(name="seen", dtype="bool", **begun)

        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                self.count.assign(self.count + 1)
                self.small.assign(self.small + 1)
                self.seen.assign(ops.ones((), "bool"))
            return x + self.mask

    masked = Masked()
    model = keras.Sequential([keras.Input((5,)), layers.Dense(5), masked, layers.Softmax()])
    model.compile("adam", "sparse_categorical_crossentropy")
    rudel.fit(model, TABLE, KINDS % 2, steps=100, batch_size=16, client=crew.client, strategy=strategy)
    np.testing.assert_array_equal(masked.mask, low)
    assert 50 <= int(masked.count.numpy()) <= 100
    assert int(masked.small.numpy()) == int(masked.count.numpy())
    assert bool(masked.seen.numpy())
    assert [masked.small.dtype, masked.seen.dtype] == ["uint8", "bool"]


@pytest.mark.parametrize(
    ("optimizer", "outer", "codec"),
    [("adam", "nesterov:1.25:0.29", "top8"), ("sgd", "nesterov:1.25:0.29", "top8"), (None, "nesterov:1:0", "int8")],
    ids=["Adam", "SGD", "SGD with momentum"],
)
def test_changes_of_sgd_with_momentum_are_averaged_and_travel_in_full(
    optimizer: str | None, outer: str, codec: str, crew: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Speeds(0.01, 0.002, 3e4, 1e8, round_trip=0.003, slowest_seconds=0.01, weights=3e5, worth=2)
    monkeypatch.setattr(coordinator, "Speeds", lambda *found: measured)
    monkeypatch.setattr(coordinator.Coordinator, "_holding_up", lambda self: [])  # other work may hold one up here
    model = keras.Sequential([keras.Input((5,)), layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(0.01, momentum=0.9), loss)
    rudel.fit(model, TABLE, KINDS, epochs=1, client=crew.client, run=tmp_path)
    options = json.loads((tmp_path / "summary.json").read_text())["strategy_options"]
    assert (options["outer"], options["delta_codec"], options["merge_codec"]) == (outer, codec, codec)


def test_workers_are_left_as_they_were(crew: Any) -> None:
    rudel.fit(*with_schedule(), epochs=1, client=crew.client)
    assert not any(crew.client.run(lambda dask_worker: any("rudel" in name for name in dask_worker.handlers)).values())
    assert crew.client.submit(sum, [1, 2]).result() == 3


# -- what cannot be ---------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_is_told_and_the_next_training_is_well(crew: Any) -> None:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e30), "mse")
    with pytest.raises(NonFiniteError, match=r"The loss became NaN or infinite on [ab], in round 1, local step \d"):
        rudel.fit(model, TABLE, TABLE[:, :1], epochs=10, client=crew.client)
    rudel.fit(*with_schedule(), epochs=2, client=crew.client)


@pytest.mark.parametrize("strategy", ["diloco", "async", "mesh"])
def test_an_index_beyond_a_table_that_cannot_be_followed_is_named(crew: Any, strategy: str) -> None:
    x = keras.Input((4,), dtype="int32")
    looked_up = layers.Embedding(10, 2, name="table")(keras.ops.mod(x, 20))
    model = keras.Model(x, layers.Dense(1)(layers.Flatten()(looked_up)))
    model.compile("sgd", "mse")
    words = np.full((64, 4), 17, np.int32)
    found = "an input holds 17, and the longest table of the model, `table`, takes 0 to 9, which makes NaN of other"
    with pytest.raises(NonFiniteError, match=found) as error:
        rudel.fit(model, words, np.zeros(64), epochs=2, batch_size=4, client=crew.client, strategy=strategy)
    assert "learning rate" not in str(error.value)


@pytest.mark.parametrize("strategy", [SHORT, Async(steps_between=8)], ids=["diloco", "async"])
def test_the_average_of_the_weights_takes_their_place_at_the_end(crew: Any, tmp_path: Path, strategy: Any) -> None:
    model, x, y = with_schedule()
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), model.loss)
    fit = rudel.fit(
        model, x, y, validation=(x, y), steps=200, eval_every=100, client=crew.client, run=tmp_path, strategy=strategy,
        callbacks=[keras.callbacks.SwapEMAWeights()],
    )  # fmt: skip
    (*_, checkpoint) = sorted((tmp_path / "checkpoints").glob("*.npz"))
    kept = np.load(checkpoint)
    weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
    np.testing.assert_array_equal(weights, kept["average/0"])
    assert np.abs(weights - kept["weights/0"]).max() > 1e-5
    assert fit.history["val_loss"][-1] == pytest.approx(np.ravel(model.evaluate(x, y, verbose=0))[0], rel=1e-5)


@pytest.mark.parametrize("strategy", [SHORT, Async(steps_between=8)], ids=["diloco", "async"])
@pytest.mark.parametrize("hosts", ["a", "ab"], ids=["one", "two"])
def test_what_comes_out_of_several_hosts_is_the_mean_of_the_last_weights(
    crew: Any, tmp_path: Path, hosts: str, strategy: Any
) -> None:
    crew.only(*hosts)
    model, x, y = with_schedule()
    rudel.fit(model, x, y, steps=200, batch_size=16, client=crew.client, run=tmp_path, strategy=strategy)
    (*_, checkpoint) = sorted((tmp_path / "checkpoints").glob("*.npz"))
    kept = np.load(checkpoint)
    weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
    np.testing.assert_array_equal(weights, kept["recent/0" if len(hosts) > 1 else "weights/0"])
    assert (np.abs(weights - kept["weights/0"]).max() > 1e-5) == (len(hosts) > 1)


def test_checkpoints_come_every_so_many_steps(crew: Any, tmp_path: Path) -> None:
    model, x, y = with_schedule()
    often = {"checkpoint_every": 64, "keep": 100, "run": tmp_path}
    rudel.fit(model, x, y, steps=400, batch_size=16, client=crew.client, strategy=SHORT, **often)
    found = sorted(int(path.stem.removeprefix("step-")) for path in (tmp_path / "checkpoints").glob("step-*.npz"))
    assert (found[0], found[-1]) == (0, 400)
    assert all(64 <= later - earlier < 128 for earlier, later in itertools.pairwise(found[:-1]))
    assert found[-1] - found[-2] < 128


def test_averages_that_take_the_place_of_weights_on_the_way_are_refused(crew: Any) -> None:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=10), "mse")
    with pytest.raises(ModelError, match="ema_overwrite_frequency"):
        rudel.fit(model, TABLE, TABLE[:, :1], client=crew.client)


def test_an_optimizer_of_several_is_refused(crew: Any) -> None:
    several = keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.01), {".*kernel": keras.optimizers.SGD(0.1)})
    model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
    model.compile(keras.optimizers.MultiOptimizer(several), "mse")
    with pytest.raises(ModelError, match="is a MultiOptimizer, whose several learning rates hosts do not take"):
        rudel.fit(model, TABLE, TABLE[:, :1], client=crew.client)


def test_a_model_that_cannot_be_exported_is_told(crew: Any) -> None:
    import jax

    class Calling(layers.Layer):
        def call(self, x: Any) -> Any:
            return x + jax.pure_callback(lambda: np.float32(1), jax.ShapeDtypeStruct((), np.float32))

    model = keras.Sequential([keras.Input((5,)), Calling(), layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="cannot be compiled"):
        rudel.fit(model, TABLE, TABLE[:, :1], client=crew.client)


def described(**changed: Any) -> dict[str, Any]:
    import importlib.metadata

    versions = {name: importlib.metadata.version(name) for name in VERSIONED}
    return {"name": "raspi1", "memory": 4e9, "versions": versions | changed}


def test_other_versions_are_told_with_what_mends_them() -> None:
    check_versions(described())
    with pytest.raises(ClusterError, match=r"raspi1 has jax 0\.1\.2, and this computer has .*rudel hosts setup raspi1"):
        check_versions(described(jax="0.1.2"))


def test_a_model_that_is_too_large_for_a_host_is_told() -> None:
    state = ModelState([np.empty((10_000, 10_000), np.float32)], [], [np.empty((10_000, 20_000), np.float32)], [])
    with pytest.raises(ModelError, match=r"too large for raspi1: it needs about 4\.\d GB of memory there, and 4\.0 GB"):
        check_memory(described(), state, 0)
    check_memory(described() | {"memory": 8e9}, state, 0)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"on": "raspi1", "client": "tcp://127.0.0.1:1"}, "Hosts are given twice, as `on=` and as `client=`"),
        ({"strategy": "diloco"}, "needs hosts: name them, as in `on='raspi1,raspi2'`"),
        ({"strategy": SHORT}, "needs hosts"),
        ({"client": "tcp://127.0.0.1:1", "strategy": "single"}, "leave out `client=`, or take `diloco`"),
        ({"client": "tcp://127.0.0.1:1", "strategy": "mush"}, "or the options of one, not 'mush'"),
        ({"client": "tcp://127.0.0.1:1", "strategy": 5}, "or the options of one, not 5"),
        ({"client": 5}, "`client` must be a synchronous distributed.Client"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(place: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        rudel.fit(*with_schedule(), **place)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "http://127.0.0.1:1"])
def test_a_wrong_address_of_a_scheduler_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.ssh_cluster._ANSWER_SECONDS", 0.5)
    with pytest.raises(ClusterError, match="No Dask scheduler answers at"):
        rudel.fit(*with_schedule(), client=address)


def test_a_cluster_without_workers_is_told(crew: Any) -> None:
    crew.only()
    with pytest.raises(ClusterError, match="The cluster has no workers"):
        rudel.fit(*with_schedule(), client=crew.client)


def test_a_recipe_and_the_module_beside_it_just_work(crew: Any, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import keras\nclass Twice(keras.layers.Layer):\n    def call(self, x):\n        return 2 * x\n"
    )
    (tmp_path / "own.py").write_text(
        "import keras, numpy as np\n"
        "import rudel\n"
        "from beside import Twice\n"
        "TRAINING = {'epochs': 3}\n"
        "def data():\n"
        "    x = np.random.default_rng(0).normal(size=(640, 4)).astype('float32')\n"
        "    return rudel.Dataset(rudel.Examples(x, (x[:, 0] > 0).astype('int32')))\n"
        "def model(dataset):\n"
        "    model = keras.Sequential([keras.Input((4,)), Twice(), keras.layers.Dense(2)])\n"
        "    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)\n"
        "    model.compile('adam', loss, metrics=['accuracy'])\n"
        "    return model\n"
    )
    trained = rudel.train_recipe(str(tmp_path / "own.py"), client=crew.client, run=tmp_path / "run", epochs=20)
    assert trained.summary["hosts"] == ["a", "b"]
    assert trained.summary["metrics"]["accuracy"] > 0.8


class Slow:
    """Arithmetic that takes its time, as that of a large model does; notes from when until when."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.times: list[tuple[float, float]] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*arguments: Any) -> Any:
            began = time.perf_counter()
            time.sleep(self.seconds)
            self.times.append((began, time.perf_counter()))
            return function(*arguments)

        return slowly


@pytest.mark.parametrize("strategy", [Diloco(round_steps=64), Async(steps_between=64)], ids=["diloco", "async"])
def test_arithmetic_holds_up_no_heartbeat(
    strategy: Any, crew: Any, many: Any, classifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop of the driver beats on time, though each encoding, decoding and outer step takes 0.4 s."""
    slow = Slow(0.4)
    make_codec, make_outer, make_delayed = coordinator.make_codec, rounds.make_outer, arrivals.make_delayed

    def slow_codec(name: str) -> Any:
        codec = make_codec(name)
        for method in ("encode", "decode"):
            object.__setattr__(codec, method, slow(getattr(codec, method)))
        return codec

    monkeypatch.setattr(coordinator, "make_codec", slow_codec)
    for module, made in ((rounds, make_outer), (arrivals, make_delayed)):
        monkeypatch.setattr(
            module, made.__name__, lambda n, made=made: dataclasses.replace(made(n), step=slow(made(n).step))
        )
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.perf_counter())
            await asyncio.sleep(0.02)

    beating = asyncio.run_coroutine_threadsafe(beat(), crew.client.loop.asyncio_loop)
    try:
        rudel.fit(classifier(), *many, steps=300, client=crew.client, strategy=strategy)
    finally:
        beating.cancel()
    assert len(slow.times) >= 6
    during = [sum(began < at < ended for at in beats) for began, ended in slow.times]
    assert min(during) >= 4, "of twenty: on the event loop there would be none, however busy this computer is"
