"""Whatever happens to workers, the steps that were asked for are taken, and the rest goes on at once."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.errors import ClusterError
from rudel.replicas import answer_book, joining, members, replicas_engine
from rudel.replicas.asynchronous.async_options import Async
from rudel.replicas.diloco import round_leader
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.runs.checkpoint import newest

ENDLESS = 10**7


def test_takes_the_steps_that_were_asked_for_and_few_more(
    crew: Any, classifier: Any, many: Any, read_log: Any, tmp_path: Any
) -> None:
    for steps in (1, 2, 777, 3000):
        run = tmp_path / str(steps)
        rudel.fit(classifier(), *many, steps=steps, client=crew.client, run=run)
        log = read_log(run)
        merged = sum(host["steps"] for line in log.rounds for host in line["hosts"].values())
        assert steps <= merged <= steps + 2
        assert [line["round"] for line in log.rounds] == list(range(1, len(log.rounds) + 1))
        assert merged == log.rounds[-1]["step"]
        assert not log.events("lost")


def test_a_killed_worker_holds_up_nobody_and_takes_part_again_when_it_is_back(
    crew: Any, classifier: Any, many: Any, directed: Any
) -> None:
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(5, {"a", "b"})
    crew.kill("a")
    training.more_rounds(1, {"b"})
    lost = training.until(lambda log: log.events("lost"))[0]
    assert (lost["host"], lost["reason"]) == ("a", "its connection was closed"), "nobody waits until it is overdue"
    training.more_rounds(20, {"b"})
    crew.start("a", wait=False)
    joined = training.until(lambda log: log.events("joined"))[0]
    together = training.more_rounds(20, {"a", "b"})
    assert len(training.log.after(joined)) < len(together) + 10, "who has joined takes part in every round"
    history = training.stop()
    assert [event["host"] for event in training.log.events("lost")] == ["a"]
    assert history.history["accuracy"][-1] > 0.9


def test_examples_of_a_lost_worker_are_learned_by_the_others(crew: Any, classifier: Any, directed: Any) -> None:
    """Each example is a class of its own to be remembered: who never sees it does not know it."""
    x = np.eye(128, dtype="float32").repeat(2, axis=0)
    y = np.arange(256, dtype="int32") // 2 % 128
    model = memory(128)
    training = directed(lambda **more: rudel.fit(model, x, y, batch_size=16, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(1, {"a", "b"})
    crew.kill("b")
    training.until(lambda log: log.events("lost"))
    training.more_rounds(60, {"a"})
    training.stop()
    assert np.array_equal(model.predict(x, verbose=0).argmax(1), y)


def test_examples_go_back_when_a_worker_is_back(crew: Any, directed: Any) -> None:
    x, y = np.eye(128, dtype="float32").repeat(2, axis=0), np.arange(256, dtype="int32") // 2 % 128
    model = memory(128)
    training = directed(lambda **more: rudel.fit(model, x, y, batch_size=16, steps=ENDLESS, client=crew.client, **more))
    for lost, left in (("b", "a"), ("a", "b")):
        training.more_rounds(1, {"a", "b"})
        crew.kill(lost)
        training.more_rounds(1, {left})
        crew.start(lost, wait=False)
    training.more_rounds(60, {"a", "b"})
    training.stop()
    assert np.array_equal(model.predict(x, verbose=0).argmax(1), y)


def test_a_host_without_examples_takes_over_those_of_a_lost_one(
    crew: Any, classifier: Any, many: Any, directed: Any
) -> None:
    x, y = many[0][:1], many[1][:1]
    job = {"batch_size": 1, "steps": ENDLESS, "client": crew.client, "strategy": Diloco(round_steps=64)}
    training = directed(lambda **more: rudel.fit(classifier(), x, y, **job, **more))
    training.more_rounds(3)
    (owner,) = training.log.rounds[-1]["hosts"]
    crew.kill(owner)
    training.more_rounds(3, {"a", "b"} - {owner})
    training.stop()


def test_merges_that_are_kept_take_no_more_memory_than_some_snapshots(
    crew: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, remember = [], round_leader.RoundLeader._remember

    def note(self: Any, number: int, merge: Any) -> None:
        remember(self, number, merge)
        kept.append(sum(len(each.delta) for each in self._merges.values()))

    monkeypatch.setattr(round_leader.RoundLeader, "_remember", note)
    monkeypatch.setattr(round_leader, "_SMALL_HISTORY", 0)
    crew.only("a")
    model, x, y = memory(128), np.eye(128, dtype="float32"), np.arange(128, dtype="int32")
    options = Diloco(round_steps=8, merge_codec="float32")
    rudel.fit(model, x, y, batch_size=8, steps=200, client=crew.client, strategy=options)
    assert len(kept) > 20
    assert 2 <= max(kept) / (4 * model.count_params()) <= 4


def memory(size: int) -> Any:
    import keras

    model = keras.Sequential([keras.Input((size,)), keras.layers.Dense(size)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def test_a_worker_that_falls_silent_is_not_waited_for_and_found_again(
    crew: Any, classifier: Any, many: Any, directed: Any
) -> None:
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(5, {"a", "b"})
    crew.kill("b", signal.SIGSTOP)
    try:
        training.more_rounds(2, {"a"})
        lost = training.until(lambda log: log.events("lost"))[0]
    finally:
        crew.kill("b", signal.SIGCONT)
    training.until(lambda log: log.events("joined"))
    training.more_rounds(10, {"a", "b"})
    training.stop()
    assert (lost["host"], lost["reason"]) == ("b", "it did not answer in time")
    assert not training.log.events("joining"), "its program and its data are still there"


def test_all_workers_silent_for_a_while(
    crew: Any, classifier: Any, many: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_leader, "LONGEST_GRACE", 0.5)
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(5, {"a", "b"})
    for name in ("a", "b"):
        crew.kill(name, signal.SIGSTOP)
    try:
        training.until(lambda log: len(log.events("lost")) == 2)
    finally:
        for name in ("a", "b"):
            crew.kill(name, signal.SIGCONT)
    training.more_rounds(10, {"a", "b"})
    training.stop()


def test_all_workers_killed_and_new_ones_started(crew: Any, classifier: Any, many: Any, directed: Any) -> None:
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(5, {"a", "b"})
    for name in ("a", "b"):
        crew.kill(name)
    before = training.until(lambda log: len(log.events("lost")) == 2 and log.rounds[-1]["step"])
    crew.start("a", "c", wait=False)
    training.more_rounds(10, {"a", "c"})
    assert training.log.rounds[-1]["step"] > before
    history = training.stop()
    assert history.history["accuracy"][-1] > 0.9


def test_all_workers_lost_for_good_is_told_and_leaves_a_checkpoint_to_go_on_from(
    crew: Any, classifier: Any, many: Any, directed: Any
) -> None:
    def train(steps: int) -> Any:
        settings = {"steps": steps, "client": crew.client, "resume": True, "strategy": Diloco(patience=0.5)}
        return lambda **more: rudel.fit(classifier(), *many, **settings, **more)

    training = directed(train(ENDLESS))
    training.more_rounds(5, {"a", "b"})
    for name in ("a", "b"):
        crew.kill(name)
    with pytest.raises(ClusterError, match=r"All hosts were lost.*a: its connection was closed.*`resume=True`") as lost:
        training.result()
    assert f"'{training.run}'" in str(lost.value)
    rounds = training.log.rounds[-1]["round"]
    (*_, kept) = sorted((training.run / "checkpoints").iterdir())
    assert int(kept.stem.removeprefix("step-")) == training.log.rounds[-1]["step"]
    crew.only("a", "b")
    more = directed(train(training.log.rounds[-1]["step"] + 1000), training.run)
    more.result()
    assert [line["round"] for line in more.log.rounds] == list(range(1, len(more.log.rounds) + 1))
    assert len(more.log.rounds) > rounds


@pytest.mark.parametrize(("strategy", "lines"), [("diloco", 60), pytest.param("async", 80, marks=pytest.mark.slow)])
def test_slots_for_a_checkpoint_come_beside_the_rounds(
    crew: Any, directed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strategy: str, lines: int
) -> None:
    """All at once, they would take a slow link for longer than the others wait for this worker."""
    monkeypatch.setattr(replicas_engine, "_SLOTS_SECONDS", 0.0)
    monkeypatch.setattr(answer_book, "_LEAST_PIECE", 2**13)  # 33 pieces
    monkeypatch.setattr(round_leader, "grace", lambda *_: 60.0)  # no round goes on without a worker held up here
    x, y = np.eye(256, dtype="float32").repeat(8, axis=0), np.arange(256, dtype="int32").repeat(8)
    model, slots = memory(256), 2 * 2 * 257 * 256  # two, of 2 bytes
    job = {"steps": ENDLESS, "client": crew.client, "strategy": strategy}
    training = directed(lambda **more: rudel.fit(model, x, y, **job, **more))
    training.more_rounds(lines)
    training.stop()
    if strategy == "diloco":  # where each line is of one answer of each worker
        came = np.array([[host["received"] for host in line["hosts"].values()] for line in training.log.rounds]).T
        assert np.ptp(np.diff(came)) < 0.2 * slots, "beside the pseudo-gradients, whose codec follows from the speeds"
    kept = newest(tmp_path / "run")
    assert kept
    assert kept.arrays["slots"].size > 0.99 * slots


def test_a_worker_that_is_there_later_joins(crew: Any, classifier: Any, many: Any, directed: Any) -> None:
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(5, {"a", "b"})
    crew.start("c", wait=False)
    training.more_rounds(20, {"a", "b", "c"})
    training.stop()
    assert [event["host"] for event in training.log.events("joined")] == ["c"]
    assert not training.log.events("lost")


@contextmanager
def slowed(crew: Any, name: str, share: float) -> Iterator[None]:
    """Lets a worker have this share of a core only, however late a busy computer wakes up who stops it.

    What it had beyond its share, it is stopped for later: a stop is short, as the worker would be lost otherwise.
    """
    ended, clock = threading.Event(), ~crew.pid(name) << 3 | 2  # that of its processor time; see clock_getcpuclockid

    def work() -> None:
        owed, began = 0.0, time.clock_gettime(clock)
        while not ended.is_set():
            crew.kill(name, signal.SIGCONT)
            time.sleep(0.02 * share)
            crew.kill(name, signal.SIGSTOP)
            stopped, now = time.perf_counter(), time.clock_gettime(clock)
            owed = max(0.0, owed + max(now - began, 0.02 * share) * (1 - share) / share)
            began = now
            ended.wait(min(owed, 0.5))
            owed -= time.perf_counter() - stopped
        crew.kill(name, signal.SIGCONT)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_worker_that_cannot_begin_leaves_no_thread_behind(
    crew: Any, classifier: Any, many: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Any, member: Any, number: int, merges: Any) -> None:
        raise ClusterError(f"{member.name} has no room.")

    monkeypatch.setattr(joining.Joining, "call_to_join", refused)
    with pytest.raises(ClusterError, match="a has no room"):
        rudel.fit(classifier(), *many, steps=64, client=crew.client)
    for thread in threading.enumerate():
        if thread.name.startswith("rudel-arithmetic"):
            thread.join(5)
            assert not thread.is_alive()


def test_a_slow_worker_is_given_less_to_do(crew: Any, classifier: Any, many: Any, directed: Any) -> None:
    options = Diloco(round_steps=2048)
    model = classifier()
    training = directed(
        lambda **more: rudel.fit(model, *many, steps=ENDLESS, client=crew.client, strategy=options, **more)
    )
    training.more_rounds(3, {"a", "b"})
    with slowed(crew, "b", 0.15):
        training.more_rounds(8, {"a", "b"})
        rounds = training.more_rounds(8, {"a", "b"})
    training.stop()
    slow, fast = (sum(line["hosts"][name]["steps"] for line in rounds) for name in "ba")
    assert slow < fast / 2
    fast = [line["hosts"]["a"] for line in rounds]
    waited = sum(host["waited"] for host in fast) / sum(host["seconds"] for host in fast)
    assert waited < 0.5, "the fast one does not wait for the slow one for most of the time"


@pytest.fixture
def slow_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tries out the worker c finds it a hundred times slower than the others."""
    prepare = joining.Joining.prepare

    async def found(self: Any, member: Any) -> None:
        await prepare(self, member)
        member.step_seconds = max(member.step_seconds, 0.1) if member.name == "c" else 0.001

    monkeypatch.setattr(joining.Joining, "prepare", found)


