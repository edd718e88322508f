"""The strategy `async` learns what it should, waits for nobody, and outlives whatever happens to whom."""

import json
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from processes import LONG
from training.replicas.driver_process import driver, wait_for_rounds

import rudel
from rudel.backend import set_seed
from rudel.errors import NonFiniteError, OptionError, RunError
from rudel.replicas.asynchronous import arrival_leader
from rudel.report.rounds_file import read_rounds

ENDLESS = 10**7
SHORT = rudel.Async(steps_between=16)


def test_learns_and_says_who_did_what(crew: Any, classifier: Any, many: Any, read_log: Any, tmp_path: Path) -> None:
    model = classifier()
    settings = {"client": crew.client, "run": tmp_path, "strategy": "async"}
    rudel.fit(model, *many, epochs=30, validation=0.2, **settings)
    summary, rounds = json.loads((tmp_path / "summary.json").read_text()), read_log(tmp_path).rounds
    assert summary["strategy"] == "async"
    assert summary["metrics"]["val_accuracy"] > 0.9
    assert summary["hosts"] == ["a", "b"]
    assert summary["samples"] == 30 * 48 * 32
    assert summary["arrivals"] == rounds[-1]["round"]
    assert summary["arrivals"] == sum(host["arrivals"] for line in rounds for host in line["hosts"].values())
    steps = sum(host["steps"] for line in rounds for host in line["hosts"].values())
    assert rounds[-1]["step"] == steps
    assert 30 * 48 <= steps <= 30 * 48 + 2
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == sorted({record["step"] for record in records})
    seen = dict(model.evaluate(*many, verbose=0, return_dict=True))
    assert rudel.load(tmp_path).evaluate(*many, verbose=0, return_dict=True) == pytest.approx(seen)
    logged = read_rounds(tmp_path / "rounds.jsonl")
    assert logged
    assert logged.arrivals == summary["arrivals"]
    assert "arrivals" in (tmp_path / "report.html").read_text()


def test_takes_the_steps_that_were_asked_for(
    crew: Any, classifier: Any, many: Any, read_log: Any, tmp_path: Path
) -> None:
    for steps in (1, 777):
        run = tmp_path / str(steps)
        rudel.fit(classifier(), *many, steps=steps, client=crew.client, run=run, strategy=SHORT)
        assert read_log(run).rounds[-1]["step"] in range(steps, steps + 3)


