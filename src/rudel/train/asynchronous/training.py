"""The strategy `async`: a training whose steps are taken by replicas that wait for nobody.

It keeps its books as `diloco` does, and counts arrivals in the place of rounds: a line of `rounds.jsonl` tells what has
come in a tenth of a second, or a single arrival where they come more slowly, and its `round` is the number of arrivals
so far. A record of the journal has the deltas as they came, so that a killed training goes on from the last arrival
that was told of.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from rudel.train.asynchronous.coordinator import AsyncCoordinator
from rudel.train.asynchronous.delayed import make_delayed
from rudel.train.diloco import wire
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.journal import Record
from rudel.train.diloco.lengths import Agreed
from rudel.train.diloco.rounds import RoundClosed, Task, World
from rudel.train.diloco.training import DilocoTraining

_JOURNAL_FACTOR = 16.0
"""A checkpoint is due when the journal has become so many times as large as the weights."""


class AsyncTraining(DilocoTraining):
    """See the module; arguments as of `DilocoTraining`."""

    _strategy, _counted = "async", "arrivals"

    def _first_memory(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return make_delayed(self._options.outer).init(size), np.empty(0, np.float32)

    @property
    def _replicas_outer(self) -> str:
        return "average"

    def _take_agreed(self, agreed: Agreed) -> None:
        self._options = replace(self._options, steps_between=agreed.steps)

    def _make_coordinator(self, fleet: Any, task: Task) -> AsyncCoordinator:
        outer = make_delayed(self._options.outer)
        return AsyncCoordinator(fleet, task, self._world, self._slots, self._events.put, outer)

    def _save_is_due(self) -> bool:
        limit = _JOURNAL_FACTOR * self._world.weights.nbytes
        return super()._save_is_due() or (self._journal is not None and self._journal.size > max(limit, 2**24))

    def _record_of_round(self, closed: RoundClosed) -> Record:
        told = [(arrival.steps, arrival.weight, arrival.fresh) for arrival in closed.arrivals]
        document = self._document_of(closed) | {"delta_codec": self._options.delta_codec, "arrivals": told}
        statistics = wire.pack(closed.world.statistics)
        return Record(document, [statistics, wire.pack(self._sums), *(arrival.delta for arrival in closed.arrivals)])

    def _world_after(self, record: Record) -> tuple[World, list[np.ndarray]] | None:
        world, document = self._world, record.document
        if document["round"] != world.round + len(document["arrivals"]):
            return None
        statistics, sums, *deltas = record.parts
        codec, outer = make_codec(document["delta_codec"]), make_delayed(document["outer"])
        weights, momentum = world.weights.copy(), world.momentum.copy()
        for delta, (_, weight, fresh) in zip(deltas, document["arrivals"], strict=True):
            outer.step(codec.decode(delta, self._layout), weight, fresh, momentum, weights)
        after = World(document["round"], document["step"], weights, momentum, world.residual, wire.unpack(statistics))
        return after, wire.unpack(sums)