@pytest.mark.usefixtures("slow_at_first")
def test_a_worker_that_others_would_wait_for_takes_part_when_they_are_lost(
    crew: Any, classifier: Any, many: Any, directed: Any
) -> None:
    crew.only("a", "b", "c")
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    (standby,) = training.until(lambda log: log.events("standby"))
    assert standby["host"] == "c"
    assert "times slower than the fastest host" in standby["reason"]
    training.more_rounds(5, {"a", "b"})
    assert not training.log.events("lost")
    crew.kill("a")
    crew.kill("b")
    training.more_rounds(3, {"c"})
    assert [event["host"] for event in training.log.events("joining")] == ["c"]
    training.stop()
    options = json.loads((training.run / "summary.json").read_text())["strategy_options"]
    assert options["rate_factor"] == pytest.approx(2**0.5), "as for two hosts"


@pytest.mark.parametrize("slow", ["send_snapshot", "call_to_join"])
def test_a_worker_that_joins_more_slowly_than_others_close_rounds_joins_again(
    crew: Any, classifier: Any, many: Any, directed: Any, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    part, slowly = getattr(joining.Joining, slow), iter([True])

    async def while_others_go_on(self: Any, *arguments: Any, **more: Any) -> Any:
        leader = self._leader
        number = leader.state.round
        found = await part(self, *arguments, **more)
        if number and next(slowly, False):
            await self._team.until(lambda: leader.state.round > number + 20)
        return found

    monkeypatch.setattr(round_leader, "_HISTORY", 8)
    monkeypatch.setattr(joining.Joining, slow, while_others_go_on)
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(3, {"a", "b"})
    crew.start("c", wait=False)
    training.more_rounds(20, {"a", "b", "c"})
    training.stop()
    assert next(slowly, None) is None, "it was slow once"


def test_a_worker_that_was_held_up_when_it_was_tried_out_is_tried_again_soon(
    crew: Any, classifier: Any, many: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, tried = joining.Joining.prepare, []

    async def held_up_once(self: Any, member: Any) -> None:
        await prepare(self, member)
        tried.append(member.name)
        member.step_seconds = 0.1 if member.name == "c" and tried.count("c") == 1 else 0.001

    monkeypatch.setattr(joining.Joining, "prepare", held_up_once)
    monkeypatch.setattr(joining, "_FIRST_TRY_SECONDS", 0.5)
    crew.only("a", "b", "c")
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(3, {"a", "b", "c"})
    training.stop()
    assert [event["host"] for event in training.log.events("standby")][:1] == ["c"]
    assert tried.count("c") >= 2


@pytest.mark.usefixtures("slow_at_first")
def test_nobody_stands_by_where_nobody_waits(crew: Any, classifier: Any, many: Any, directed: Any) -> None:
    crew.only("a", "b", "c")
    training = directed(
        lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, strategy=Async(), **more)
    )
    before = len(training.until(lambda log: [line for line in log.rounds if "c" in line["hosts"]]))
    with slowed(crew, "c", 0.04):
        training.until(lambda log: len([line for line in log.rounds if "c" in line["hosts"]]) > before + 1)
        assert not training.log.events("standby")
    training.stop()


def test_a_worker_that_has_become_slow_stands_by_and_takes_part_when_it_has_become_faster(
    crew: Any, classifier: Any, many: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_TRY_AGAIN_SECONDS", 1.0)
    monkeypatch.setattr(members, "_KNOWN_SECONDS", 0.5)
    monkeypatch.setattr(members, "_STEADY_SECONDS", 1.0)
    crew.only("a", "b", "c")
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, **more))
    training.more_rounds(3, {"a", "b", "c"})
    with slowed(crew, "b", 0.03):
        (standby,) = training.until(lambda log: log.events("standby"))
        assert standby["host"] == "b"
        training.more_rounds(3, {"a", "c"})
    training.more_rounds(3, {"a", "b", "c"})
    training.stop()
    assert not training.log.events("lost")
