"""Closed rounds are kept at once, whatever the engine does, and take little memory while they wait for it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from full_disk import full_disk
from processes import until
from training.replicas.conftest import Crew

import rudel
from rudel.backend import set_seed
from rudel.errors import CheckpointError
from rudel.loop.evaluation import Evaluator
from rudel.loop.schedule import Schedule
from rudel.replicas import closed_rounds, journal
from rudel.replicas.closed_rounds import ClosedRounds
from rudel.replicas.diloco.in_rounds import InRounds
from rudel.replicas.rounds import Arrival, Counts, GlobalState, HostChanged, RoundClosed
from rudel.runs import run_directory
from rudel.runs.checkpoint import newest, path_of
from rudel.runs.run_directory import RunDirectory
from rudel.session.spans import Spans

SPANS = Spans(Schedule(examples=96, batch_size=8, total_steps=60))  # of 12 steps
WEIGHTS = np.ones(100, np.float32)


def closed(number: int) -> RoundClosed:
    """A round of four steps."""
    state = GlobalState(number, 4 * number, WEIGHTS, WEIGHTS, WEIGHTS, [])
    arrivals = (Arrival(b"delta", 4),)
    return RoundClosed(state, number / 10, [], [np.ones((), np.float32)], [], 10 * number, 20 * number, None, arrivals)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    made = run_directory.create(tmp_path / "run", resume=False)
    yield made
    made.release()


@pytest.fixture
def begun() -> Iterator[Callable[..., ClosedRounds]]:
    """Makes `ClosedRounds` that have begun to take in events; ends them after the test."""
    made: list[ClosedRounds] = []

    def begin(run: RunDirectory | None = None, has_callbacks: bool = False) -> ClosedRounds:
        made.append(ClosedRounds(InRounds(), SPANS, run, has_callbacks=has_callbacks))
        made[-1].start(0, 0.0, Counts(sent=5), [], lambda _, counts: {"diloco": vars(counts)})
        return made[-1]

    yield begin
    for each in made:
        each.close()
        each.end_journals()


def taken(rounds: ClosedRounds) -> list[Any]:
    """All events that were put, and the counts then; nothing can be put after that."""
    rounds.close()
    return list(iter(lambda: rounds.take(0.0), None))


def kept(run: Path, step: int) -> list[dict[str, Any]]:
    return [record.document for record in journal.read(path_of(run, step))]


def test_rounds_are_written_though_nobody_takes_them(begun: Any, run: RunDirectory) -> None:
    rounds = begun(run)
    assert rounds.begin_journal(0)
    for number in range(1, 7):
        rounds.put(closed(number))
    rounds.close()
    documents = kept(run.path, 0)
    assert [document["round"] for document in documents] == [1, 2, 3, 4, 5, 6]
    assert [document["ended_at"] for document in documents] == [None, None, 12, None, None, 24]
    assert documents[-1]["diloco"]["sent"] == 65
    lines = [json.loads(line) for line in (run.path / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]


def test_of_many_rounds_that_wait_those_at_ends_of_spans_and_the_newest_keep_their_state(
    begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_rounds, "_WAITING_BYTES", 2.5 * 3 * WEIGHTS.nbytes)
    rounds = begun()
    for number in range(1, 6):
        rounds.put(closed(number))
    rounds.put(HostChanged("a", "lost", 0.55, ""))
    rounds.put(closed(6))
    rounds.put(closed(7))
    events = taken(rounds)
    states = [event.state for event, _ in events if isinstance(event, RoundClosed)]
    assert [state.weights.size for state in states] == [0, 0, 100, 0, 0, 100, 100]
    assert [state.momentum.size for state in states] == [0, 0, 100, 0, 0, 100, 100]
    assert sum(float(event.metrics[0]) for event, _ in events if isinstance(event, RoundClosed)) == 7
    assert events[-1][1] == Counts(sent=75, received=140, lost=1)


def test_the_first_of_too_many_ends_of_spans_that_wait_go_without_weights(
    begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_rounds, "_WAITING_BYTES", 2.5 * 3 * WEIGHTS.nbytes)
    rounds = begun()
    for number in range(1, 15):
        rounds.put(closed(number))
    sizes = [event.state.weights.size for event, _ in taken(rounds)]
    assert [number for number, size in enumerate(sizes, 1) if size] == [9, 12, 14]


def test_a_journal_does_not_begin_before_rounds_whose_records_are_left_out(
    begun: Any, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_rounds, "_WAITING_BYTES", 0)
    rounds = begun(run)
    rounds.begin_journal(0)
    for number in range(1, 4):
        rounds.put(closed(number))
    until(lambda: len(kept(run.path, 0)) == 3)
    rounds.take(0.0)
    assert not rounds.begin_journal(4)
    rounds.take(0.0)
    path_of(run.path, 0).touch()
    assert rounds.begin_journal(8)
    assert [document["round"] for document in kept(run.path, 8)] == [3]


def test_while_a_checkpoint_is_saved_rounds_are_in_its_journal_and_in_the_one_before(
    begun: Any, run: RunDirectory
) -> None:
    rounds = begun(run)
    rounds.begin_journal(0)
    rounds.put(closed(1))
    rounds.put(closed(2))
    until(lambda: len(kept(run.path, 0)) == 2)
    rounds.take(0.0)
    path_of(run.path, 0).touch()
    assert rounds.begin_journal(4)
    rounds.put(closed(3))
    until(lambda: len(kept(run.path, 4)) == 2)
    rounds.end_older_journals()
    rounds.put(closed(4))
    rounds.close()
    assert [document["round"] for document in kept(run.path, 0)] == [1, 2, 3]
    assert [document["round"] for document in kept(run.path, 4)] == [2, 3, 4]


def test_where_callbacks_remember_something_the_journal_ends_before_a_span_does(begun: Any, run: RunDirectory) -> None:
    rounds = begun(run, has_callbacks=True)
    rounds.begin_journal(0)
    for number in range(1, 6):
        rounds.put(closed(number))
    rounds.close()
    assert [document["round"] for document in kept(run.path, 0)] == [1, 2]
    assert not rounds.has_journal


def test_a_round_that_cannot_be_written_ends_the_training(begun: Any, run: RunDirectory) -> None:
    rounds = begun(run)
    rounds.begin_journal(0)
    with full_disk(800):
        for number in range(1, 9):
            rounds.put(closed(number))
        with pytest.raises(CheckpointError, match=r"journal .* could not be written"):
            taken(rounds)


def test_rounds_that_close_during_an_evaluation_outlive_a_kill(
    crew: Crew, classifier: Any, many: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, found = Evaluator.run, []

    def while_rounds_close(self: Any, state: Any) -> Any:
        if saved := newest(tmp_path):
            before = len(kept(tmp_path, saved.step))
            until(lambda: len(kept(tmp_path, saved.step)) > before + 3)
            found.append(kept(tmp_path, saved.step)[-1]["round"])
        return evaluate(self, state)

    monkeypatch.setattr(Evaluator, "run", while_rounds_close)
    settings = {"client": crew.client, "run": tmp_path, "monitor": "val_loss", "stop_early": 1}
    model = classifier("sgd", metrics=[])
    model.optimizer.learning_rate = 0.0
    rudel.fit(model, *many, epochs=1000, validation=many, strategy=rudel.Diloco(round_steps=16), **settings)
    assert len(found) == 2, "the second evaluation is as good as the first one"
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert len(rounds) == json.loads((tmp_path / "summary.json").read_text())["rounds"], "others do not count"


class Seen(keras.metrics.Metric):
    """How many examples there were."""

    def __init__(self, name: str = "seen", **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.count = self.add_variable((), initializer="zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign(self.count + y_true.shape[0])

    def result(self) -> Any:
        return self.count.value


class Own(keras.Model):
    """Logs something of its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.dense = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, state: Any, data: Any) -> Any:
        logs, state = super().train_step(state, data)
        return {"own_loss": logs["loss"], "loss": logs["loss"]}, state


