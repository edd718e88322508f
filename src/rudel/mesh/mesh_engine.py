"""The engine of the strategy `mesh`: one program over all devices that JAX sees, of one process or of several.

Guarantee: the same seed and global batch give the same losses on any number of devices, but for rounding; a run can be
resumed on another number of them, as checkpoints hold whole arrays.

Limit: outside of the loop, the model's variables are whole, on one device; a model and the slots of its optimizer have
to fit there once, though not while it trains.
"""

import platform
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding

from rudel.aliases import Tree
from rudel.backend import without_tensorflow
from rudel.loop import model_state
from rudel.loop.compiled_loop import Program
from rudel.loop.evaluation import Evaluator
from rudel.loop.feed import Feed, StepBlock
from rudel.loop.model_state import ModelState
from rudel.mesh import agreement as agree
from rudel.mesh import mesh_devices as devices
from rudel.mesh.decisions import Together
from rudel.mesh.layouts import Spec
from rudel.mesh.mesh_evaluation import make_mesh_evaluator, mesh_validation_batch_size
from rudel.mesh.mesh_feed import feed_of
from rudel.mesh.mesh_loop import compile_training
from rudel.mesh.placement import Placement, check_batch, on_host, on_one_device
from rudel.report.formatting import plural
from rudel.runs.run_identity import fingerprint_of, identity_of
from rudel.session.compiled_engine import CompiledEngine
from rudel.session.job import Job
from rudel.session.local_engine import Alone
from rudel.session.results import versions
from rudel.session.session import Session

if TYPE_CHECKING:
    import keras


def mesh_engine(
    job: Job,
    count: int | None,
    axes: Mapping[str, int] | None,
    layouts: Mapping[str, Spec] | None,
    on_begin: Callable[[dict[str, Any], float], None] = lambda about, seconds: None,
) -> CompiledEngine:
    """Makes an engine that trains a job on all devices of all processes.

    Args:
        job: the training.
        count: how many devices to use; None for what `axes` needs, or for all.
        axes: the shape of the mesh; None for all devices along `data`.
        layouts: which variables are sharded along which axes; None to have them chosen.
        on_begin: see `CompiledEngine`.

    Raises:
        ModelError, OptionError: processes have other packages or options, or the devices and the batch do not fit.
    """
    if not agree.alone():  # before anything depends on them
        described = {f"version of {package}": version for package, version in versions().items() if package != "python"}
        chosen = {"devices": count, "axes": axes, "layouts": layouts}
        agree.check_same(described | {f"option {name}": value for name, value in chosen.items()})
    return CompiledEngine(MeshDevices(job, count, axes, layouts), Alone() if agree.alone() else Together(), on_begin)


