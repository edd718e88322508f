"""What the tests of the low-communication protocol share."""

import concurrent.futures
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import keras
import numpy as np
import psutil
import pytest
from processes import LONG
from warm.programs import Forked, forking, put_programs

from rudel.loop import model_state
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.replica import Replica
from rudel.replicas.replica_messages import Answer, Merge, Plan, Setup, Snapshot
from rudel.replicas.replica_program import export_rounds
from rudel.shipping import array_bytes


class Hosted:
    """A replica in this process, its data loaded, with its answers in the order in which they come."""

    def __init__(self, model: Any, data: tuple[Any, Any, Any], **changed: Any) -> None:
        batch_size = changed.pop("batch_size", 8)
        augment = changed.pop("augment", None)
        network = changed.pop("network", None)
        replicas = changed.pop("replicas", 1)
        model_state.build(model, jax.tree.map(lambda array: array[:batch_size], data))
        model.reset_metrics()
        self.state = model_state.to_host(model_state.read(model))
        program = export_rounds(model, self.state, data, batch_size, augment, "cpu", replicas)
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
            seeds=[i for i, kind in enumerate(kinds) if kind == np.uint32],
            statistics=[i for i, kind in enumerate(kinds) if kind.kind == "f"],
            state=array_bytes.pack([np.asarray(value) for part in parts for value in part]),
            counts=[len(part) for part in parts],
        )
        self.setup = replace(setup, **changed)
        self._answers: dict[int, Any] = {}
        self._came = threading.Condition()
        self.replica = Replica(self.setup, self._publish, network)
        self.replica.shard.write((0, len(leaves[0])), leaves)
        self.everything = [(0, len(leaves[0]))]

    def _publish(self, number: int, answer: Any) -> None:
        with self._came:
            self._answers[number] = answer
            self._came.notify_all()

    def begin(self, weights: Any = None, number: int = 0, merges: Any = (), **snapshot: Any) -> None:
        weights = self.state.trainable if weights is None else weights
        statistics = [np.asarray(self.state.non_trainable[i], np.float32) for i in self.setup.statistics]
        vector = Layout.of(weights).vector(weights)
        fields = {"weights": array_bytes.pack([vector]), "statistics": array_bytes.pack(statistics)}
        self.replica.restore(Snapshot(**{**fields, **snapshot}))
        self.replica.join(number, merges)

    def plan(self, number: int, steps: int, rates: Any = 0.05, **fields: Any) -> None:
        self.replica.give({number: Plan(steps, array_bytes.pack([np.atleast_1d(np.float32(rates))]), **fields)}, {})

    def merge(self, number: int, delta: bytes, statistics: bytes = array_bytes.pack([])) -> None:
        self.replica.give({}, {number: Merge(delta, statistics)})

    def answer(self, number: int, seconds: float = LONG) -> Answer:
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


MODULES = ("distributed.cli.dask_worker", "rudel.replicas.replica_service", "rudel.replicas.replica")
_WORKER = "from distributed.cli.dask_worker import main; main()"


