"""Options of the strategy `mesh`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rudel.errors import OptionError
from rudel.loop.schedule import check_whole_number
from rudel.mesh import mesh_devices as devices
from rudel.mesh.hosts.join import joined
from rudel.mesh.layouts import Spec, read_layouts
from rudel.session.plain_numbers import use_plain_numbers

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster
    from rudel.session.engine import Engine
    from rudel.session.job import Job


@dataclass(frozen=True)
class Mesh:
    """One program over all devices; every step is agreed on by all of them.

    Args:
        devices: how many to use; None for what `axes` needs, or for all there are. On a computer without accelerators
            these are virtual: JAX reads their number when it starts, so make the options before the first model.
        axes: the shape of the mesh, by name: the batch is sharded along `data`, and variables along others, usually
            `model`. A mapping, or a text such as `data=4,model=2`; None for all devices along `data`.
        layouts: which variables are sharded along which axes: by a regular expression that is searched for in the
            variable's path, an entry for each of its dimensions, None where that is not sharded. The first that matches
            counts. A mapping, or texts such as `dense.*kernel=-,model`; None to have them chosen, where there is an
            axis `model`.

    Raises:
        OptionError: a value that makes no sense.

    >>> Mesh(axes="data=1", layouts=["dense.*kernel=-,data"]).layouts
    {'dense.*kernel': (None, 'data')}
    """

    name: ClassVar[str] = "mesh"
    needs_hosts: ClassVar[bool] = False
    any_backend: ClassVar[bool] = False

    devices: int | None = None
    axes: Mapping[str, int] | str | None = field(default=None, metadata={"option": "mesh"})
    layouts: Mapping[str, Sequence[str | None]] | Sequence[str] | None = field(
        default=None, metadata={"option": "layout"}
    )

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        if self.devices is not None:
            check_whole_number("devices", self.devices)
        if self.axes is not None:
            object.__setattr__(self, "axes", read_axes(self.axes))
        if self.layouts is not None:
            object.__setattr__(self, "layouts", read_layouts(self.layouts))
        _check_used(self.axes, self.layouts)  # type: ignore[arg-type]  # read above
        self.prepare()

    def prepare(self) -> None:
        """Tells JAX, if it has not started yet, how many virtual devices there are to be."""
        count = self.devices or devices.size_of(self.axes)  # type: ignore[arg-type]  # read above
        if others := joined():
            count //= others.count
        if count > 1:
            devices.reserve(count)

    def engine(self, job: "Job", cluster: "RunningCluster | None") -> "Engine":
        """Makes what takes the steps; see `rudel.training.strategies.Strategy`."""
        if cluster is not None:
            from rudel.mesh.hosts.hosts_engine import HostsEngine

            return HostsEngine(cluster, self)
        from rudel.mesh.mesh_engine import mesh_engine

        return mesh_engine(job, self.devices, self.axes, self.layouts)  # type: ignore[arg-type]  # read above


def read_axes(axes: Mapping[str, Any] | str) -> dict[str, int]:
    """The shape of a mesh, by name.

    Raises:
        OptionError: it is none.

    >>> read_axes("data=4, model=2")
    {'data': 4, 'model': 2}
    """
    if isinstance(axes, str):
        parts = [part.partition("=") for part in axes.split(",")]
        names = [name.strip() for name, _, _ in parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise OptionError(f"The mesh {axes} has the axis `{twice}` twice: give each axis once, with its size.")
        axes = {name.strip(): int(size) if size.strip().isdigit() else size for name, _, size in parts}
    known = isinstance(axes, Mapping) and bool(axes)
    if not known or not all(isinstance(name, str) and name.isidentifier() and _is_size(n) for name, n in axes.items()):
        raise OptionError(
            f"A mesh is axes with sizes, as in `data=4,model=2` or {{'data': 4, 'model': 2}}, not {axes!r}."
        )
    return {name: int(size) for name, size in axes.items()}


def _check_used(axes: Mapping[str, int] | None, layouts: Mapping[str, Spec] | None) -> None:
    """Refuses axes along which nothing would be sharded."""
    named = {devices.DATA, devices.MODEL}.union(*(layouts or {}).values())
    if strange := next((axis for axis in axes or {} if axis not in named), None):
        raise OptionError(
            f"Nothing is sharded along the axis `{strange}` of the mesh {devices.written_axes(axes)}: batches "
            f"are sharded along `data` and variables along `model`, or name `{strange}` in a layout."
        )


def _is_size(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1