class MeshDevices:
    """`Devices` in a mesh; outside of the loop, the model has whole arrays.

    Args:
        job: the training.
        count, axes, layouts: see `mesh_engine`.
    """

    def __init__(
        self, job: Job, count: int | None, axes: Mapping[str, int] | None, layouts: Mapping[str, Spec] | None
    ) -> None:
        self._layouts = layouts
        self._mesh = devices.make_mesh(count, axes)
        check_batch(job.schedule.batch_size, dict(self._mesh.shape))
        self._hosts = list(dict.fromkeys(agree.everyone(platform.node())))
        self._written: tuple[ModelState, ModelState] | None = None

    def prepare(self, session: Session) -> None:
        """See `Devices`.

        Raises:
            ModelError: other processes are about to train something else.
        """
        job = session.job
        if not agree.alone():
            _check_same(job)
            _take_weights_of_the_first(job.model)
        self._placement = Placement(self._mesh, job.model, self._layouts)

    def read(self, model: "keras.Model") -> ModelState:
        """See `Devices`; what has not changed since it was written is on the mesh already."""
        values, places = model_state.read(model), self._placement.state
        if self._written is None:
            return jax.tree.map(self._placement.put, values, places)

        def placed(value: Tree, place: NamedSharding, written: Tree, there: jax.Array) -> jax.Array:
            return there if value is written else self._placement.put(value, place)

        return jax.tree.map(placed, values, places, *self._written)

    def write(self, model: "keras.Model", state: ModelState) -> None:
        """See `Devices`."""
        if any(value.is_deleted() for value in jax.tree.leaves(state)):  # a block failed, and took it along
            return
        model_state.write(model, jax.tree.map(on_one_device, state))
        self._written = jax.tree.map(lambda variable: variable.value, model_state.variables(model)), state

    def release(self, model: "keras.Model") -> None:
        """See `Devices`; until they are written, the variables of the model have no values."""
        self._written = None
        for variable in jax.tree.leaves(model_state.variables(model)):
            variable.value.delete()

    def to_host(self, state: ModelState) -> ModelState:
        """See `Devices`; all processes have to call it."""
        return jax.tree.map(on_host, state)

    def feed(self, job: Job) -> Feed:
        """See `Devices`."""
        return feed_of(job.train, job.schedule, job.model, self._placement)

    def compile(self, job: Job, state: ModelState, block: StepBlock, ahead: bool) -> tuple[Program, Any]:
        """See `Devices`."""
        data, order, size, *_ = block
        return compile_training(job.model, self._placement, state, data, order, size, job.augment)

    def evaluator(self, job: Job, state: ModelState) -> Evaluator:
        """See `Devices`."""
        assert job.validation is not None
        size = mesh_validation_batch_size(job, self._placement.shards)
        return make_mesh_evaluator(job.model, self._placement, state, job.validation, size, "validation")

    def note(self) -> str:
        """See `Devices`."""
        return f"mesh {described(self._chosen())}"

    def describe(self) -> dict[str, Any]:
        """See `Devices`."""
        return {"strategy": "mesh", "strategy_options": self._chosen(), "hosts": self._hosts}

    def _chosen(self) -> dict[str, Any]:
        placement, device = self._placement, self._mesh.devices.flat[0]
        kind = "virtual, of the processor" if device.platform == "cpu" else device.device_kind
        chosen: dict[str, Any] = {
            "devices": f"{self._mesh.size} ({kind})",
            "axes": devices.written_axes(placement.axes),
        }
        if placement.layouts.specs:
            chosen["layouts"] = dict(placement.layouts.why)
        if placement.layouts.whole:
            chosen["whole"] = list(placement.layouts.whole)
        if placement.slots.saved:
            chosen["optimizer"] = (
                f"sharded along data, which saves {placement.slots.saved / 1e6:,.0f} MB on each device"
            )
        return chosen


def described(chosen: dict[str, Any]) -> str:
    """The chosen mesh and layouts, in a line, of the `strategy_options` of a run.

    >>> described({"devices": "2 (virtual, of the processor)", "axes": "model=2", "layouts": {"a": "-,model: by rows"}})
    'model=2 on 2 devices (virtual, of the processor); sharded: 1 variable by rows'
    """
    count, _, kind = chosen["devices"].partition(" ")
    parts = [f"{chosen['axes']} on {plural(int(count), 'device')} {kind}"]
    if "layouts" in chosen:
        ways = Counter(why.partition(": ")[2] for why in chosen["layouts"].values())
        parts.append(
            "sharded: " + ", ".join(f"{n} {'variable' if n == 1 else 'variables'} {way}" for way, n in ways.items())
        )
    if "whole" in chosen:
        parts.append(f"replicated, as their sizes do not divide: {', '.join(chosen['whole'])}")
    if "optimizer" in chosen:
        parts.append(f"optimizer {chosen['optimizer']}")
    return "; ".join(parts)


def _check_same(job: Job) -> None:
    """Refuses processes that are about to train something else, before the first of them waits for another."""
    about = {"recipe": job.model.name} | {"options": {"steps": job.schedule.total_steps}}
    schedule = job.schedule
    with without_tensorflow():
        same = identity_of(job.model, job.train, schedule.batch_size, schedule.seed, schedule.shuffle, about)
    same["validation data (fingerprint)"] = None if job.validation is None else fingerprint_of(job.validation)
    same["number of validation examples"] = len(job.validation or ())
    same["validation batch size"] = job.validation_batch_size
    form = [(tuple(v.shape), str(v.dtype)) for v in jax.tree.leaves(model_state.variables(job.model))]
    options = job.options
    same["settings"] = (options.eval_every, options.watched, options.stop_early, len(job.callbacks), form)
    agree.check_same(same)


def _take_weights_of_the_first(model: "keras.Model") -> None:
    arrays = agree.first_arrays(model_state.as_arrays(model_state.values(model)) if agree.is_first() else None)
    own = model_state.variables(model)._asdict()
    parts = [[arrays[f"{name}/{i}"] for i in range(len(part))] for name, part in own.items()]
    model_state.write(model, ModelState(*parts))
