"""The strategy `mesh`: one program over all devices that JAX sees, of one process or of several.

Guarantee: the same seed and global batch give the same losses on any number of devices, but for rounding; a run can be
resumed on another number of them, as checkpoints hold whole arrays. With several processes, all take the same
decisions (`agree`), and process 0 alone has a run directory and a display. Callbacks act in all of them, on models that
have the same weights, with the logs of process 0; whether one has ended the training, process 0 says.

Limit: outside of the loop, the model's variables are whole, on one device; a model and the slots of its optimizer have
to fit there once, though not while it trains.
"""

import platform
import time
from collections import Counter
from typing import Any

import jax
import numpy as np

from rudel.backend import without_tensorflow
from rudel.errors import NonFiniteError
from rudel.report.words import plural
from rudel.train import state as model_state
from rudel.train.checkpoint import Checkpoint
from rudel.train.display import Display
from rudel.train.feed import Resident, Streamed
from rudel.train.identity import fingerprint_of, identity_of
from rudel.train.interrupt import Interrupts
from rudel.train.job import Job
from rudel.train.loop import Program
from rudel.train.mesh import agree, devices
from rudel.train.mesh.evaluation import MeshEvaluator
from rudel.train.mesh.feed import feed_of
from rudel.train.mesh.in_parts import check_parts
from rudel.train.mesh.options import Mesh
from rudel.train.mesh.placement import Placement, check_batch, on_host, on_one_device
from rudel.train.mesh.program import compile_training
from rudel.train.results import versions
from rudel.train.run_directory import RunDirectory
from rudel.train.single import Training
from rudel.train.state import ModelState

BLOCK_SECONDS = 1.5
"""Aim for the length of a block of several processes, which have to agree on what comes after each."""