class Crew:
    """Dask workers in processes of their own, which nobody starts again but the test."""

    def __init__(self, cluster: Any, client: Any, folder: Path, fork: Callable[..., Forked]) -> None:
        self.client, self._cluster, self.folder, self._fork = client, cluster, folder, fork
        self._processes: dict[str, Forked] = {}

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return self._cluster.scheduler_address

    @property
    def names(self) -> set[str]:
        """Workers that run."""
        return {name for name, process in self._processes.items() if process.poll() is None}

    def start(self, *names: str, wait: bool = True) -> None:
        """Starts those of these that do not run."""
        for name in set(names) - self.names:
            options = [self.address, "--name", name, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
            options += ["--memory-limit", "0", "--local-directory", str(self.folder)]
            with (self.folder / f"{name}.log").open("ab") as log:
                how = _environment(self.folder), log.fileno(), str(self.folder / "warm" / "python")
                self._processes[name] = self._fork(_WORKER, options, *how)
        if wait:
            self.client.wait_for_workers(len(self.names), timeout=LONG)

    def only(self, *names: str) -> None:
        """Starts these, and ends all others."""
        for name in self.names - set(names):
            self.kill(name)
        self.start(*names, wait=False)
        deadline = time.monotonic() + LONG
        while self._known() != set(names):
            assert set(names) <= self.names, "a worker has ended at once; see its log"
            assert time.monotonic() < deadline, f"workers are {self._known()}"
            time.sleep(0.02)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to a worker; after the one that ends it, what it has started is gone, too."""
        started = psutil.Process(self.pid(name)).children(recursive=True)
        self._processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self._processes.pop(name).wait()
            assert not psutil.wait_procs(started, LONG)[1], "what a worker has started ends with it"

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def _known(self) -> set[str]:
        info = self.client.sync(self.client.scheduler.identity, n_workers=-1)
        return {str(worker["name"]) for worker in info["workers"].values()}


@contextlib.contextmanager
def made_crew(folder: Path, zygotes: list[dict[str, Any]]) -> Iterator[Crew]:
    from distributed import Client, LocalCluster

    (folder / "warm").mkdir()
    put_programs(folder / "warm", zygotes)
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        forking(MODULES, _environment(folder)) as fork,
    ):
        crew = Crew(cluster, client, folder, fork)
        try:
            yield crew
        finally:
            for name in crew.names:
                crew.kill(name)


def _environment(folder: Path) -> dict[str, str]:
    """That of a crew's workers: their cache is not this process's, which other tests use, too.

    Nor do they watch themselves a hundred times a second, for which each took 4 % of a core from other tests.
    """
    unwatched = {"DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s", "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
    return os.environ | unwatched | {"TMPDIR": str(folder), "RUDEL_CACHE": str(folder / "cache")}


@pytest.fixture(scope="package")
def crew_of_the_package(tmp_path_factory: pytest.TempPathFactory, zygotes: list[dict[str, Any]]) -> Iterator[Crew]:
    with made_crew(tmp_path_factory.mktemp("crew"), zygotes) as crew:
        yield crew


@pytest.fixture
def crew(crew_of_the_package: Crew) -> Crew:
    """Two workers, a and b, alive at the beginning of each test."""
    crew_of_the_package.only("a", "b")
    return crew_of_the_package


class Log:
    """`rounds.jsonl` of a run."""

    def __init__(self, run: Path) -> None:
        path = run / "rounds.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        self.lines = [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "round" in line]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == kind]

    def after(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Rounds that were closed after an event."""
        return [line for line in self.lines[self.lines.index(event) :] if "round" in line]


class Directed:
    """A training in a thread, while the test watches its log and does things to its workers."""

    def __init__(self, train: Callable[..., Any], run: Path) -> None:
        self.run, self._asked = run, threading.Event()
        self._result: concurrent.futures.Future[Any] = concurrent.futures.Future()
        asked = self._asked

        class StopWhenAsked(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if asked.is_set() and self.model:
                    self.model.stop_training = True

        def work() -> None:
            try:
                self._result.set_result(train(run=run, callbacks=[StopWhenAsked()]))
            except BaseException as error:
                self._result.set_exception(error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    @property
    def log(self) -> Log:
        return Log(self.run)

    def until(self, reached: Callable[[Log], Any], seconds: float = LONG) -> Any:
        """Waits until the log shows something, and returns what."""
        deadline = time.monotonic() + seconds
        while True:
            if self._result.done():
                self._result.result()
                raise AssertionError(f"the training ended before that; its log ends with {self.log.lines[-3:]}")
            if found := reached(self.log):
                return found
            assert time.monotonic() < deadline, f"this did not happen; the log ends with {self.log.lines[-3:]}"
            time.sleep(0.05)

    def more_rounds(
        self, count: int, with_hosts: set[str] | None = None, seconds: float = LONG
    ) -> list[dict[str, Any]]:
        """Waits for so many more rounds, in which exactly these hosts took part."""
        before = len(self.log.rounds)

        def those(log: Log) -> list[dict[str, Any]] | None:
            rounds = [r for r in log.rounds[before:] if with_hosts is None or set(r["hosts"]) == with_hosts]
            return rounds if len(rounds) >= count else None

        return self.until(those, seconds)

    def stop(self, seconds: float = LONG) -> Any:
        """Ends the training at the next end of an epoch."""
        self._asked.set()
        return self._result.result(seconds)

    def result(self, seconds: float = LONG) -> Any:
        return self._result.result(seconds)


@pytest.fixture
def directed(tmp_path: Path) -> Iterator[Callable[..., Directed]]:
    """Begins trainings `train(run=..., callbacks=...)` in threads; none is left over."""
    begun: list[Directed] = []

    def begin(train: Callable[..., Any], run: Path | None = None) -> Directed:
        begun.append(Directed(train, run or tmp_path / "run"))
        return begun[-1]

    yield begin
    for each in begun:
        each._asked.set()
        each._thread.join(LONG)
        assert not each._thread.is_alive(), "a training does not end"


@pytest.fixture
def many() -> tuple[np.ndarray, np.ndarray]:
    """Three separable classes: float32 (1920, 6), int32 (1920,); 60 batches of 32."""
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 1920).astype("int32")
    centres = random.normal(0, 2, (3, 6))
    return (centres[y] + random.normal(0, 0.5, (1920, 6))).astype("float32"), y


@pytest.fixture
def read_log() -> Callable[[Path], Log]:
    return Log


@pytest.fixture(autouse=True, scope="module")
def _sent_as_they_are(request: pytest.FixtureRequest) -> Iterator[None]:
    """Workers get the functions and classes of a file of tests by value, as they cannot import them."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
