"""Setups of replicas: the program of their steps, the form of their examples, the state that they begin with."""

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.backend import backend_name, keras_here
from rudel.loop.model_state import ModelState
from rudel.replicas.example_source import Source
from rudel.replicas.host_checks import belongs_on_disk, check_disk, check_memory, check_versions, room_for_data
from rudel.replicas.replica_program import RoundProgram, export_rounds
from rudel.replicas.shared_variables import is_shared
from rudel.session.job import Job
from rudel.shipping import array_bytes

if TYPE_CHECKING:
    import keras


_QUANTISED = ("int8", "uint8", "int16", "uint16")
"""Dtypes of quantised weights."""


class Setups:
    """Makes the setups of a training's replicas.

    Args:
        job: the training.
        state: of the model; only shapes and dtypes are looked at.
        source: of the examples.
        replicas: how many there are.

    Attributes:
        statistics: which non-trainable variables the replicas agree on; see `shared_variables.py`.
    """

    def __init__(self, job: Job, state: ModelState, source: Source, replicas: int) -> None:
        self._job, self._state, self._source, self._replicas = job, state, source, replicas
        self._seeds = [i for i, v in enumerate(job.model.non_trainable_variables) if _is_seed(v)]
        moving = set(range(len(state.non_trainable))) - _frozen(job.model) - set(self._seeds)
        self.statistics = [i for i in sorted(moving) if is_shared(np.asarray(state.non_trainable[i]))]
        self._programs: dict[str, RoundProgram] = {}
        self._tracing = threading.Lock()

    @property
    def log_form(self) -> Any:
        """The structure of what a step logs, see `RoundProgram`; known as soon as there is a setup."""
        return next(iter(self._programs.values())).log_form

    def pack_model(self) -> float:
        """Packs the model for replicas on which another backend of Keras than JAX takes its own steps.

        Returns:
            Seconds that it took.
        """
        from rudel.replicas.keras_steps import pack_steps

        job, began = self._job, time.perf_counter()
        first = job.train.take(slice(0, job.schedule.batch_size))
        batch = (first.x, first.y, first.sample_weight)
        self._programs[backend_name()] = pack_steps(job.model, self._source.form, batch, job.augment, self._replicas)
        return time.perf_counter() - began

    def setup(
        self,
        number: int,
        description: dict[str, Any],
        hosts: int,
        state: ModelState,
        metrics: Sequence[np.ndarray],
        names: dict[str, str],
    ) -> tuple[dict[str, Any], float]:
        """Fields of a replica's `Setup`, and how much of the data set its host can hold, as a share.

        May be called in several threads.

        Args:
            number: of the replica.
            description: what its host says of itself.
            hosts: how many there are.
            state: on the host, that the replica begins with, but for the weights.
            metrics: variables at the beginning of an epoch.
            names: of the codecs, by field.

        Raises:
            ModelError: the model is too large for the host, or cannot be traced or exported.
            ClusterError: the host's versions are others than those here.
        """
        check_versions(description)
        share = self._source.nbytes / max(1, hosts)
        on_disk = belongs_on_disk(description, state, share, self._source.nbytes)
        if on_disk:
            check_disk(description, share)
        check_memory(description, state, 0 if on_disk else share)
        program, schedule = self._program(description["platform"]), self._job.schedule
        logs = [np.zeros(shape, dtype) for shape, dtype in program.logs]
        parts = (state.non_trainable, state.optimizer, metrics, logs)
        room = room_for_data(description, state, on_disk) / max(1, self._source.nbytes)
        fields = {
            "code": program.code,
            "backend": backend_name(),
            "examples": len(self._job.train),
            "leaves": self._source.leaves,
            "on_disk": on_disk,
            "batch_size": schedule.batch_size,
            "seed": schedule.seed,
            "shuffle": schedule.shuffle,
            "number": number,
            "seeds": self._seeds,
            "statistics": self.statistics,
            "state": array_bytes.pack([value for part in parts for value in part]),
            "counts": [len(part) for part in parts],
        }
        return fields | names, room

    def _program(self, platform: str) -> RoundProgram:
        with self._tracing:
            if platform not in self._programs:
                job, form, rows = self._job, self._source.form, self._job.schedule.batch_size
                self._programs[platform] = export_rounds(
                    job.model, self._state, form, rows, job.augment, platform, self._replicas
                )
            return self._programs[platform]


def _is_seed(variable: "keras.Variable") -> bool:
    """Whether a variable is the state of a random generator."""
    named = variable.dtype == "uint32" or variable.name == "seed_generator_state"
    return named and tuple(variable.shape) == (2,)


def _frozen(model: "keras.Model") -> set[int]:
    """Places, among a model's non-trainable variables, of those that no step changes.

    They are weights that would be trainable were their layer not frozen, the statistics of batch normalisation that is
    frozen, which Keras then runs as in inference, and quantised weights.
    """
    from rudel.internals.keras import frozen_or_trainable, layers_of

    layers = layers_of(model)
    fixed = {id(v) for layer in layers for v in frozen_or_trainable(layer)}
    still = [each for each in layers if isinstance(each, keras_here().layers.BatchNormalization) and not each.trainable]
    fixed |= {id(v) for layer in still for v in layer.non_trainable_variables}
    quantised = [each for each in layers if each.quantization_mode]
    fixed |= {id(v) for layer in quantised for v in layer.non_trainable_variables if v.dtype in _QUANTISED}
    return {i for i, variable in enumerate(model.non_trainable_variables) if id(variable) in fixed}
