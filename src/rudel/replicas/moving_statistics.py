"""The moving statistics of batch normalisation, on replicas that each see a share of the batches.

Between two merges, the statistics of a replica follow its own batches, and a merge takes the replicas' mean. So they
have moved as far as `steps` batches move them, where those of one computer would have moved as far as
`replicas * steps` do: after a fraction of the training that is as large, they are further behind the weights, by which
the evaluations and the model at the end suffer. With the momentum to the power of `replicas`, they move as far.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rudel.backend import keras_here

if TYPE_CHECKING:
    import keras


def quicken(model: "keras.Model", replicas: int) -> None:
    """Lets the statistics of a model's batch normalisation keep pace with the batches of all replicas."""
    for layer in _normalisations(model):
        layer.momentum **= replicas


@contextlib.contextmanager
def quickened(model: "keras.Model", replicas: int) -> Iterator[None]:
    """`quicken`, inside the block."""
    before = [(layer, layer.momentum) for layer in _normalisations(model)]
    try:
        quicken(model, replicas)
        yield
    finally:
        for layer, momentum in before:
            layer.momentum = momentum


def _normalisations(model: "keras.Model") -> list["keras.layers.BatchNormalization"]:
    from rudel.internals.keras import layers_of

    found = {id(layer): layer for layer in layers_of(model)}  # a layer that is used twice is listed twice
    return [layer for layer in found.values() if isinstance(layer, keras_here().layers.BatchNormalization)]
