"""The strategy `async`: a training whose steps are taken by replicas that wait for nobody.

It keeps its books as `diloco` does, and counts arrivals in the place of rounds: a line of `rounds.jsonl` tells what has
come in a tenth of a second, or a single arrival where they come more slowly, and its `round` is the number of arrivals
so far.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rudel.train.asynchronous.coordinator import AsyncCoordinator, arrived
from rudel.train.asynchronous.delayed import make_delayed
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.lengths import Agreed
from rudel.train.diloco.rounds import Arrival, Task, World
from rudel.train.diloco.training import DilocoTraining


class AsyncTraining(DilocoTraining):
    """See the module; arguments as of `DilocoTraining`."""

    _strategy, _counted = "async", "arrivals"

    def _first_memory(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return make_delayed(self._options.outer).init(size), np.empty(0, np.float32)

    def _take_agreed(self, agreed: Agreed) -> None:
        self._options = replace(self._options, steps_between=agreed.steps)

    def _make_coordinator(self, fleet: Any, task: Task) -> AsyncCoordinator:
        return AsyncCoordinator(fleet, task, self._world, self._slots, self._events.put)

    def _rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        return len(arrivals)

    def _moved(self, world: World, arrivals: Sequence[Arrival], statistics: list[np.ndarray], names: Any) -> World:
        codec, outer = make_codec(names["delta_codec"]), make_delayed(names["outer"])
        for arrival in arrivals:
            world = arrived(world, codec.decode(arrival.delta, self._layout), arrival, outer, self._ema)
        return replace(world, statistics=statistics)
