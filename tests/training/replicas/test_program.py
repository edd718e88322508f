"""The exported loop takes, in a process without Keras and without the user's code, the very steps of the local one."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

from rudel.backend import set_seed
from rudel.errors import ModelError
from rudel.loop import model_state
from rudel.loop.compiled_loop import Progress, compile_training
from rudel.replicas.keras_rates import rate_table
from rudel.replicas.replica_program import ROWS, export_rounds, fold_seeds, load_rounds
from rudel.shipping import array_bytes

pytestmark = pytest.mark.optimized

layers, ops = keras.layers, keras.ops
random = np.random.default_rng(3)
PICTURES = random.integers(0, 256, (96, 12, 12, 1)).astype("uint8")
LABELS = random.integers(0, 4, 96).astype("int32")
TABLE = random.normal(size=(96, 5)).astype("float32")
WEIGHTS = np.linspace(0, 2, 96).astype("float32")
STEPS = 40

WORKER = """
import json, sys
from pathlib import Path
import numpy as np
from rudel.shipping import array_bytes
from rudel.replicas.replica_program import load_rounds

for folder in map(Path, sys.argv[1:]):
    counts = json.loads((folder / "counts").read_text())
    run, _ = load_rounds((folder / "code").read_bytes())
    parts, arrays = [], array_bytes.unpack((folder / "arrays").read_bytes())
    for count in counts:
        parts.append(arrays[:count])
        arrays = arrays[count:]
    *state, fixed = parts
    *data, order, rates, key = fixed
    bad_steps = []
    for first, last in ((0, 1), (1, 17), (17, 40)):  # how steps are cut changes nothing
        state, bad = run(state, data, order, rates, key, np.int32(first), np.int32(last))
        bad_steps.append(int(bad))
    (folder / "result").write_bytes(array_bytes.pack([np.asarray(value) for part in state for value in part]))
    (folder / "bad").write_text(json.dumps(bad_steps))
assert "keras" not in sys.modules, "a worker does without Keras"
"""


class Noisy(layers.Layer):
    """A layer that only this module has: noise from its own generator, a statistic, and a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.random.SeedGenerator(5)

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.seen.assign(self.seen + 1)
            x = x + 0.1 * keras.random.normal(ops.shape(x), seed=self.generator)
        return x * self.scale


def pictures() -> tuple[Any, tuple[Any, Any, Any], Any]:
    model = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.4),
            layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=loss, metrics=["accuracy"])

    def augment(key: Any, x: Any) -> Any:
        return jax.numpy.roll(x, jax.random.randint(key, (), -2, 3), axis=2)

    return model, (PICTURES, LABELS, None), augment


def schedule_and_clipping() -> tuple[Any, tuple[Any, Any, Any], Any]:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
    schedule: Any = keras.optimizers.schedules.CosineDecay(0.02, 30, warmup_steps=5, warmup_target=0.05)
    model.compile(optimizer=keras.optimizers.AdamW(schedule, clipnorm=1.0), loss="mse", metrics=["mae"])
    return model, (TABLE, TABLE.sum(1, keepdims=True), None), None


def own_layer_and_loss() -> tuple[Any, tuple[Any, Any, Any], Any]:
    def asymmetric(truth: Any, predicted: Any) -> Any:
        error = predicted - truth
        return ops.mean(ops.where(error > 0, error**2, 3 * error**2), axis=-1)

    model = keras.Sequential([keras.Input((5,)), Noisy(), layers.Dense(8, activity_regularizer="l2"), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss=asymmetric)
    return model, (TABLE, TABLE.sum(1, keepdims=True), None), None


def several_inputs_and_weighted_outputs() -> tuple[Any, tuple[Any, Any, Any], Any]:
    picture, table = keras.Input((12, 12, 1), name="picture"), keras.Input((5,), name="table")
    joined = layers.Concatenate()([layers.Flatten()(layers.Rescaling(1 / 255)(picture)), table])
    kind = layers.Dense(4, activation="softmax", name="kind")(joined)
    total = layers.Dense(1, name="total")(joined)
    model = keras.Model({"picture": picture, "table": table}, {"kind": kind, "total": total})
    losses = {"kind": "sparse_categorical_crossentropy", "total": "mse"}
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss=losses, weighted_metrics={"kind": ["accuracy"]}
    )
    return (
        model,
        ({"picture": PICTURES, "table": TABLE}, {"kind": LABELS, "total": TABLE.sum(1, keepdims=True)}, WEIGHTS),
        None,
    )


