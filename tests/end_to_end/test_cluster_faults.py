"""Hosts on a simulated slow network are killed, crash and fall silent, and the training continues.

They take two minutes, so only --slow runs them. `tests/training/replicas/test_coordinator.py` does the same to workers
on this computer, `test_drivers.py` shows what they are sent, and `tests/cluster/test_engine.py` kills workers that were
started over SSH.

The hosts are set up as those of users are, offline. The network's latency makes them wait in every round: a training
that goes on until something has happened would otherwise take all the cores.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from displays import Shown
from homes import furnish, keep_programs
from processes import LONG, set_up_by_rudel

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.cluster.ssh_cluster import Cluster
from rudel.errors import ClusterError
from rudel.lab import Lab
from rudel.replicas.diloco.diloco_options import Diloco

keras = keras_on_jax()
pytestmark = pytest.mark.slow
random = np.random.default_rng(0)
X = random.normal(size=(20_000, 200)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, lab_machine: None) -> Iterator[Lab]:
    state, names = tmp_path_factory.mktemp("lab"), ("tlab1", "tlab2", "tlab3")
    furnish([state / name / "home" for name in names], "--minimal")
    with Lab(nodes=3, cpu=0.6, rate=1000, latency=1.5, prefix="tlab", subnet="10.93.0", state=state) as lab:
        set_up_by_rudel(lab, lab.hosts, "--minimal")
        lab.set_rate(100)
        lab.set_latency(50)
        yield lab
        keep_programs(state / name / "home" for name in names)


@pytest.fixture
def cluster(lab: Lab) -> Iterator[Cluster]:
    with Cluster(lab.hosts, ssh_config=lab.ssh_config) as cluster:
        yield cluster


class Training:
    """A training in a thread, without an end of its own, and its log."""

    def __init__(self, cluster: Cluster, run: Path, patience: float = 120.0, **options: Any) -> None:
        self.run, self._asked = run, threading.Event()
        self.error: Exception | None = None
        self.history: Any = None

        def end_when_asked(epoch: int, logs: Any) -> None:
            if self._asked.is_set():
                model.stop_training = True

        set_seed(1)
        model = keras.Sequential(
            [keras.Input((200,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2)]
        )
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        end = keras.callbacks.LambdaCallback(on_epoch_end=end_when_asked)
        strategy = Diloco(round_steps=8, patience=patience)
        settings = {"steps": 10**7, "resume": True, "callbacks": [end], "strategy": strategy} | options

        def work() -> None:
            try:
                self.history = rudel.fit(model, X, Y, cluster=cluster, run=run, **settings)
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=work)
        self._thread.start()

    @property
    def lines(self) -> list[dict[str, Any]]:
        path = self.run / "rounds.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "round" in line]

    def events(self, kind: str, host: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == kind and line["host"] == host]

    def until(self, reached: Callable[[], Any], seconds: float = LONG) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := reached()):
            assert self._thread.is_alive(), f"it ended: {self.error}"
            assert time.monotonic() < deadline, f"this did not happen; the log ends with {self.lines[-3:]}"
            time.sleep(0.05)
        return found

    def seconds_to_more_rounds(self, count: int, hosts: set[str]) -> float:
        """Seconds until so many more rounds were closed with exactly these hosts."""
        began, before = time.monotonic(), len(self.rounds)
        self.until(lambda: sum(set(line["hosts"]) == hosts for line in self.rounds[before:]) >= count)
        return time.monotonic() - began

    def end(self) -> Any:
        self._asked.set()
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error
        return self.history


@pytest.fixture
def training(cluster: Cluster, tmp_path: Path) -> Iterator[Training]:
    training = Training(cluster, tmp_path)
    yield training
    training._asked.set()
    training._thread.join(LONG)


def test_hosts_that_are_killed_crash_or_fall_silent_are_not_waited_for_and_come_back(
    lab: Lab, cluster: Cluster, training: Training
) -> None:
    everyone = set(lab.hosts)
    first, second, third = lab.hosts
    training.seconds_to_more_rounds(5, everyone)
    workers = cluster.client.scheduler_info(n_workers=-1)["workers"]
    (pid,) = (pid for address, pid in cluster.client.run(os.getpid).items() if workers[address]["name"] == first)

    lab.run(first, "kill", "-9", str(pid), root=True)
    assert training.seconds_to_more_rounds(1, everyone - {first}) < 5
    (lost,) = training.until(lambda: training.events("lost", first))
    assert lost["reason"] == "its connection was closed", "nobody waits until it is overdue"
    training.until(lambda: training.events("joined", first))
    training.seconds_to_more_rounds(5, everyone)

    lab.crash(second)
    assert training.seconds_to_more_rounds(1, everyone - {second}) < 10
    training.until(lambda: training.events("joined", second))
    training.seconds_to_more_rounds(5, everyone)

    lab.cut(third)
    assert training.seconds_to_more_rounds(2, everyone - {third}) < 25
    training.until(lambda: training.events("lost", third))
    lab.heal(third)
    training.until(lambda: training.events("joined", third))
    training.seconds_to_more_rounds(5, everyone)
    assert not training.events("joining", third), "its program and its data are still there"

    lab.cut(third)  # as of a host whose plug is pulled: nobody is told that its connections are gone
    assert training.seconds_to_more_rounds(2, everyone - {third}) < 25
    training.until(lambda: len(training.events("lost", third)) == 2)
    lab.crash(third)
    lab.heal(third)
    training.until(lambda: training.events("joining", third))
    training.seconds_to_more_rounds(5, everyone)

    history = training.end()
    assert history.history["accuracy"][-1] > 0.9
    assert [line["round"] for line in training.rounds] == list(range(1, len(training.rounds) + 1))


def test_what_hosts_are_sent_before_the_first_step_is_shown_on_its_way(
    lab: Lab, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown()
    monkeypatch.setattr("rudel.training.whole_run.choose_display", lambda verbose, on_hosts: shown)
    model = keras.Sequential([keras.Input((200,)), keras.layers.Dense(2000), keras.layers.Dense(2)])  # 1.6 MB
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    cluster.client.wait_for_workers(len(lab.hosts), timeout=LONG)  # hosts that a test has lost may not be back yet
    lab.set_rate(5)
    try:
        rudel.fit(model, X[:600], Y[:600], steps=10, cluster=cluster)
    finally:
        lab.set_rate(100)
    weights = 4 * model.count_params() * len(lab.hosts)
    on_the_way = {done for done, total in shown.sent if total > weights and done < 0.9 * total}
    assert len(on_the_way) >= 5, shown.sent
    assert [done for done, _ in shown.sent] == sorted(done for done, _ in shown.sent)
    assert all(total for _, total in shown.sent)


def test_a_wifi_that_is_gone_for_good_ends_the_training_at_a_checkpoint(
    lab: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    training = Training(cluster, tmp_path, patience=1.0)
    try:
        training.seconds_to_more_rounds(5, set(lab.hosts))
        for name in lab.hosts:
            lab.cut(name)
        training._thread.join(LONG)
        last = training.rounds[-1]["step"]
        with pytest.raises(ClusterError, match=r"All hosts were lost, and none came back within 1 s .*`resume=True`"):
            training.end()
        (*_, kept) = sorted((tmp_path / "checkpoints").iterdir())
        assert int(kept.stem.removeprefix("step-")) == last
    finally:
        training._asked.set()
        for name in lab.hosts:
            lab.heal(name)
    again = Training(cluster, tmp_path, steps=last + 500)
    again._thread.join(LONG)
    again.end()
    assert [line["round"] for line in again.rounds] == list(range(1, len(again.rounds) + 1))
    assert json.loads((tmp_path / "summary.json").read_text())["samples"] == (last + 500) * 32
