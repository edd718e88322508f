"""The local steps of a round as a program that needs neither Keras nor the user's code to run.

The driver traces the training loop once, with whatever the model, its layers, its losses and the recipe
are made of, and exports it as StableHLO (`jax.export`). A host gets these bytes and compiles them for its own
processor.
So code that only the driver has (a recipe, a notebook, modules beside them) works on all hosts, and a worker is
JAX, NumPy and Dask: it starts sooner and takes a good hundred megabytes less than one that imports Keras.

Limit: what JAX cannot export, such as Python callbacks inside the model, cannot be trained so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jax import export

from rudel.aliases import Tree
from rudel.loop.convolution import fast_on_cpu

if TYPE_CHECKING:
    import keras

    from rudel.loop.model_state import ModelState


ROWS = 512
"""Batches that one call of the program can have in its order; a longer round takes several calls."""


@dataclass(frozen=True)
class RoundProgram:
    """An exported loop.

    Args:
        code: what `jax.export` serialised.
        logs: shape and dtype of every log of a step.
        log_form: their structure, a `PyTreeDef`: a dict by their names, perhaps with others in it.
        platform: JAX's name of what it is for: cpu, cuda, rocm or tpu; or another backend of Keras.
    """

    code: bytes
    logs: tuple[tuple[tuple[int, ...], str], ...]
    log_form: Any
    platform: str


class Steps(Protocol):
    """The local steps of a replica.

    Attributes:
        weights: of the shapes and dtypes of the trainable variables.
    """

    weights: Sequence[Any]

    def put(self, arrays: Tree) -> Any:
        """Nested arrays as `__call__` takes them, on the device."""
        ...

    def __call__(
        self,
        carried: Tree,
        data: Tree,
        order: np.ndarray,
        rates: np.ndarray,
        key: np.ndarray,
        first: int | np.integer,
        last: int | np.integer,
    ) -> tuple[Any, Any]:
        """Takes steps; see `export_rounds`."""
        ...


class CompiledSteps:
    """An exported loop, compiled for this computer.

    Args:
        code: from `export_rounds`.
    """

    def __init__(self, code: bytes) -> None:
        self._run, shapes = load_rounds(code)
        self.weights = shapes[0][0]

    def put(self, arrays: Tree) -> Any:
        """Puts arrays on the device."""
        return jax.device_put(arrays)

    def __call__(
        self,
        carried: Tree,
        data: Tree,
        order: np.ndarray,
        rates: np.ndarray,
        key: np.ndarray,
        first: int | np.integer,
        last: int | np.integer,
    ) -> tuple[Any, Any]:
        """Takes steps; `carried` is consumed."""
        return self._run(carried, data, order, rates, key, first, last)


def export_rounds(
    model: "keras.Model",
    state: "ModelState",
    data: Tree,
    batch_size: int,
    augment: Callable[[Any, Any], Any] | None,
    platform: str,
    replicas: int,
) -> RoundProgram:
    """Exports `run(carried, data, order, rates, key, first, last) -> (carried, bad step)` for a built model.

    `carried` are the four lists of a `ModelState` and the logs of the last step, `data` the leaves of (x, y,
    sample_weight), `order` int32 (ROWS,
    batch_size) of indices into them, `rates` float32 (ROWS,) learning rates of the steps, `key` the data of a random
    key, and the steps are `first` (inclusive) to `last` (exclusive).

    Args:
        model: a built, compiled Keras model.
        state: its `ModelState`; only shapes and dtypes are looked at.
        data: (x, y, sample_weight) of all examples; only shapes and dtypes are looked at.
        batch_size: examples a step.
        augment: changes the inputs of a batch at random: `(key, x) -> x`.
        platform: for what it is to be compiled.
        replicas: how many there are; see `rudel.replicas.moving_statistics`.

    Raises:
        ModelError: the model cannot be traced, or not exported.
    """
    from rudel.internals.keras import weight_average_left
    from rudel.loop.compiled_loop import Progress, tracing, training_loop
    from rudel.loop.model_state import ModelState
    from rudel.replicas.moving_statistics import quickened

    order = np.zeros((ROWS, batch_size), np.int32)
    leaves, form = jax.tree.flatten(data)
    run, start = training_loop(model, state, data, order, augment)
    averages_left, in_pace = weight_average_left(model.optimizer), quickened(model, replicas)
    with tracing(model, "train_step"), fast_on_cpu(platform), averages_left, in_pace:
        begin = start(jax.ShapeDtypeStruct((), np.float32))
        logs, log_form = jax.tree.flatten(begin.logs)

        def flat(
            carried: Tree,
            leaves: Tree,
            order: jax.Array,
            rates: jax.Array,
            key: jax.Array,
            first: int | np.integer,
            last: int | np.integer,
        ) -> Any:
            progress = Progress(
                ModelState(*carried[:4]), jax.tree.unflatten(log_form, carried[4]), np.asarray(-1, np.int32)
            )
            data = jax.tree.unflatten(form, leaves)
            done = run(progress, data, order, jax.random.wrap_key_data(key, impl="threefry2x32"), first, last, rates)
            return [*(list(part) for part in done.state), jax.tree.leaves(done.logs)], done.bad_step

        carried = [*(list(part) for part in state), logs]
        rates, key = np.zeros(ROWS, np.float32), np.zeros(2, np.uint32)
        arguments = (carried, leaves, order, rates, key, np.int32(0), np.int32(1))
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), a.dtype), arguments)
        exported = export.export(jax.jit(flat, donate_argnums=0, keep_unused=True), platforms=[platform])(*shapes)
    forms = tuple((np.shape(log), str(log.dtype)) for log in logs)
    return RoundProgram(bytes(exported.serialize()), forms, log_form, platform)


def load_rounds(code: bytes) -> tuple[Callable[..., Any], Any]:
    """Compiles an exported loop for this computer.

    Returns:
        The function, which consumes `carried` (its buffers are donated) and takes arrays of NumPy as they are, and the
        shapes and dtypes of its arguments.
    """
    exported = export.deserialize(bytearray(code))
    arguments, _ = jax.tree.unflatten(
        exported.in_tree, [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
    )
    return jax.jit(exported.call, donate_argnums=0, keep_unused=True).lower(*arguments).compile(), arguments


def fold_seeds(non_trainable: Sequence[Any], seeds: Sequence[int], number: int, round: int = 0) -> list[Any]:
    """Gives the random generators in a model's state a sequence of their own.

    Args:
        non_trainable: the model's non-trainable variables.
        seeds: which of them are states of random generators, uint32 (2,), or other integers for them: a seed and a
            count.
        number: of the replica, from 0; replica 0 keeps the model's own.
        round: in which it begins, from 0, so that it does not draw again what was drawn in earlier rounds.
    """
    own = list(non_trainable)
    for index in seeds:
        value = np.asarray(own[index])
        state = value.astype(np.uint32)
        state[0] ^= np.uint32((number * 0x9E3779B9) & 0xFFFFFFFF)
        state[1] ^= np.uint32((round * 0x85EBCA6B) & 0xFFFFFFFF)
        own[index] = state.astype(value.dtype)
    return own