def mixed_precision(name: str) -> tuple[Any, tuple[Any, Any, Any], Any]:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        model = keras.Sequential([keras.Input((5,)), layers.Dense(16, activation="relu"), layers.Dense(4)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=["accuracy"])
    finally:
        keras.config.set_dtype_policy(policy)
    return model, (TABLE, LABELS, None), None


CASES: dict[str, Callable[[], tuple[Any, tuple[Any, Any, Any], Any]]] = {
    "pictures": pictures,
    "schedule and clipping": schedule_and_clipping,
    "own layer and loss": own_layer_and_loss,
    "several inputs, weighted outputs": several_inputs_and_weighted_outputs,
    "mixed_bfloat16": lambda: mixed_precision("mixed_bfloat16"),
    "mixed_float16": lambda: mixed_precision("mixed_float16"),
}


def rates_of(model: Any) -> np.ndarray:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return rate_table(rate, ROWS)
    return np.full(ROWS, optimizer.learning_rate, np.float32)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """By name of the case, what the local loop comes to and what a process without Keras does."""
    expected: dict[str, list[np.ndarray]] = {}
    folders: dict[str, Path] = {}
    order = np.random.default_rng(0).integers(0, 96, (ROWS, 16)).astype("int32")
    key = jax.random.fold_in(jax.random.key(1), 2)
    for name, make in CASES.items():
        set_seed(1)
        model, data, augment = make()
        model_state.build(model, jax.tree.map(lambda array: array[:16], data))
        model.reset_metrics()
        state = model_state.to_host(model_state.read(model))
        program = export_rounds(model, state, data, 16, augment, "cpu", 1)
        logs = [np.zeros(shape, dtype) for shape, dtype in program.logs]
        folder = folders[name] = tmp_path_factory.mktemp("program")
        fixed = [*jax.tree.leaves(data), order, rates_of(model), np.asarray(jax.random.key_data(key))]
        parts = [*state, logs, fixed]
        (folder / "code").write_bytes(program.code)
        (folder / "counts").write_text(json.dumps([len(part) for part in parts]))
        (folder / "arrays").write_bytes(array_bytes.pack([np.asarray(value) for part in parts for value in part]))
        local, begin = compile_training(model, state, data, order, augment)
        progress = Progress(jax.device_put(state), begin, np.asarray(-1, np.int32))
        progress, bad_step = local.run(progress, data, order, key, np.int32(0), np.int32(STEPS), np.int32(0))
        assert int(bad_step) == -1
        expected[name] = [np.asarray(value) for value in jax.tree.leaves((progress.state, progress.logs))]
    subprocess.run([sys.executable, "-c", WORKER, *map(str, folders.values())], check=True)
    assert all(json.loads((folder / "bad").read_text()) == [-1, -1, -1] for folder in folders.values())
    return {name: (expected[name], array_bytes.unpack((folders[name] / "result").read_bytes())) for name in CASES}


@pytest.mark.parametrize("name", list(CASES))
def test_steps_are_those_of_the_local_loop(results: Any, name: str) -> None:
    expected, found = results[name]
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype
        if name == "schedule and clipping":  # rates from a table in the place of a formula
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


def test_a_step_is_traced_once() -> None:
    traced = []

    class Counted(keras.Sequential):
        def train_step(self, *arguments: Any) -> Any:
            traced.append(self)
            return super().train_step(*arguments)

    model = Counted([keras.Input((5,)), layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    data = (TABLE, TABLE.sum(1, keepdims=True), None)
    model_state.build(model, jax.tree.map(lambda array: array[:4], data))
    export_rounds(model, model_state.to_host(model_state.read(model)), data, 4, None, "cpu", 1)
    assert len(traced) == 1


def test_a_bad_step_is_told_by_its_number() -> None:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    data = (TABLE, TABLE.sum(1, keepdims=True), None)
    model_state.build(model, jax.tree.map(lambda array: array[:4], data))
    state = model_state.to_host(model_state.read(model))
    program = export_rounds(model, state, data, 4, None, "cpu", 1)
    run, _ = load_rounds(program.code)
    rates = np.zeros(ROWS, np.float32)
    rates[7] = np.inf
    parts = [*(list(part) for part in state), [np.zeros(shape, dtype) for shape, dtype in program.logs]]
    order = np.zeros((ROWS, 4), np.int32)
    parts, bad = run(parts, list(data[:2]), order, rates, np.zeros(2, np.uint32), np.int32(2), np.int32(20))
    assert int(bad) == 8


def test_what_cannot_be_exported_is_told_in_one_sentence() -> None:
    class Calling(layers.Layer):
        def call(self, x: Any) -> Any:
            return x + jax.pure_callback(lambda: np.float32(1), jax.ShapeDtypeStruct((), np.float32))

    model = keras.Sequential([keras.Input((5,)), Calling(), layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    data = (TABLE, TABLE.sum(1, keepdims=True), None)
    model_state.build(model, jax.tree.map(lambda array: array[:4], data))
    state = model_state.to_host(model_state.read(model))
    with pytest.raises(ModelError, match="cannot be compiled"):
        export_rounds(model, state, data, 4, None, "cpu", 1)


def test_the_users_choice_of_random_generator_does_no_harm() -> None:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    data = (TABLE, TABLE.sum(1, keepdims=True), None)
    model_state.build(model, jax.tree.map(lambda array: array[:4], data))
    state = model_state.to_host(model_state.read(model))
    with jax.default_prng_impl("rbg"):
        export_rounds(model, state, data, 4, lambda key, x: x + jax.random.normal(key, x.shape), "cpu", 1)


def test_replicas_draw_random_numbers_of_their_own() -> None:
    states = [np.array([1, 2], np.float32), np.array([3, 4], np.uint32)]
    folded = [tuple(fold_seeds(states, [1], number)[1].tolist()) for number in range(50)]
    assert folded[0] == (3, 4)
    assert len(set(folded)) == 50
    assert all(np.array_equal(fold_seeds(states, [1], number)[0], states[0]) for number in range(3))
    assert states[1].tolist() == [3, 4]
