"""Shardings on a mesh: of weights, of batches, and of arrays that are replicated."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from rudel.aliases import Tree
from rudel.array_types import Integer
from rudel.errors import OptionError
from rudel.loop import model_state
from rudel.loop.model_state import ModelState
from rudel.mesh import agreement as agree
from rudel.mesh.layouts import layouts_of
from rudel.mesh.mesh_devices import DATA, written_axes
from rudel.mesh.optimizer_slots import slots_of

if TYPE_CHECKING:
    import keras


class Placement:
    """A model's place on a mesh.

    Args:
        mesh: the devices.
        model: a built Keras model.
        rules: layouts that the user gave; see `rudel.Mesh`.

    Raises:
        OptionError: the layouts do not fit the model.
    """

    def __init__(self, mesh: jax.sharding.Mesh, model: "keras.Model", rules: Mapping[str, Any] | None) -> None:
        self.mesh, self.axes = mesh, dict(mesh.shape)
        self.shards = self.axes.get(DATA, 1)
        """The number of shards of a batch."""
        self.layouts = layouts_of(model, self.axes, rules)
        self.replicated = self._sharding()
        """Whole on every device."""
        variables = model_state.variables(model)
        only_data = self.shards if self.shards == mesh.size and not self.layouts.specs else 1
        self.slots = slots_of(variables.optimizer, variables.trainable, self.layouts.of, only_data)
        self.state = ModelState(
            [self._sharding(*self.layouts.of(v)) for v in variables.trainable],
            [self._sharding(*self.layouts.of(v)) for v in variables.non_trainable],
            [self._sharding(*spec) for spec in self.slots.specs],
            [self.replicated for _ in variables.metrics],
        )

    def batches(self, rows: int) -> NamedSharding:
        """Of an array of batches (steps, rows, ...): sharded along its rows, or replicated if these do not divide."""
        return self._sharding(None, DATA) if self._can_be_cut(rows) else self.replicated

    def batch(self, rows: int) -> NamedSharding:
        """Of one batch (rows, ...)."""
        return self._sharding(DATA) if self._can_be_cut(rows) else self.replicated

    def columns(self, rows: int) -> Integer[np.ndarray, "needed"]:
        """Rows of every batch that the devices of this process need, in their order."""
        places = self.batch(rows).addressable_devices_indices_map((rows,))
        needed = {range(rows)[place[0]] for place in places.values() if place}
        return np.array(sorted({row for shard in needed for row in shard}), np.intp)

    def put(self, array: jax.typing.ArrayLike, sharding: NamedSharding) -> jax.Array:
        """A whole array, which every process has, as one on the mesh; its memory is its own."""
        array = np.asarray(array)  # of a device's array, a part of the new one would be the same memory
        if agree.alone():
            return jax.device_put(array, sharding, may_alias=False)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: np.array(array[index], copy=True))

    def share(self, tree: Tree) -> Any:
        """Arrays that are only read, replicated; on processors, these are the arrays themselves."""
        if agree.alone():
            return jax.device_put(tree, self.replicated)

        def put(a: Any) -> jax.Array:
            return jax.make_array_from_callback(a.shape, self.replicated, lambda index: a[index])

        return jax.tree.map(put, model_state.as_on_device(tree))

    def put_key(self, key: jax.Array) -> jax.Array:
        """A random key, on every device."""
        return jax.random.wrap_key_data(self.put(np.asarray(jax.random.key_data(key)), self.replicated))

    def put_batches(self, tree: Tree, rows: int) -> Any:
        """Batches (steps, this process' rows, ...) as arrays (steps, rows, ...) on the mesh."""
        sharding = self.batches(rows)

        def put(array: np.ndarray) -> jax.Array:
            shape = (array.shape[0], rows, *array.shape[2:])
            return jax.make_array_from_process_local_data(sharding, array, shape)

        return jax.tree.map(put, model_state.as_on_device(tree))

    def _can_be_cut(self, rows: int) -> bool:
        return rows % self.shards == 0 and self.shards > 1

    def _sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def check_batch(batch_size: int, axes: Mapping[str, int]) -> None:
    """Refuses a batch that cannot be sharded into equal parts.

    Raises:
        OptionError: says which ones can.

    >>> check_batch(30, {"data": 4})
    Traceback (most recent call last):
    rudel.errors.OptionError: A batch of 30 cannot be divided into 4 equal shards, for the mesh data=4: ...
    """
    shards = axes.get(DATA, 1)
    if batch_size % shards:
        below, above = batch_size // shards * shards, -(-batch_size // shards) * shards
        nearest = f"{below} or {above}" if below else f"{above}"
        raise OptionError(
            f"A batch of {batch_size} cannot be divided into {shards} equal shards, for the mesh {written_axes(axes)}: "
            f"give a batch_size of {nearest}."
        )


def on_host(value: jax.Array) -> np.ndarray:
    """A whole copy of an array that may be spread over devices and processes; all processes have to ask for it."""
    if value.is_fully_replicated:
        return np.array(value.addressable_data(0), copy=True)
    if value.is_fully_addressable:
        return np.array(value, copy=True)
    from jax.experimental import multihost_utils

    return np.array(multihost_utils.process_allgather(value, tiled=True), copy=True)


def on_one_device(value: jax.Array) -> Any:
    """The same on the first device of this process, as Keras' variables want it, or in memory on its way there."""
    if value.is_fully_replicated:
        return jax.numpy.array(value.addressable_data(0), copy=True)
    return on_host(value)
