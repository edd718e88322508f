"""`ReplicaSpec`: the model's state, program and data source, from which replicas and forecasts are made."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.backend import backend_name, keras_here
from rudel.errors import ModelError
from rudel.internals.keras import inner_optimizer, weight_average
from rudel.loop import model_state
from rudel.loop.model_state import ModelState
from rudel.replicas.averages import Averages
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.example_source import Source
from rudel.replicas.keras_rates import is_momentum_sgd
from rudel.replicas.rounds import GlobalState
from rudel.replicas.setups import Setups
from rudel.replicas.shared_variables import as_shared
from rudel.session.job import Job


@dataclass(frozen=True)
class ReplicaSpec:
    """The model of a job as replicas have it.

    Args:
        job: the training.
        state: of the model at the beginning, in NumPy arrays.
        metrics: its metrics variables at the beginning of a span.
        source: of the examples.
        setups: makes the setup of each replica.
        layout: of the trainable variables, as one vector.
        averages: means over time of the weights.
        packing_seconds: what packing the model took, where Keras is not on JAX.
    """

    job: Job
    state: ModelState
    metrics: list[np.ndarray]
    source: Source
    setups: Setups
    layout: Layout
    averages: Averages
    packing_seconds: float

    @property
    def statistics(self) -> list[int]:
        """Places of the non-trainable variables that the replicas agree on."""
        return self.setups.statistics

    def global_state(self, momentum: np.ndarray, residual: np.ndarray) -> GlobalState:
        """The global state before the first round; see `GlobalState` for the arguments."""
        statistics = [as_shared(self.state.non_trainable[i]) for i in self.statistics]
        return GlobalState(0, 0, self.layout.vector(self.state.trainable), momentum, residual, statistics)

    def setup(
        self, number: int, description: dict[str, Any], hosts: int, delta_codec: str, merge_codec: str
    ) -> tuple[dict[str, Any], float]:
        """Calls `Setups.setup` for a replica that begins as the model does."""
        names = {"delta_codec": delta_codec, "merge_codec": merge_codec}
        return self.setups.setup(number, description, hosts, self.state, self.metrics, names)


def spec_of(job: Job, metrics: list[np.ndarray], replicas: int) -> ReplicaSpec:
    """Makes the specification of a job whose model has all variables.

    Args:
        job: the training.
        metrics: its metrics variables at the beginning of a span; see `rudel.session.session.built`.
        replicas: how many there are at the beginning.

    Raises:
        ModelError: hosts cannot train with this optimizer, or the model has nothing to train or cannot be sent to them.
    """
    if not job.model.trainable_variables:
        raise ModelError(
            f"The model `{job.model.name}` has no trainable weights, which hosts merge: set `trainable = True` on a "
            "layer and compile it again, or train on one computer."
        )
    if isinstance(inner_optimizer(job.model.optimizer), keras_here().optimizers.MultiOptimizer):
        raise ModelError(
            "The optimizer of the model is a MultiOptimizer, whose several learning rates hosts do not take: compile "
            "the model with one optimizer, or train on one computer."
        )
    ema, _ = weight_average(job.model.optimizer) or (None, [])
    if ema is not None and inner_optimizer(job.model.optimizer).ema_overwrite_frequency:
        raise ModelError(
            "The optimizer of the model replaces weights by averages "
            "(ema_overwrite_frequency), which hosts cannot: leave that out, or train on one computer."
        )
    state, source = model_state.values(job.model), Source(job.train, job.schedule.shuffle, job.model)
    setups = Setups(job, state, source, replicas)
    packing = 0.0 if backend_name() == "jax" else setups.pack_model()
    averages = Averages(recent=replicas > 1 and not is_momentum_sgd(job.model.optimizer), ema=ema)
    return ReplicaSpec(job, state, metrics, source, setups, Layout.of(state.trainable), averages, packing)
