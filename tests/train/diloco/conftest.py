"""What the tests of the low-communication protocol share."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from rudel.train import state as model_state
from rudel.train.diloco import wire
from rudel.train.diloco.outer import make_outer
from rudel.train.diloco.program import export_rounds
from rudel.train.diloco.replica import Answer, Merge, Plan, Replica, Setup, Standing

class Hosted:
    """A replica in this process, its data loaded, with its answers in the order in which they come."""

    def __init__(self, model: Any, data: tuple[Any, Any, Any], **changed: Any) -> None:
        batch_size = changed.pop("batch_size", 8)
        augment = changed.pop("augment", None)
        model_state.build(model, jax.tree.map(lambda array: array[:batch_size], data))
        model.reset_metrics()
        self.state = model_state.to_host(model_state.read(model))
        program = export_rounds(model, self.state, data, batch_size, augment, "cpu")
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(data)]
        logs = [np.zeros(shape, dtype) for shape, dtype in program.logs]
        parts = (self.state.non_trainable, self.state.optimizer, self.state.metrics, logs)
        kinds = [np.asarray(value).dtype for value in self.state.non_trainable]
        setup = Setup(
            code=program.code,
            examples=len(leaves[0]),
            leaves=[(leaf.shape[1:], str(leaf.dtype)) for leaf in leaves],
            batch_size=batch_size,
            seed=0,
            shuffle=False,
            number=0,
            delta_codec="float32",
            merge_codec="float32",
            outer="average",
            seeds=[i for i, kind in enumerate(kinds) if kind == np.uint32],
            statistics=[i for i, kind in enumerate(kinds) if kind.kind == "f"],
            state=wire.pack([np.asarray(value) for part in parts for value in part]),
            counts=[len(part) for part in parts],
        )
        self.setup = replace(setup, **changed)
        self._answers: dict[int, Any] = {}
        self._came = threading.Condition()
        self.replica = Replica(self.setup, self._publish)
        self.replica.shard.write((0, len(leaves[0])), leaves)
        self.everything = [(0, len(leaves[0]))]

    def _publish(self, number: int, answer: Any) -> None:
        with self._came:
            self._answers[number] = answer
            self._came.notify_all()

    def begin(self, weights: Any = None, number: int = 0, merges: Any = (), **standing: Any) -> None:
        weights = self.state.trainable if weights is None else weights
        statistics = [np.asarray(self.state.non_trainable[i], np.float32) for i in self.setup.statistics]
        momentum = make_outer(self.setup.outer).init([np.asarray(w, np.float32) for w in weights])
        fields = {"weights": wire.pack(weights), "momentum": wire.pack(momentum), "statistics": wire.pack(statistics)}
        self.replica.stand(Standing(**{**fields, **standing}))
        self.replica.join(number, merges)

    def plan(self, number: int, steps: int, rates: Any = 0.05, **fields: Any) -> None:
        self.replica.give({number: Plan(steps, wire.pack([np.atleast_1d(np.float32(rates))]), **fields)}, {})

    def merge(self, number: int, delta: bytes, statistics: bytes = wire.pack([])) -> None:
        self.replica.give({}, {number: Merge(delta, statistics)})

    def answer(self, number: int, seconds: float = 60) -> Answer:
        with self._came:
            assert self._came.wait_for(lambda: number in self._answers, seconds), "no answer"
            answer = self._answers.pop(number)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def hosted() -> Iterator[Callable[..., Hosted]]:
    """Makes replicas in this process; ends them after the test."""
    made: list[Hosted] = []

    def make(*arguments: Any, **changed: Any) -> Hosted:
        made.append(Hosted(*arguments, **changed))
        return made[-1]

    yield make
    for each in made:
        each.replica.close()


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of two Dask workers in processes of their own, with a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUDEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        with local_workers(2) as client:
            yield client


@contextlib.contextmanager
def local_workers(count: int) -> Iterator[Any]:
    """A client of so many workers that are started again when they die."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
