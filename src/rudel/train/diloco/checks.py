"""What has to hold of a worker before it can take part, in one sentence each."""

import importlib.metadata
from typing import Any

from rudel.errors import ClusterError, ModelError
from rudel.train.diloco.service import VERSIONED

_SPARE_BYTES = 250e6
"""What a worker takes before it has a model: Python, JAX, Dask, and room for compiling."""


def check_versions(description: dict[str, Any]) -> None:
    """Refuses a worker whose packages are others than those here.

    Raises:
        ClusterError: names the first that differs, and what mends it.
    """
    for name in VERSIONED:
        here, there = importlib.metadata.version(name), description["versions"].get(name, "none")
        if here != there:
            raise ClusterError(
                f"{description['name']} has {name} {there}, and this computer has {here}: run `rudel hosts setup "
                f"{description['name']}`, or install the same version there."
            )


def check_memory(description: dict[str, Any], state: Any, data_bytes: float) -> None:
    """Refuses a model that a host cannot hold.

    A replica has the model's state twice while a step runs, and the weights four more times: the merged ones, the outer
    optimizer's state, the residual and the delta.

    Args:
        description: of the worker.
        state: the model's `ModelState`, on the host.
        data_bytes: of the replica's examples.

    Raises:
        ModelError: says how much is needed and how much there is.
    """
    weights = sum(w.size * 4 for w in state.trainable)
    everything = sum(value.nbytes for part in state for value in part)
    needed = 2 * everything + 4 * weights + data_bytes + _SPARE_BYTES
    if needed > description["memory"]:
        raise ModelError(
            f"The model is too large for {description['name']}: it needs about {needed / 1e9:.1f} GB of memory "
            f"there, and "
            f"{description['memory'] / 1e9:.1f} GB are free; take a smaller model, or leave that host out."
        )