def test_a_model_with_moving_statistics_and_dropout(crew: Any) -> None:
    random = np.random.default_rng(3)
    x = random.normal(3.0, 2.0, size=(512, 5)).astype("float32")
    y = (x[:, 0] > 3).astype("int32")
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(2)]
    model: Any = keras.Sequential([keras.Input((5,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    history = rudel.fit(model, x, y, epochs=30, batch_size=16, validation=(x, y), client=crew.client, strategy=SHORT)
    result = model.evaluate(x, y, verbose=0, return_dict=True)
    for name, value in result.items():
        assert history.history[f"val_{name}"][-1] == pytest.approx(value, rel=1e-4)
    assert result["accuracy"] > 0.9
    np.testing.assert_allclose(model.layers[0].moving_mean, x.mean(0), rtol=0.2)


def test_a_parameter_server_of_single_steps(crew: Any, classifier: Any, many: Any, directed: Any) -> None:
    model = classifier(keras.optimizers.SGD(0.05))
    options = rudel.Async(steps_between=1)
    training = directed(lambda **more: rudel.fit(model, *many, steps=600, client=crew.client, strategy=options, **more))
    training.result()
    assert model.evaluate(*many, verbose=0, return_dict=True)["accuracy"] > 0.9
    hosts = [host for line in training.log.rounds for host in line["hosts"].values()]
    assert all(host["steps"] == host["arrivals"] for host in hosts)


def test_seeds(crew: Any, classifier: Any, many: Any) -> None:
    crew.only("a")

    def weights(seed: int) -> np.ndarray:
        set_seed(1)
        model = classifier()
        rudel.fit(model, *many, steps=40, seed=seed, client=crew.client, strategy=SHORT)
        return np.concatenate([w.ravel() for w in model.get_weights()])

    one, again, other = weights(1), weights(1), weights(2)
    np.testing.assert_allclose(one, again, atol=1e-3)
    assert np.abs(one - other).max() > 1e-2


def test_nobody_waits_for_one_that_falls_silent_and_it_is_found_again(
    crew: Any, classifier: Any, many: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival_leader, "ASKED_SECONDS", 0.5)
    training = directed(
        lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, strategy="async", **more)
    )
    training.until(lambda log: {name for line in log.rounds for name in line["hosts"]} == {"a", "b"})
    crew.kill("b", signal.SIGSTOP)
    try:
        training.more_rounds(10, {"a"})
        assert not training.log.events("lost"), "the others went on before anybody knew"
        training.until(lambda log: log.events("lost"))
    finally:
        crew.kill("b", signal.SIGCONT)
    joined = training.until(lambda log: log.events("joined"))[0]
    training.until(lambda log: any("b" in line["hosts"] for line in log.after(joined)))
    training.stop()
    assert not training.log.events("joining"), "its program and its data are still there"


def test_a_killed_worker_takes_part_again_when_it_is_back(
    crew: Any, classifier: Any, many: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders, lead = [], arrival_leader.ArrivalLeader.lead

    async def noted(self: Any) -> None:
        leaders.append(self)
        await lead(self)

    monkeypatch.setattr(arrival_leader.ArrivalLeader, "lead", noted)
    training = directed(
        lambda **more: rudel.fit(classifier(), *many, steps=ENDLESS, client=crew.client, strategy="async", **more)
    )
    training.more_rounds(5)
    crew.kill("a")
    lost = training.until(lambda log: log.events("lost"))[0]
    assert lost["host"] == "a"
    training.more_rounds(5, {"b"})
    assert set(leaders[0]._held) == {"b"}, "the weights of one that is gone take no memory"
    crew.start("a", wait=False)
    joined = training.until(lambda log: log.events("joined"))[0]
    training.until(lambda log: sum("a" in line["hosts"] for line in log.after(joined)) > 5)
    history = training.stop()
    assert [event["host"] for event in training.log.events("lost")] == ["a"]
    assert history.history["accuracy"][-1] > 0.9


def test_a_killed_driver_goes_on_from_the_last_arrival(
    crew: Any, tmp_path: Path, read_log: Any, warm_python: str
) -> None:
    with driver(warm_python, crew.address, tmp_path, ENDLESS, "async") as process:
        wait_for_rounds(process, tmp_path, 20, read_log)
        process.kill()
    before = read_log(tmp_path)
    last = before.rounds[-1]["step"]
    with driver(warm_python, crew.address, tmp_path, last + 2000, "async") as process:
        assert process.wait(LONG) == 0, process.communicate()[1]
    log = read_log(tmp_path)
    done_again = [new for old, new in zip(before.rounds, log.rounds, strict=False) if old != new]
    assert len(done_again) <= 1, "only what was being written down when the driver was killed"
    assert [line["step"] for line in log.rounds] == sorted({line["step"] for line in log.rounds})
    assert log.rounds[-1]["step"] >= last + 2000
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["arrivals"] == log.rounds[-1]["round"]
    assert summary["metrics"]["val_accuracy"] > 0.9


def test_a_run_of_another_strategy_is_not_resumed(crew: Any, classifier: Any, many: Any, tmp_path: Path) -> None:
    settings = {"client": crew.client, "run": tmp_path, "resume": True}
    rudel.fit(classifier(), *many, steps=64, strategy=SHORT, **settings)
    set_seed(7)
    with pytest.raises(RunError, match="was begun with another strategy"):
        rudel.fit(classifier(), *many, steps=128, strategy="diloco", **settings)


def test_a_loss_that_is_not_finite_is_told(crew: Any, many: Any) -> None:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e30), "mse")
    with pytest.raises(NonFiniteError, match=r"The loss became NaN or infinite on [ab], in visit 1, local step \d"):
        rudel.fit(model, many[0], many[0][:, :1], epochs=10, client=crew.client, strategy="async")


def test_it_needs_hosts(classifier: Any, many: Any) -> None:
    with pytest.raises(OptionError, match="The strategy `async` needs hosts"):
        rudel.fit(classifier(), *many, strategy="async")
