"""The compiled loops over a mesh: the same ones, with shardings for what goes in and comes out.

Inside, XLA's partitioner does the work (Y. Xu and others, *GSPMD*, 2105.04663): the program is written for the whole
batch, so means over it, batch normalisation and random numbers are those of one device. What a step is given and what
it returns is pinned to its place, so that a loop moves nothing that a step does not need.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from rudel.aliases import Tree
from rudel.loop import compiled_loop as loop
from rudel.loop.compiled_loop import Batch, Program, Progress
from rudel.loop.kept_programs import ById
from rudel.loop.model_state import ModelState
from rudel.loop.windows import sharded_over
from rudel.mesh.moments import moments_by_shard
from rudel.mesh.placement import Placement

if TYPE_CHECKING:
    import keras


class OnMesh:
    """A Keras model whose steps keep their batch, and what they return, in its place.

    Args:
        model: the model.
        placement: its place.
        rows: examples in a batch.
    """

    def __init__(self, model: "keras.Model", placement: Placement, rows: int) -> None:
        self._model, self._placement = model, placement
        self._batch = placement.batch(rows)
        self._shards = placement.shards if self._batch is not placement.replicated else 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def train_step(self, state: tuple[Any, ...], batch: Batch) -> tuple[Any, tuple[Any, ...]]:
        """Keras' own."""
        placed = self._placed(batch)
        with sharded_over(self._shards), moments_by_shard(self._shards, self._placement.replicated):
            logs, new = self._model.train_step(state, placed)
        return logs, tuple(lax.with_sharding_constraint(tuple(map(list, new)), tuple(self._placement.state)))

    def test_step(self, state: tuple[Any, ...], batch: Batch) -> tuple[Any, tuple[Any, ...]]:
        """Keras' own."""
        with sharded_over(self._shards):
            return self._model.test_step(state, self._placed(batch))

    def _placed(self, batch: Batch) -> Batch:
        return jax.tree.map(lambda array: lax.with_sharding_constraint(array, self._batch), batch)


def compile_training(
    model: "keras.Model",
    placement: Placement,
    state: ModelState,
    data: Batch,
    order: Tree,
    size: int,
    augment: Callable[[Any, Any], Any] | None,
) -> tuple[Program, Any]:
    """See `rudel.loop.compiled_loop.compile_training`; the shardings of `data` and `order` are looked at, too."""
    replicated = placement.replicated
    progress = Progress(placement.state, replicated, replicated)  # type: ignore[arg-type]  # shardings in the place of arrays
    given = (progress, jax.tree.map(lambda a: a.sharding, data), order.sharding, *[replicated] * 4)
    jit = functools.partial(jax.jit, in_shardings=given, out_shardings=(progress, replicated))
    program, logs = loop.compile_training(OnMesh(model, placement, size), state, data, order, augment, jit, size)
    key_of = functools.lru_cache(1)(lambda key: placement.put_key(key.value))

    def run(progress: Progress, data: Tree, order: Tree, key: jax.Array, *bounds: int | jax.Array | np.ndarray) -> Any:
        return program.run(progress, data, order, key_of(ById(key)), *bounds)

    return replace(program, run=run), logs


def compile_evaluation(
    model: "keras.Model", placement: Placement, state: ModelState, data: Batch, rows: int
) -> Program:
    """See `rudel.loop.compiled_loop.compile_evaluation`; `data` has batches along axis 0, metrics are in memory."""
    same, places = placement.replicated, placement.state
    given = (places.trainable, places.non_trainable, same, jax.tree.map(lambda a: a.sharding, data), same, same)
    jit = functools.partial(jax.jit, in_shardings=given, out_shardings=(places.non_trainable, same, same))
    program = loop.compile_evaluation(OnMesh(model, placement, rows), state, data, None, jit)

    def run(
        trainable: list[jax.Array], non_trainable: list[jax.Array], metrics: list[np.ndarray], *rest: Any
    ) -> tuple[list[Any], list[np.ndarray], Tree]:
        changed, metrics, logs = program.run(trainable, non_trainable, [np.asarray(m) for m in metrics], *rest)
        return changed, [np.asarray(m) for m in metrics], logs

    return replace(program, run=run)
