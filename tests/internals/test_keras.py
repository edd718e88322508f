"""Private parts of Keras: what Rudel expects of them holds, and what is missing stops it with a sentence."""

import contextlib
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from rudel.backend import hidden, keras_on_jax
from rudel.errors import UnsupportedError
from rudel.runs.model_file import load_model

keras = keras_on_jax()

from rudel.internals import keras as internals  # noqa: E402
from rudel.internals import keras_jax  # noqa: E402


def _model() -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


@pytest.mark.parametrize("scaled", [False, True])
def test_a_given_learning_rate_is_the_one_that_steps_use(scaled: bool) -> None:
    optimizer: Any = keras.optimizers.SGD(0.5)
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0) if scaled else optimizer
    ones = np.ones(1, "float32")
    optimizer.build([keras.Variable(ones)])
    state = [np.asarray(variable) for variable in optimizer.variables]
    with internals.learning_rate_given(optimizer, 0.25):
        (moved,), _ = optimizer.stateless_apply(state, [ones], [ones])
    assert np.asarray(moved).tolist() == [0.75]
    (moved,), _ = optimizer.stateless_apply(state, [ones], [ones])
    assert np.asarray(moved).tolist() == [0.5]


def test_a_schedule_is_found_in_an_optimizer_that_scales_the_loss() -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    assert internals.schedule_of(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(schedule))) is schedule
    assert internals.schedule_of(keras.optimizers.SGD(0.1)) is None


def test_what_a_model_was_compiled_with() -> None:
    model = _model()
    assert internals.compile_config(model)["loss"] == "mse"
    assert internals.compiled_metrics(model) is not None
    assert internals.compile_config(keras.Sequential()) == {}


def test_layers_inside_layers_are_listed() -> None:
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="deep")], name="inner")
    model = keras.Sequential([keras.Input((2,)), inner])
    assert {"inner", "deep"} <= {layer.name for layer in internals.layers_of(model, include_self=False)}
    names = [layer.name for layer in internals.layers_of(model, include_self=False, recursive=False)]
    assert "inner" in names
    assert "deep" not in names


