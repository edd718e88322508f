"""The compiled loop: many training steps in one XLA program, over data that stays on the device.

Both programs call the model's own `train_step` and `test_step`, so whatever a Keras model overrides keeps working. The
number of steps is an argument of the program, not a part of it: one compilation serves blocks of any length, and how a
training is cut into blocks changes no bit of its result.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rudel.aliases import Tree
from rudel.array_types import Float32, Int32
from rudel.data.dataset import Arrays
from rudel.errors import ModelError
from rudel.loop.convolution import fast_on_cpu
from rudel.loop.kept_programs import ById, form, kept
from rudel.loop.model_state import ModelState, why_not_traced

if TYPE_CHECKING:
    import keras

_FEW_PASSES = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_BOUNDS = (np.int32(0), np.int32(1))

Batch = tuple[Any, ...]
"""`(x, y, sample_weight)`, each an array or a nest of arrays with the examples along axis 0."""


class Progress(NamedTuple):
    """State that a block of steps hands to the next one, on the device.

    Args:
        state: the model's variables.
        logs: what the last `train_step` returned: a name and a scalar each.
        bad_step: number of the first step in this epoch whose loss was not finite, or -1.
    """

    state: ModelState
    logs: Tree
    bad_step: jax.Array | np.ndarray


@dataclass(frozen=True)
class Program:
    """A compiled function and the seconds it took to trace and compile it."""

    run: Callable[..., Any]
    compile_seconds: float


def unused_key() -> jax.Array:
    """A random key for a program that does not look at it; none is derived from a seed, which takes a program, too."""
    data = jax.eval_shape(jax.random.key_data, _key_form())
    return jax.random.wrap_key_data(jax.device_put(np.zeros(data.shape, data.dtype)))


def _key_form() -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda: jax.random.key(0))


def compile_training(
    model: Any,
    state: ModelState,
    data: Batch,
    order: jax.Array | np.ndarray,
    augment: Callable[[Any, Any], Any] | None = None,
    jit: Callable[..., Any] = jax.jit,
    size: int | None = None,
    ahead: bool = False,
    rare: bool = False,
) -> tuple[Program, Any]:
    """Compiles `run(progress, data, order, key, first, last, offset) -> (progress, bad_step)` for a built model.

    `order` is int32 (steps, batch_size), indices into `data`. The steps `first` (inclusive) to `last` (exclusive) of
    the epoch are taken, of which step i sees the examples `order[i - offset]`. `key` is the epoch's random key for
    `augment(key, x) -> x`; every step derives its own from it. The progress that goes in is consumed (its buffers are
    donated); the second result is its `bad_step` once more, which can be waited for when the first is consumed, too.

    Where `jit` is JAX's own, the program is kept for the model's next training.

    Of `state`, `data` and `order`, only shapes and dtypes are looked at. `order` can be int32 (steps,), if `data` has
    whole batches along axis 0. `jit` compiles, and may know more of where things are to be. Of every batch, the first
    `size` examples count; None for all of them. With `ahead`, another thread compiles, and the first call waits for it.
    A program that takes few steps, `rare`, compiles in half the time for CPUs, and takes three times as long for each.

    Returns:
        The program, and logs of the right form to start with.

    Raises:
        ModelError: the model's `train_step` cannot be traced.
    """

    run, start = training_loop(model, state, data, order, augment, size)

    def block(
        progress: Progress,
        data: Batch,
        order: Int32[jax.Array, "steps *batch"],
        key: jax.Array,
        first: Int32[jax.Array, ""],
        last: Int32[jax.Array, ""],
        offset: Int32[jax.Array, ""],
    ) -> tuple[Progress, Int32[jax.Array, ""]]:
        done = run(progress, data, order, key, first, last, offset=offset)
        return done, done.bad_step + jnp.int32(0)  # an array of its own

    def traced() -> tuple[Any, Any]:
        begin = start()
        arguments = begin, data, order, _key_form(), *_BOUNDS, np.int32(0)
        return jit(block, donate_argnums=0, keep_unused=True).trace(*arguments), begin.logs

    key = ("train_step", form((state, data, order)), ById(augment), size, rare) if jit is jax.jit else None
    return _compile(model, "train_step", key, traced, ahead, rare)


def training_loop(
    model: Any,
    state: ModelState,
    data: Batch,
    order: jax.Array | np.ndarray,
    augment: Callable[[Any, Any], Any] | None,
    size: int | None = None,
) -> tuple[Callable[..., Progress], Callable[..., Progress]]:
    """The loop of `compile_training` before it is compiled, and what makes the progress to begin with.

    The loop is `run(progress, data, order, key, first, last, rates=None, offset=0) -> progress`. Where `rates` is
    given, float32 (steps,), step i uses the learning rate `rates[i]` in the place of the optimizer's own. The other is
    `start(rate=None) -> progress`; with the form of a rate where the loop is given some, else a step is traced twice.
    """

    @jax.jit  # so that the step is traced once, though its shapes are computed first
    def step(state: ModelState, batch: Batch, rate: jax.Array | None) -> tuple[Any, ModelState]:
        with _learning_rate(model, rate):
            logs, new = model.train_step(tuple(state), _as_keras_data(batch))
        return logs, ModelState(*(list(part) for part in new))

    def batch_of(data: Batch, indices: jax.Array, key: jax.Array, i: jax.Array) -> Batch:
        x, *targets = jax.tree.map(lambda array: array[:size], _gather(data, indices))
        return (x if augment is None else augment(jax.random.fold_in(key, i), x), *targets)

    def run(
        progress: Progress,
        data: Batch,
        order: jax.Array,
        key: jax.Array,
        first: jax.Array,
        last: jax.Array,
        rates: Float32[jax.Array, "rates"] | None = None,
        offset: jax.Array | int = 0,
    ) -> Progress:
        def body(i: jax.Array, progress: Progress) -> Progress:
            rate = None if rates is None else rates[i]
            logs, state = step(progress.state, batch_of(data, order[i - offset], key, i), rate)
            loss = logs.get("loss") if isinstance(logs, Mapping) else None
            failed = jnp.asarray(False) if loss is None else ~jnp.all(jnp.isfinite(loss))
            bad_step = jnp.where((progress.bad_step < 0) & failed, i.astype(jnp.int32), progress.bad_step)
            return Progress(state, logs, bad_step)

        return lax.fori_loop(first, last, body, progress)

    def start(rate: jax.ShapeDtypeStruct | None = None) -> Progress:
        def one(state: ModelState, rate: jax.Array | None, *drawn: Any) -> tuple[Any, ModelState]:
            return step(state, batch_of(*drawn), rate)  # as in the loop: the form of a batch does not say on which mesh

        indices = jax.ShapeDtypeStruct(order.shape[1:], order.dtype)
        shapes, new_state = jax.eval_shape(one, state, rate, data, indices, _key_form(), 0)
        _check_carried(model, state, new_state)
        logs = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
        return Progress(state, logs, np.asarray(-1, np.int32))

    return run, start


@contextlib.contextmanager
def _learning_rate(model: "keras.Model", rate: jax.Array | None) -> Iterator[None]:
    """While it is entered, the model's optimizer uses this learning rate, whatever it was made with."""
    if rate is None:
        yield
        return
    from rudel.internals.keras import learning_rate_given

    with learning_rate_given(model.optimizer, rate):
        yield