class MeshTraining(Training):
    """See the module; arguments as of `Training`, and:

    Args:
        options: of the strategy.
    """

    def __init__(
        self,
        keras: Any,
        job: Job,
        run: RunDirectory | None,
        saved: Checkpoint | None,
        display: Display,
        began: float,
        *,
        options: Mesh,
    ) -> None:
        self._options = options
        self._check_versions()
        self._mesh = devices.make_mesh(options.virtual_devices, options.virtual_axes)
        check_batch(job.schedule.batch_size, dict(self._mesh.shape))
        self._hosts = list(dict.fromkeys(agree.everyone(platform.node())))
        self._keeps = bool(agree.first(run is not None))
        self._written: ModelState | None = None
        self._failed = False
        self._next_block = 0
        if not agree.alone():
            saved = _shared(saved)
            display = display if agree.is_first() else Display()
        super().__init__(keras, job, run, saved, display, began)
        if not agree.alone():
            self._interrupts = SharedInterrupts()
            self.block_seconds = BLOCK_SECONDS
        self.display.note(f"mesh {described(self._chosen())}")

    @property
    def about(self) -> dict[str, Any]:
        """What the summary says of how it was trained."""
        told = {"strategy": "mesh", "strategy_options": self._chosen(), "hosts": self._hosts}
        told["samples"] = self.position.step * self.job.schedule.batch_size
        return told | ({"bytes_sent": 0, "bytes_received": 0} if agree.alone() else {})

    # -- where things are -----------------------------------------------------------------------------------------

    def _compile(self) -> None:
        job = self.job
        if not agree.alone():
            about = {"recipe": job.model.name} | {"options": {"steps": job.schedule.total_steps}}
            schedule = job.schedule
            with without_tensorflow():
                told = identity_of(job.model, job.train, schedule.batch_size, schedule.seed, schedule.shuffle, about)
            told["validation data (fingerprint)"] = None if job.validation is None else fingerprint_of(job.validation)
            told["number of validation examples"] = len(job.validation or ())
            told["validation batch size"] = job.validation_batch_size
            form = self._initial_form()
            agree.check_same(
                told | {"settings": (job.eval_every, job.monitor, job.stop_early, len(job.callbacks), form)}
            )
            self._take_weights_of_the_first()
        self._placement = Placement(self._mesh, job.model, self._options.layouts)  # type: ignore[arg-type]  # the same
        if self._options.parts:
            check_parts(job.model, self._options.parts, self._mesh, job.schedule.batch_size)
        self._state = self._read_state()
        super()._compile()
        began = time.perf_counter()
        agree.numbers([0])  # who has compiled waits for the others, so that nobody counts that as training
        self.position.clock.compile += time.perf_counter() - began

    def _make_feed(self) -> Resident | Streamed:
        return feed_of(self.job.train, self.job.schedule, self.job.model, self._placement)

    def _compile_steps(self, feed: Resident | Streamed) -> tuple[Program, Any]:
        job = self.job
        rows, parts = job.schedule.batch_size, self._options.parts
        return compile_training(
            job.model, self._placement, self._state, feed.data, feed.order, rows, job.augment, parts
        )

    def _new_evaluator(self, examples: Any, batch_size: int, what: str) -> MeshEvaluator:
        return MeshEvaluator(self.job.model, self._placement, self._state, examples, batch_size, what)

    def _read_state(self) -> ModelState:
        """The model's values on the mesh; what has not changed since it was written is there already."""
        values, places = model_state.read(self._model), self._placement.state
        if self._written is None:
            return jax.tree.map(self._placement.put, values, places)

        def placed(value: Any, place: Any, written: Any, there: Any) -> Any:
            return there if value is written else self._placement.put(value, place)

        return jax.tree.map(placed, values, places, self._written, self._state)

    def _write_state(self) -> None:
        if self._failed:  # and the others wait for something else
            return
        if any(value.is_deleted() for value in jax.tree.leaves(self._state)):  # a block failed, and took it along
            return
        model_state.write(self._model, jax.tree.map(on_one_device, self._state))
        self._written = jax.tree.map(lambda variable: variable.value, model_state.variables(self._model))

    def _fresh_metrics(self) -> list[Any]:
        return [self._placement.put(value, self._placement.whole) for value in self._initial_metrics]

    def _train_until(self, end: int) -> dict[str, float]:
        self._written = None
        for variable in jax.tree.leaves(model_state.variables(self._model)):
            variable.value.delete()  # until they are written, the variables have no values; see `state.read`
        return super()._train_until(end)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._keeps:
            self._gathered = jax.tree.map(on_host, self._state)
            super()._save()
            del self._gathered
            self._saved_step = self.position.step

    def _to_keep(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return model_state.as_arrays(self._gathered), {}

    def _weights_at_hand(self) -> ModelState:
        return model_state.to_host(model_state.variables(self._model))  # type: ignore[arg-type]  # read like arrays

    def _restore_state(self, saved: Checkpoint) -> None:
        super()._restore_state(saved)
        self._written = None
        self._state = self._read_state()

    # -- what is agreed on ----------------------------------------------------------------------------------------

    def _check_versions(self) -> None:
        """Refuses processes with other packages or options, before anything depends on them."""
        if not agree.alone():
            told = {f"version of {package}": version for package, version in versions().items() if package != "python"}
            agree.check_same(told | {f"option {name}": value for name, value in vars(self._options).items()})

    def _train(self) -> None:
        try:
            super()._train()
        except BaseException as error:
            self._failed = not agree.alone() and not isinstance(error, NonFiniteError | KeyboardInterrupt | SystemExit)
            raise

    def _block_steps(self) -> int:
        agreed, self._next_block = self._next_block, 0
        return agreed or agree.first(super()._block_steps())

    def _checkpoint_is_due(self) -> bool:
        """Agrees, in one exchange, on all that has to be known between two blocks."""
        if not isinstance(self._interrupts, SharedInterrupts):
            return super()._checkpoint_is_due()
        said = [self._interrupts.noted, int(super()._checkpoint_is_due()), super()._block_steps()]
        heard = agree.numbers(said)
        self._interrupts.hear(int(heard[:, 0].max()))
        due = bool(heard[0, 1] or (self._keeps and self._interrupts.received))
        self._next_block = 0 if due else int(heard[0, 2])  # after a checkpoint there are others until the next one
        return due

    def _keep_if_best(self, number: int, logs: dict[str, float]) -> None:
        logs |= agree.first(logs)
        super()._keep_if_best(number, logs)

    def _end_of_span(self, number: int, logs: dict[str, float]) -> dict[str, float]:
        logs = super()._end_of_span(number, logs)
        self._model.stop_training = agree.first(bool(self._model.stop_training))
        return logs

    def _initial_form(self) -> list[Any]:
        """Shapes and dtypes of all variables."""
        return [(value.shape, str(value.dtype)) for value in jax.tree.leaves(self._state)]

    def _take_weights_of_the_first(self) -> None:
        arrays = model_state.as_arrays(model_state.to_host(self._state)) if agree.is_first() else None
        arrays = agree.first_arrays(arrays)
        parts = [[arrays[f"{p}/{i}"] for i in range(len(getattr(self._state, p)))] for p in ModelState._fields]
        model_state.write(self._model, ModelState(*parts))

    # -- what people are told -------------------------------------------------------------------------------------

    def _chosen(self) -> dict[str, Any]:
        placement, device = self._placement, self._mesh.devices.flat[0]
        kind = "virtual, of the processor" if device.platform == "cpu" else device.device_kind
        told: dict[str, Any] = {"devices": f"{self._mesh.size} ({kind})", "axes": devices.told(placement.axes)}
        if self._options.parts:
            told["parts"] = self._options.parts
        if placement.layouts.specs:
            told["layouts"] = dict(placement.layouts.why)
        if placement.layouts.whole:
            told["whole"] = list(placement.layouts.whole)
        if placement.slots.saved:
            told["optimizer"] = f"cut along data, which saves {placement.slots.saved / 1e6:,.0f} MB on each device"
        return told


def described(chosen: dict[str, Any]) -> str:
    """What was chosen, in a line, of the `strategy_options` of a run.

    >>> described({"devices": "2 (virtual, of the processor)", "axes": "model=2", "layouts": {"a": "-,model: by rows"}})
    'model=2 on 2 devices (virtual, of the processor); cut: 1 variable by rows'
    """
    count, _, kind = chosen["devices"].partition(" ")
    parts = [f"{chosen['axes']} on {plural(int(count), 'device')} {kind}"]
    if "parts" in chosen:
        parts.append(f"batches in {chosen['parts']} parts, added in one order")
    if "layouts" in chosen:
        ways = Counter(why.partition(": ")[2] for why in chosen["layouts"].values())
        parts.append(
            "cut: " + ", ".join(f"{n} {'variable' if n == 1 else 'variables'} {way}" for way, n in ways.items())
        )
    if "whole" in chosen:
        parts.append(f"whole, as their sizes do not divide: {', '.join(chosen['whole'])}")
    if "optimizer" in chosen:
        parts.append(f"optimizer {chosen['optimizer']}")
    return "; ".join(parts)


class SharedInterrupts(Interrupts):
    """Signals that are acted on when all processes have heard of them."""

    def __init__(self) -> None:
        super().__init__()
        self._noted = 0

    @property
    def noted(self) -> int:
        """The signal that this process has got, or 0."""
        return self._noted

    def hear(self, number: int) -> None:
        """Takes note of a signal that all have heard of, or of none, which is 0."""
        self._received = number or None

    def _note(self, number: int, frame: Any) -> None:
        self._noted = number
        self._restore()


def _shared(saved: Checkpoint | None) -> Checkpoint | None:
    """The checkpoint that process 0 goes on from, for all."""
    told = agree.first({"step": saved.step, "document": saved.document} if saved else None)
    if told is None:
        return None
    return Checkpoint(told["step"], agree.first_arrays(saved.arrays if saved else None), told["document"])