def test_moments_are_replaced_only_inside_the_block() -> None:
    x = np.ones((4, 2), "float32")
    with keras_jax.replaced_moments(lambda plain: lambda *given, **options: ("replaced", plain)):
        assert keras.ops.moments(x, (0,))[0] == "replaced"
    assert np.asarray(keras.ops.moments(x, (0,))[0]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (keras.optimizers.Optimizer, "_get_current_learning_rate"),
        (keras.Model, "_symbolic_build"),
        (keras.layers.Layer, "_flatten_layers"),
    ],
)
def test_a_keras_that_lacks_a_private_part_is_refused(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defined_by = next(kind for kind in owner.__mro__ if name in vars(kind))
    with monkeypatch.context() as lacking:
        lacking.delattr(defined_by, name)
        with pytest.raises(UnsupportedError, match=rf"keras \S+ is not supported: .*{name}"):
            importlib.reload(internals)
    importlib.reload(internals)


def test_a_module_is_hidden_from_one_thread_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rarely_imported.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with hidden(("rarely_imported",)), ThreadPoolExecutor(1) as other:
        with pytest.raises(ModuleNotFoundError, match="No module named 'rarely_imported'"):
            importlib.import_module("rarely_imported")
        assert other.submit(importlib.import_module, "rarely_imported").result()
    del sys.modules["rarely_imported"]
    with hidden(("rarely_imported",)):
        pass
    assert importlib.import_module("rarely_imported")
    del sys.modules["rarely_imported"]


@keras.saving.register_keras_serializable("test_keras")
class Counted(keras.initializers.RandomNormal):
    """Draws seven times itself, and counts how often."""

    draws = 0

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        type(self).draws += 1
        return super().__call__(shape, dtype) * 0 + 7


@keras.saving.register_keras_serializable("test_keras")
class Projection(keras.layers.Layer):
    """Has a kernel, and another that it does not save."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 2), initializer=Counted())
        self.fixed = self.add_weight(shape=(2,), initializer=Counted(), trainable=False, dtype="bfloat16")

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, self.kernel) + keras.ops.cast(self.fixed, "float32")

    def save_own_variables(self, store: Any) -> None:
        store["kernel"] = self.kernel

    def load_own_variables(self, store: Any) -> None:
        self.kernel.assign(store["kernel"])


@pytest.mark.usefixtures("sharing_programs")
def test_of_a_model_that_is_read_only_what_the_file_lacks_is_drawn(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(), Projection()])
    model.compile("adam", "mse")
    model.layers[1].kernel.assign(np.arange(6, dtype="float32").reshape(3, 2))
    model.fit(np.ones((4, 3), "float32"), np.ones((4, 2), "float32"), verbose=0)
    model.save(tmp_path / "model.keras")
    Counted.draws = 0
    again = load_model(tmp_path / "model.keras")
    assert Counted.draws == 1
    assert again.layers[1].fixed.numpy().tolist() == [7, 7]
    for read, saved in zip(again.variables, model.variables, strict=True):
        assert read.dtype == saved.dtype
        np.testing.assert_array_equal(read, saved)
    np.testing.assert_array_equal(again.optimizer.variables[2], model.optimizer.variables[2])


@pytest.mark.usefixtures("sharing_programs")
def test_other_threads_draw_while_one_reads_and_so_does_it_afterwards() -> None:
    def drawn() -> list[float]:
        return keras.Variable(Counted(), shape=(1,)).numpy().tolist()

    with ThreadPoolExecutor(1) as pool, keras_jax.drawn_if_left():
        assert pool.submit(drawn).result() == [7]
        with contextlib.suppress(ZeroDivisionError), keras_jax.drawn_if_left():
            assert drawn() == [0]
            _ = 1 / 0
        late = keras.Variable(Counted(), shape=(1,))
        assert late.numpy().tolist() == [0]
    assert late.numpy().tolist() == [7]
    assert drawn() == [7]


@pytest.fixture
def sharing_programs() -> None:
    keras_jax.share_programs()  # another test may have read the module again


class Compiled(keras.initializers.GlorotUniform):
    """Compiles what it draws."""

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return jax.jit(lambda: super(Compiled, self).__call__(shape, dtype))()


def _first_values(initializer: Any) -> list[Any]:
    shapes = [(3, 3, 1, 16), (288, 64), (1, 1), (7, 3), (256, 256), (256, 257)]
    return [np.asarray(keras.Variable(initializer, shape=shape).value).view("uint32") for shape in shapes]


@pytest.mark.usefixtures("sharing_programs")
@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.GlorotUniform(seed=1),
        keras.initializers.HeNormal(seed=2),
        keras.initializers.RandomNormal(0.1, 0.02, seed=3),
        keras.initializers.RandomUniform(-0.05, 0.1, seed=4),
        keras.initializers.Orthogonal(seed=5),
        Compiled(seed=6),
        keras.initializers.Zeros(),
        keras.initializers.Ones(),
        keras.initializers.Constant(0.3),
    ],
    ids=lambda initializer: type(initializer).__name__,
)
def test_first_values_are_those_of_keras_to_the_bit(initializer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = _first_values(initializer)
    for name in ("normal", "truncated_normal", "uniform"):
        monkeypatch.setattr(keras_jax.random, name, getattr(keras_jax.random, name).__wrapped__)
    monkeypatch.setattr(keras_jax.Variable, "_initialize_with_initializer", keras_jax._by_keras)
    for theirs, our in zip(_first_values(initializer), ours, strict=True):
        np.testing.assert_array_equal(our, theirs)


@pytest.mark.usefixtures("sharing_programs")
def test_kernels_of_many_shapes_are_drawn_by_one_program() -> None:
    compiled: list[float] = []

    def note(event: str, duration_secs: float, **more: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration_secs)

    _first_values(keras.initializers.GlorotUniform(seed=7))
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        several = [keras.layers.Dense(units) for units in range(20, 30)]
        for layer in several:
            layer.build((None, 11))
        assert not compiled
        keras.ops.ones((2, 3, 5, 7)).block_until_ready()
        assert compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
