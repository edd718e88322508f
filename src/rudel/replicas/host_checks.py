"""Conditions that a worker must meet before it can take part; one sentence for each that it does not."""

from typing import TYPE_CHECKING, Any

from rudel.cluster.hosts import REMOTE_PYTHON
from rudel.errors import ClusterError, ModelError
from rudel.shipping.host_packages import versioned, versions_here

if TYPE_CHECKING:
    from rudel.loop.model_state import ModelState


_SHARE_OF_MEMORY = 0.75
_SPARE_BYTES = 250e6
"""Memory of a worker before it has a model: Python, JAX, Dask, and room for compiling."""


def check_versions(description: dict[str, Any]) -> None:
    """Refuses a worker whose packages are others than those here.

    Raises:
        ClusterError: names the first that differs, and what mends it.
    """
    backend = description.get("backend", "jax")
    needed = versions_here(backend)
    for name in versioned(backend):
        here, there = needed.get(name, "none"), description["versions"].get(name, "none")
        if there == "none" and name == backend != "jax":
            raise ClusterError(
                f"{description['name']} has no {name}, on which Keras runs here: run `python -m pip install "
                f"{name}=={here}` there, with the Python of its workers, which is {REMOTE_PYTHON} where `rudel hosts "
                "setup` made it."
            )
        if here != there:
            raise ClusterError(
                f"{description['name']} has {name} {there}, and this computer has {here}: run `rudel hosts setup "
                f"{description['name']}`, or install the same version there."
            )


def belongs_on_disk(description: dict[str, Any], state: "ModelState", data_bytes: float, all_bytes: float) -> bool:
    """Whether a replica's examples are to be in a file on its host, of which the system keeps in memory what fits.

    Args:
        description: of the worker.
        state: the model's `ModelState`, on the host.
        data_bytes: of the replica's examples.
        all_bytes: of all examples; a replica reserves room for them.
    """
    memory = description["memory"]
    return _needed(state, data_bytes) > _SHARE_OF_MEMORY * memory or all_bytes > memory


def check_disk(description: dict[str, Any], data_bytes: float) -> None:
    """Refuses examples that a host's disk cannot hold.

    Raises:
        ClusterError: says how much is needed and how much there is.
    """
    if data_bytes > description["disk"]:
        raise ClusterError(
            f"{description['name']} has {description['disk'] / 1e9:.1f} GB free on its disk, and its share of the data "
            f"takes {data_bytes / 1e9:.1f} GB: make room there, set RUDEL_CACHE there to a folder on a larger disk, or "
            "train on more hosts."
        )


def check_memory(description: dict[str, Any], state: "ModelState", data_bytes: float) -> None:
    """Refuses a model that a host cannot hold.

    Args:
        description: of the worker.
        state: the model's `ModelState`, on the host.
        data_bytes: of the replica's examples.

    Raises:
        ModelError: says how much is needed and how much there is.
    """
    needed = _needed(state, data_bytes)
    if needed > description["memory"]:
        raise ModelError(
            f"The model is too large for {description['name']}: it needs about {needed / 1e9:.1f} GB of memory "
            f"there, and "
            f"{description['memory'] / 1e9:.1f} GB are free; take a smaller model, or leave that host out."
        )


def room_for_data(description: dict[str, Any], state: "ModelState", on_disk: bool) -> float:
    """Bytes of examples that a host can hold.

    Args:
        description: of the worker.
        state: the model's `ModelState`, on the host.
        on_disk: where the examples are to be.
    """
    return description["disk"] if on_disk else max(0.0, description["memory"] - _needed(state, 0))


def _needed(state: "ModelState", data_bytes: float) -> float:
    """Bytes that a replica takes.

    It has the model's state twice while a step runs, and the weights four more times: the merged ones, the delta, the
    sizes of its elements, and what is sent of it.
    """
    weights = sum(w.size * 4 for w in state.trainable)
    everything = sum(value.nbytes for part in state for value in part)
    return 2 * everything + 4 * weights + data_bytes + _SPARE_BYTES