def compile_evaluation(
    model: Any, state: ModelState, data: Batch, batch_size: int | None, jit: Callable[..., Any] = jax.jit
) -> Program:
    """Compiles `run(trainable, non_trainable, metrics, data, first, last) -> (changed, metrics, logs)` for a model.

    Batch number i is examples i * batch_size to (i + 1) * batch_size of `data`, in order, without a partial batch:
    compile a second program for the rest. With no `batch_size`, `data` has whole batches along axis 0. `changed` are
    the non-trainable variables after the last batch, such as the states of random generators; see `after`. `logs` are
    what `test_step` returns for that batch; None if they are what the metrics say, by their names.

    Raises:
        ModelError: the model's `test_step` cannot be traced.
    """

    def traced() -> tuple[Any, None]:
        return jit(_evaluation_loop(model, batch_size), keep_unused=True).trace(
            state.trainable, state.non_trainable, state.metrics, data, *_BOUNDS
        ), None

    key = ("test_step", form((state, data)), batch_size) if jit is jax.jit else None
    return _compile(model, "test_step", key, traced)[0]


def _evaluation_loop(model: Any, batch_size: int | None) -> Callable[..., tuple[list[Any], Tree, Tree]]:
    """The loop of `compile_evaluation` before it is compiled."""
    results = set(model.get_metrics_result())

    @jax.jit  # so that the step is traced once, though the form of its logs is computed first
    def step(trainable: Tree, non_trainable: Tree, metrics: Tree, batch: Batch) -> tuple[Tree, list[Any], Tree]:
        logs, new = model.test_step((trainable, non_trainable, metrics), _as_keras_data(batch))
        own = None if isinstance(logs, Mapping) and set(logs) == results else logs
        return own, _changed(non_trainable, new[1]), list(new[2])

    def run(
        trainable: Tree, non_trainable: Tree, metrics: Tree, data: Batch, first: jax.Array, last: jax.Array
    ) -> tuple[list[Any], Tree, Tree]:
        def body(i: jax.Array | int, carried: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
            batch = jax.tree.map(lambda a: batch_of(a, i), data)
            logs, changed, metrics = step(trainable, carried[0], carried[1], batch)
            return after(carried[0], changed), metrics, logs

        *_, forms = jax.eval_shape(body, 0, (non_trainable, metrics, None))
        logs = jax.tree.map(lambda form: jnp.zeros(form.shape, form.dtype), forms)
        moved, metrics, logs = lax.fori_loop(first, last, body, (non_trainable, metrics, logs))
        return _changed(non_trainable, moved), metrics, logs

    def batch_of(array: jax.Array, i: jax.Array | int) -> jax.Array:
        if batch_size is None:
            return lax.dynamic_index_in_dim(array, i, keepdims=False)
        return lax.dynamic_slice_in_dim(array, i * batch_size, batch_size)

    return run


def compile_prediction(model: "keras.Model", state: ModelState, x: Arrays) -> Program:
    """Compiles `run(trainable, non_trainable, x) -> (outputs, changed)` for a batch of the shape of `x`.

    `changed` is as of `compile_evaluation`.

    Raises:
        ModelError: the model's `predict_step` cannot be traced.
    """

    def run(trainable: Tree, non_trainable: Tree, x: Arrays) -> tuple[Tree, list[Any]]:
        outputs, moved = model.predict_step((trainable, non_trainable), (x,))
        return outputs, _changed(non_trainable, moved)

    return _compile(
        model,
        "predict_step",
        ("predict_step", form((state.trainable, state.non_trainable, x))),
        lambda: (jax.jit(run, keep_unused=True).trace(state.trainable, state.non_trainable, x), None),
    )[0]


def _changed(before: Tree, after: Tree) -> list[Any]:
    """Variables that a step has changed, None in the place of others: a program would copy those."""
    return [None if new is old else new for old, new in zip(before, after, strict=True)]


def after(before: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
    """Non-trainable variables after a program that has changed some of them.

    >>> after([1, 2, 3], [None, 5, None])
    [1, 5, 3]
    """
    return [old if new is None else new for old, new in zip(before, changed, strict=True)]


def _compile(
    model: "keras.Model",
    method: str,
    key: tuple[Any, ...] | None,
    traced: Callable[[], tuple[Any, Any]],
    ahead: bool = False,
    rare: bool = False,
) -> tuple[Program, Any]:
    began = time.perf_counter()

    def make() -> tuple[Any, Any]:
        with tracing(model, method), fast_on_cpu():
            trace, extra = traced()
        lowered = trace.lower()
        compiled = functools.partial(lowered.compile, _FEW_PASSES if rare and jax.default_backend() == "cpu" else None)
        return _called_ahead(compiled) if ahead else compiled(), extra

    run, extra = make() if key is None else kept(model, key, make)
    return Program(run, time.perf_counter() - began), extra


def _called_ahead(compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    threads = ThreadPoolExecutor(1, "rudel-compile")
    program = threads.submit(compiled)
    threads.shutdown(wait=False)
    return lambda *arguments: program.result()(*arguments)


@contextlib.contextmanager
def tracing(model: "keras.Model", method: str) -> Iterator[None]:
    """Makes one sentence of whatever goes wrong while a model's method is traced.

    Raises:
        ModelError: it cannot be traced.
    """
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"`{method}` of the model `{model.name}` cannot be compiled: {why_not_traced(error)}"
        ) from error


def _check_carried(model: "keras.Model", before: ModelState, after: ModelState) -> None:
    """A loop can only carry variables whose shapes and dtypes a step leaves alone."""
    for part in ModelState._fields:
        old, new = getattr(before, part), getattr(after, part)
        if [(a.shape, a.dtype) for a in old] != [(a.shape, a.dtype) for a in new]:
            raise ModelError(
                f"`train_step` of the model `{model.name}` returns {part} variables of other shapes or dtypes than it "
                "got: return them in the same order and form, as keras.Model.train_step does."
            )


def _gather(data: Batch, indices: jax.Array) -> Batch:
    return jax.tree.map(lambda array: jnp.take(array, indices, axis=0, mode="clip"), data)


def _as_keras_data(batch: Batch) -> Batch:
    """Keras tells `(x,)`, `(x, y)` and `(x, y, sample_weight)` apart by length."""
    while len(batch) > 1 and batch[-1] is None:
        batch = batch[:-1]
    return batch