@pytest.mark.parametrize(
    ("left", "monitor"),
    [
        pytest.param(lambda records: records[:-1], "val_loss", id="all but the last evaluation"),
        pytest.param(lambda records: [r for r in records if "round" in r.document], "val_loss", id="rounds alone"),
        pytest.param(lambda records: records, "val_loss", id="all"),
        pytest.param(lambda records: [r for r in records if "round" in r.document], "own_loss", id="own logs"),
    ],
)
def test_spans_that_were_not_evaluated_before_a_kill_are_when_the_run_is_resumed(
    crew: Crew, classifier: Any, many: Any, tmp_path: Path, left: Any, monitor: str
) -> None:
    def train(epochs: int) -> Any:
        set_seed(1)
        model = classifier(metrics=[Seen()])
        if monitor == "own_loss":
            model = Own()
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        settings = {"client": crew.client, "run": tmp_path, "resume": True, "monitor": monitor}
        return rudel.fit(model, *many, epochs=epochs, validation=many, **settings).history

    history = train(3)
    (*_, last) = sorted((tmp_path / "checkpoints").glob("step-*.npz"))
    last.unlink()  # as if the driver had been killed before the last checkpoint
    saved = newest(tmp_path)
    assert saved
    path = path_of(tmp_path, saved.step)
    records = journal.read(path)
    assert records[-1].document["evaluated"]
    again = journal.Journal(path)
    for record in left(records):
        again.append(record)
    again.close()
    resumed = train(4)
    assert len(resumed["loss"]) == 4
    for name, values in history.items():
        np.testing.assert_allclose(resumed[name][:3], values, rtol=1e-6)
    if monitor != "own_loss":
        assert resumed["seen"][3] < 1.5 * len(many[0]), "examples of the epoch before count no more"
