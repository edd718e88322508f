"""A step in a fixed number of parts, whose results are the same bits on any number of devices.

A batch is cut into so many parts, whatever the number of devices. Each device computes some of them side by side, with
weights of their own, so that every product has the same form everywhere. What belongs together is put together in one
order: moments of batch normalisation, outputs (loss and metrics are those of the whole batch), and gradients, which are
added in pairs, pairs of pairs, and so on, over the parts of a device and then over devices. A sum over devices is left
to no library, as each adds in an order of its own. An exchange for every batch normalisation, forwards and backwards,
one of outputs, and two of gradients, all of which are one array then.

Limits: processors; numbers of devices and parts that are powers of two, at least two parts on a device and two
examples in a part, as XLA compiles a dimension of one otherwise; models of Keras' own layers that treat each example by
itself. That XLA compiles the same arithmetic for any number of parts on a device is what was seen, not what it
promises.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from rudel.errors import OptionError
from rudel.train.loop import Batch
from rudel.train.mesh.devices import DATA
from rudel.train.mesh.masks import masks_of_parts
from rudel.train.mesh.moments import moments_of_parts, pairwise

_PART = "part"
"""The axis of the parts that one device computes."""

COMPILER_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""For XLA: no kernels of the library YNNPACK, as their use depends on how much a device has to compute."""

_KNOWN = (
    *("activations", "attention", "convolutional", "merging", "pooling", "reshaping", "preprocessing.rescaling"),
    *(f"core.{name}" for name in ("dense", "einsum_dense", "embedding", "identity", "input_layer")),
    *(f"normalization.{kind}_normalization" for kind in ("batch", "group", "layer", "rms", "unit")),
    *("regularization.dropout", "regularization.spatial_dropout"),
)
"""Keras' modules of layers that treat each example by itself, but for batch normalisation."""


def check_parts(model: Any, parts: int, mesh: jax.sharding.Mesh, rows: int) -> None:
    """Refuses what cannot be computed in so many parts.

    Raises:
        OptionError: says what and why.
    """
    devices = mesh.size
    if mesh.devices.flat[0].platform != "cpu" or mesh.shape.get(DATA) != devices:
        raise OptionError("The option `parts` is for processors and a mesh that cuts batches alone: leave it out.")
    if not _power_of_two(devices) or parts < 2 * devices:
        raise OptionError(
            f"{devices} devices cannot compute {parts} parts in one order: take 1, 2, 4, 8 ... devices, and at least "
            "twice as many parts."
        )
    if rows % parts or rows < 2 * parts:
        raise OptionError(
            f"A batch of {rows} cannot be cut into {parts} equal parts of two examples or more: give a batch_size of "
            f"{max(2, rows // parts) * parts}, or fewer parts."
        )
    if strange := _strange(model):
        raise OptionError(
            f"The option `parts` is for models of Keras' own layers that treat each example by itself, and "
            f"{strange} may not: leave it out."
        )
    if devices == 1:
        raise OptionError(
            "In `parts`, one device is computed as two halves, which JAX has to know before it starts: give "
            "`--devices 1`, or rudel.Mesh(devices=1, ...)."
        )


def train_step(
    model: Any, mesh: jax.sharding.Mesh, parts: int, state: tuple[Any, ...], batch: Batch
) -> tuple[Any, tuple[Any, ...]]:
    """Keras' own, in parts.

    Args:
        model: a model that `check_parts` lets pass.
        mesh: its axis `data` is all there is.
        parts: how many.
        state: trainable, non-trainable, optimizer's, and metrics' variables, whole on every device.
        batch: `(x,)`, `(x, y)` or `(x, y, sample_weight)`, cut along `data`.

    Returns:
        What `train_step` does: logs, and the new state.
    """
    import keras

    from rudel.internals.keras_jax import update_metrics

    trainable, _, optimizer, _ = state
    x = keras.utils.unpack_x_y_sample_weight(batch)[0]

    def local(state: tuple[Any, ...], batch: Batch) -> Any:
        return _local(model, Parts(parts, mesh.size), state, batch)

    whole, cut = PartitionSpec(), PartitionSpec(DATA)
    region = jax.shard_map(local, mesh=mesh, in_specs=(whole, cut), out_specs=whole, check_vma=False)
    gradients, (loss, non_trainable, metrics, (y_pred, y, weight)) = region(
        state, keras.utils.unpack_x_y_sample_weight(batch)
    )
    trainable, optimizer = model.optimizer.stateless_apply(optimizer, gradients, trainable)
    logs, metrics = update_metrics(model, metrics, loss, x, y, y_pred, weight)
    return logs, (trainable, non_trainable, optimizer, metrics)


