"""Layouts of the optimizer's variables: each follows its weight, or is sharded by itself to save memory.

Where batches alone are sharded, every device would hold the same slots (momentum, velocity). Of large ones, each device
then keeps a shard and updates that shard of the weight, and the shards of the weight are gathered: stage 1 of *ZeRO*
(S. Rajbhandari and others, 1910.02054). That costs bytes on the way, so it is done only where it saves much.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.mesh.layouts import Spec
from rudel.mesh.mesh_devices import DATA

if TYPE_CHECKING:
    import keras


LEAST_BYTES = 2**20
"""A slot of fewer bytes is not sharded by itself."""

LEAST_SAVED = 64e6
"""Nor is any, where that would save fewer bytes than this on each device."""


@dataclass(frozen=True)
class Slots:
    """The layout of each variable of an optimizer.

    Args:
        specs: one for each of them.
        saved: bytes that each device saves because slots are sharded by themselves.
    """

    specs: list[Spec]
    saved: int = 0


def slots_of(variables: Sequence[Any], weights: Sequence[Any], spec_of: Callable[[Any], Spec], data: int) -> Slots:
    """Chooses the layouts of an optimizer's variables.

    Args:
        variables: of the optimizer.
        weights: of the model, which it trains.
        spec_of: how a weight is sharded.
        data: the number of shards of a batch, where nothing else is sharded; else 1.
    """
    owners = [_owner(variable, weights) for variable in variables]
    specs = [() if owner is None else spec_of(owner) for owner in owners]
    if data == 1:
        return Slots(specs)
    own = [() if owner is None else _cut(variable, data) for variable, owner in zip(variables, owners, strict=True)]
    sizes = [_bytes(variable) for variable, spec in zip(variables, own, strict=True) if spec]
    saved = sum(sizes) - sum(sizes) // data
    return Slots(own, saved) if saved >= LEAST_SAVED else Slots(specs)


def _owner(variable: "keras.Variable", weights: Sequence[Any]) -> Any:
    """The weight that a slot belongs to: Keras names it after it, and it has its shape."""
    name = variable.path.rpartition("/")[2]
    fitting = [w for w in weights if w.shape == variable.shape and name.startswith(w.path.replace("/", "_") + "_")]
    return max(fitting, key=lambda weight: len(weight.path), default=None)


def _cut(variable: "keras.Variable", shards: int) -> Spec:
    """Along the largest dimension that can be sharded."""
    fitting = [i for i, size in enumerate(variable.shape) if size and size % shards == 0]
    if not fitting or _bytes(variable) < LEAST_BYTES:
        return ()
    longest = max(fitting, key=lambda i: variable.shape[i])
    return tuple(DATA if i == longest else None for i in range(longest + 1))


def _bytes(variable: "keras.Variable") -> int:
    return math.prod(variable.shape) * np.asarray(variable.value).dtype.itemsize
