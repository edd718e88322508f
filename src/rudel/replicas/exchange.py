"""Compiled programs that change a replica's weights between its steps: one takes its change, one merges all changes.

The weights, and those that all replicas have, stay where steps are computed, and a message's few bytes are all that is
read from there or brought there. Each of both is a program that passes over the weights once.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rudel.aliases import Tree
from rudel.array_types import Float, Float32
from rudel.replicas.codec.delta_codec import MOST, Codec, largest_of
from rudel.replicas.codec.weight_vector import Layout


class Exchange:
    """See the module.

    Args:
        weights: of the shapes and dtypes of the trainable variables.
        deltas, merges: codecs of what is sent and of what comes.
    """

    def __init__(self, weights: Sequence[Any], deltas: Codec, merges: Codec) -> None:
        self._deltas, self._merges, self._layout = deltas, merges, Layout.of(weights)
        own = [jax.ShapeDtypeStruct(weight.shape, weight.dtype) for weight in weights]
        shared = [jax.ShapeDtypeStruct(weight.shape, np.float32) for weight in weights]
        sent, came = (jax.eval_shape(codec.form.write, shared) for codec in (deltas, merges))
        self._take = jax.jit(self._taken).lower(own, shared).compile()
        self._merge = jax.jit(self._merged, donate_argnums=(0, 1)).lower(own, shared, sent, came).compile()

    def take(self, own: Sequence[Any], shared: Sequence[Any]) -> tuple[list[Any], bytes]:
        """Encodes the change of a replica since the last exchange; the residual stays with the replica.

        Args:
            own, shared: the replica's weights, and those that all have.

        Returns:
            The arrays of the message, and the message; an empty one if a change is not finite or above `MOST`.
        """
        arrays, largest = self._take(_on_device(own), list(shared))
        return arrays, self._deltas.packed(arrays) if np.asarray(largest) <= MOST else b""

    def merge(
        self, own: Sequence[Any], shared: Sequence[Any], sent: Sequence[Any], message: bytes
    ) -> tuple[list[Any], list[Any]]:
        """Replaces what a replica has sent by what became of everybody's changes.

        Args:
            own, shared: as for `take`; consumed.
            sent: arrays of its message.
            message: how the weights that all have move.

        Returns:
            Both, moved.

        Raises:
            ValueError: the message is damaged.
        """
        came = self._merges.unpacked(message, self._layout)
        return self._merge(_on_device(own), list(shared), list(sent), came)

    def _taken(self, own: Sequence[Float[jax.Array, "..."]], shared: Sequence[Float32[jax.Array, "..."]]) -> Any:
        moved = [now.astype(jnp.float32) - start for now, start in zip(own, shared, strict=True)]
        return self._deltas.form.write(moved), largest_of(moved)

    def _merged(self, own: Sequence[jax.Array], shared: Sequence[jax.Array], sent: Tree, came: Tree) -> Any:
        shapes = self._layout.shapes
        left, moves = self._deltas.form.read(sent, shapes), self._merges.form.read(came, shapes)
        return (
            [(w.astype(jnp.float32) + (m - s)).astype(w.dtype) for w, m, s in zip(own, moves, left, strict=True)],
            [w + m for w, m in zip(shared, moves, strict=True)],
        )


def _on_device(weights: Sequence[Any]) -> list[Any]:
    """Weights as JAX takes them; another backend of Keras holds its own in another way."""
    if weights and not isinstance(weights[0], jax.Array):  # all are alike, and each question takes Python some time
        return [np.asarray(weight) for weight in weights]
    return list(weights)