class Parts:
    """The parts of a batch, of which each device has some.

    Args:
        count: parts of the batch.
        devices: that share them.
    """

    def __init__(self, count: int, devices: int) -> None:
        self.count, self.devices, self.each = count, devices, count // devices

    def numbers(self) -> jax.Array:
        """Those of this device, int32 (each,)."""
        return lax.axis_index(DATA) * self.each + jnp.arange(self.each)

    def everywhere(self, value: jax.Array) -> jax.Array:
        """What every part has, (parts, ...), in all of them."""
        return lax.all_gather(lax.all_gather(value, _PART), DATA, tiled=True)

    def added(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Arrays (each, ...) of all devices, added over all parts; those of a dtype travel as one."""
        own = [pairwise(array) for array in arrays]
        found: dict[int, jax.Array] = {}
        for dtype in dict.fromkeys(array.dtype for array in own):
            alike = [i for i, array in enumerate(own) if array.dtype == dtype]
            packed = jnp.concatenate([own[i].reshape(-1) for i in alike])
            size = len(packed)
            slices = jnp.pad(packed, (0, -size % self.devices)).reshape(self.devices, -1)
            total = pairwise(lax.all_to_all(slices, DATA, 0, 0))  # a device adds up one slice of them all
            pieces = jnp.split(lax.all_gather(total, DATA, tiled=True)[:size], _ends([own[i].size for i in alike])[:-1])
            found |= {i: piece.reshape(own[i].shape) for i, piece in zip(alike, pieces, strict=True)}
        return [found[i] for i in range(len(own))]


class _Part:
    """A Keras model that computes one part, and loss and metrics of all of them."""

    def __init__(self, model: Any, parts: Parts, number: jax.Array) -> None:
        self.__dict__.update(_model=model, _parts=parts, _number=number, whole=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._model, name, value)

    def stateless_call(self, *arguments: Any, **settings: Any) -> Any:
        """See Keras; the penalties of weights count once, and have their gradient from all parts together."""
        y_pred, non_trainable, losses = self._model.stateless_call(*arguments, **settings)
        shares = [loss / self._parts.count for loss in losses]
        return y_pred, non_trainable, [a + lax.stop_gradient(b - a) for a, b in zip(shares, losses, strict=True)]

    def stateless_compute_loss(self, *arguments: Any, y: Any, y_pred: Any, sample_weight: Any, **settings: Any) -> Any:
        """See Keras; of the whole batch."""
        whole = together(self._parts, self._number, y_pred, (y, sample_weight))
        y_pred, (y, sample_weight) = self.__dict__["whole"] = whole
        return self._model.stateless_compute_loss(
            *arguments, y=y, y_pred=y_pred, sample_weight=sample_weight, **settings
        )


def together(parts: Parts, number: jax.Array, outputs: Any, targets: Any) -> tuple[Any, Any]:
    """Outputs and targets (rows, ...) of all parts as those of the batch, in one exchange.

    The gradient of outputs is that of the whole batch, which all parts compute, cut to the part.
    """

    @jax.custom_vjp
    def gathered(outputs: Any, targets: Any) -> Any:
        return _packed(parts.everywhere, (outputs, targets))

    def forwards(outputs: Any, targets: Any) -> Any:
        return gathered(outputs, targets), number

    def backwards(number: jax.Array, gradients: Any) -> Any:
        def mine(whole: jax.Array) -> jax.Array:
            return lax.dynamic_index_in_dim(whole.reshape(parts.count, -1, *whole.shape[1:]), number, keepdims=False)

        return jax.tree.map(mine, gradients[0]), None

    gathered.defvjp(forwards, backwards)
    return gathered(outputs, lax.stop_gradient(targets))


def _local(model: Any, parts: Parts, state: tuple[Any, ...], batch: Batch) -> Any:
    """What one device computes: gradients of the batch, and of the whole batch what Keras' steps need thereafter."""
    trainable, non_trainable, optimizer, metrics = state

    def one(weights: Any, batch: Batch, number: jax.Array) -> Any:
        x, y, weight = batch
        rows = len(jax.tree.leaves(x)[0])

        def loss_of(weights: Any) -> Any:
            part = _Part(model, parts, number)
            loss, (unscaled, _, non, tracked) = type(model).compute_loss_and_updates(
                part, weights, non_trainable, metrics, x, y, weight, training=True, optimizer_variables=optimizer
            )
            y_pred, (y_all, weight_all) = part.__dict__["whole"]
            return loss, (unscaled, non, tracked, (y_pred, y_all, weight_all))

        with moments_of_parts(parts.everywhere), masks_of_parts(rows, number):
            return jax.grad(loss_of, has_aux=True)(weights)

    weights = [jnp.broadcast_to(weight, (parts.each, *weight.shape)) for weight in trainable]
    weights = lax.optimization_barrier(weights)
    cut = jax.tree.map(lambda array: array.reshape(parts.each, -1, *array.shape[1:]), batch)
    gradients, told = jax.vmap(one, axis_name=_PART)(weights, cut, parts.numbers())
    return parts.added(gradients), jax.tree.map(lambda array: array[0], told)


def _packed(exchange: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
    """Arrays (rows, ...), exchanged as one array of bytes, (parts, rows, bytes), as arrays (parts * rows, ...)."""
    leaves, form = jax.tree.flatten(tree)
    columns = [leaf.astype(jnp.uint8) if leaf.dtype == bool else leaf for leaf in leaves]
    columns = [lax.bitcast_convert_type(leaf, jnp.uint8).reshape(len(leaf), -1) for leaf in columns]
    every = exchange(jnp.concatenate(columns, axis=1))
    every = every.reshape(-1, every.shape[-1])
    found = []
    for leaf, column in zip(leaves, jnp.split(every, _ends([c.shape[1] for c in columns])[:-1], axis=1), strict=True):
        size = leaf.dtype.itemsize
        shape = (len(every), *leaf.shape[1:], *([size] if size > 1 else []))
        column = column.reshape(shape)
        found.append(column != 0 if leaf.dtype == bool else lax.bitcast_convert_type(column, leaf.dtype))
    return jax.tree.unflatten(form, found)


def _ends(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[: i + 1]) for i in range(len(sizes))]


def _strange(model: Any) -> str | None:
    """What of a model may not treat each example by itself."""
    import keras

    from rudel.internals.keras import layers_of, module_of

    for layer in layers_of(model):
        if isinstance(layer, keras.Model):
            if not type(layer).__module__.startswith("keras."):
                return f"the model `{layer.name}`, whose class is not Keras' own,"
            unknown = [op.name for op in getattr(layer, "operations", ()) if not isinstance(op, keras.Layer)]
            if unknown:
                return f"the operation `{unknown[0]}`"
            continue
        module = module_of(layer)
        known = any(module == name or module.startswith(f"{name}.") for name in _KNOWN)
        if not known or layer.activity_regularizer is not None or getattr(layer, "mask_zero", False):
            return f"the layer `{layer.name}`"
    return None


def _power_of_two(number: int) -> bool:
    return number > 0 and math.log2(number).is_integer()
