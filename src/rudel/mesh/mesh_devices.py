"""The devices of a mesh: accelerators, or virtual ones of the processor."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.errors import OptionError, option

if TYPE_CHECKING:
    import jax

DATA, MODEL = "data", "model"
"""The axis along which batches are sharded, and the one along which variables are sharded where nobody says how."""


def size_of(axes: Mapping[str, int] | None) -> int:
    """The number of devices of a mesh of this shape; 0 if there is none."""
    return math.prod(axes.values()) if axes else 0


def reserve(count: int) -> None:
    """Makes JAX start with so many virtual devices on the processor; does nothing if it has started."""
    import jax

    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if jax.config.jax_num_cpu_devices < count:  # type: ignore[attr-defined]
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)


def make_mesh(count: int | None, axes: Mapping[str, int] | None) -> "jax.sharding.Mesh":
    """The requested mesh.

    Args:
        count: how many devices; None for as many as `axes` needs, or for all.
        axes: its shape; None for all devices along `data`.

    Raises:
        OptionError: there are not as many, or the shape does not fit them.
    """
    import jax
    from jax.experimental import mesh_utils

    there = jax.devices()
    needed = size_of(axes) or count or len(there)
    if count and count != needed:
        raise OptionError(
            f"The mesh {written_axes(axes)} has {needed} devices, which does not fit the {count} asked for: "
            f"give sizes whose product is {count}, or {option('devices', needed)}."
        )
    if needed > len(there):
        raise OptionError(_too_few(needed, there))
    if count is None and len(there) % needed:
        raise OptionError(
            f"The mesh {written_axes(axes)} has {needed} devices, which does not divide the {len(there)} that there "
            f"are: give sizes whose product is {_nearest_divisor(needed, len(there))} or {len(there)}, or "
            f"{option('devices', needed)} to leave the others out."
        )
    if needed < len(there) and jax.process_count() > 1:
        raise OptionError(
            f"A mesh over several hosts takes all of their {len(there)} devices, not {needed}: "
            f"give sizes whose product is {len(there)}."
        )
    shape = dict(axes) if axes else {DATA: needed}
    sizes = tuple(shape.values())
    if there[0].platform == "tpu" and needed == len(there):
        placed = mesh_utils.create_device_mesh(sizes, there)
    else:
        placed = np.array(there[:needed]).reshape(sizes)
    return jax.sharding.Mesh(placed, tuple(shape))


def written_axes(axes: Mapping[str, int] | None) -> str:
    """A shape as users write it.

    >>> written_axes({"data": 4, "model": 2})
    'data=4,model=2'
    """
    return ",".join(f"{name}={size}" for name, size in (axes or {}).items())


def _too_few(needed: int, there: Sequence[Any]) -> str:
    if there[0].platform != "cpu":
        return (
            f"{needed} devices are asked for, and there are {len(there)} ({there[0].device_kind}): ask for at most "
            f"{len(there)}, or set JAX_PLATFORMS=cpu to try it on virtual ones."
        )
    return (
        f"{needed} devices are asked for, and JAX has started with {len(there)} in this process: make the "
        f"rudel.Mesh(devices={needed}) before the first model, or set JAX_NUM_CPU_DEVICES={needed} in the environment."
    )


def _nearest_divisor(count: int, of: int) -> int:
    """The largest divisor of a number that is not above another."""
    return max(d for d in range(1, count + 1) if of % d == 0)
