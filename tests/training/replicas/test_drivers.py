"""A driver that ends, is killed or interrupted, meets another one or a defect: what it says, and what it leaves."""

import asyncio
import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from displays import Shown
from processes import LONG, interrupted, started, until
from training.replicas.driver_process import driver, wait_for_rounds

import rudel
from rudel.errors import ClusterError
from rudel.replicas.diloco.round_leader import RoundLeader
from rudel.replicas.supply import Supply
from rudel.training.plan_recipe import plan_recipe
from rudel.training.prepared import RecipeRequest


def test_a_killed_driver_goes_on_from_the_last_round(
    crew: Any, tmp_path: Path, read_log: Any, warm_python: str
) -> None:
    with driver(warm_python, crew.address, tmp_path, 10**6) as process:
        wait_for_rounds(process, tmp_path, 30, read_log)
        process.kill()
    before = read_log(tmp_path)
    last = before.rounds[-1]["step"]
    with driver(warm_python, crew.address, tmp_path, last + 2000) as process:
        assert process.wait(LONG) == 0, process.communicate()[1]
    log = read_log(tmp_path)
    done_again = [new for old, new in zip(before.rounds, log.rounds, strict=False) if old != new]
    assert len(done_again) <= 1, "only one that was being written down when the driver was killed"
    assert [line["round"] for line in log.rounds] == list(range(1, len(log.rounds) + 1))
    assert [line["step"] for line in log.rounds] == sorted({line["step"] for line in log.rounds})
    assert log.rounds[-1]["step"] >= last + 2000
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["rounds"] == len(log.rounds)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == sorted({record["epoch"] for record in records})
    rates = [record["learning_rate"] for record in records]
    assert rates == sorted(set(rates), reverse=True), "each is that of the end of its epoch, evaluated or not"


def test_an_interrupted_driver_leaves_a_checkpoint_and_can_go_on(
    crew: Any, tmp_path: Path, read_log: Any, warm_python: str
) -> None:
    command = [warm_python, "-c", "from rudel.cli.main import run; run()", "train", "sine"]
    command += ["--scheduler", crew.address, "--run", str(tmp_path), "--resume", "--sync-every", "16"]
    with started([*command, "--epochs", "100000"], stderr=subprocess.PIPE) as process:
        wait_for_rounds(process, tmp_path, 10, read_log)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=LONG)[1]
    assert process.returncode == 130, errors
    assert "Interrupted after" in errors
    assert "--resume" in errors
    (*_, kept) = sorted((tmp_path / "checkpoints").glob("*.npz"))
    assert int(kept.stem.removeprefix("step-")) == read_log(tmp_path).rounds[-1]["step"]
    steps = read_log(tmp_path).rounds[-1]["step"] + 100
    done = subprocess.run([*command, "--steps", str(steps), "--json"], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == steps * 16


def test_a_training_of_few_steps_is_noted(crew: Any, tmp_path: Path, warm_python: str) -> None:
    command = [warm_python, "-c", "from rudel.cli.main import run; run()", "train", "sine", "--steps", "64"]
    command += ["--scheduler", crew.address, "--run", str(tmp_path), "--sync-every", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert "note     32 steps on each of 2 hosts are few: merging costs accuracy" in done.stderr


def test_a_loss_brings_no_lines_of_dask_to_the_terminal(
    crew: Any, tmp_path: Path, read_log: Any, warm_python: str
) -> None:
    command = [warm_python, "-c", "from rudel.cli.main import run; run()", "train", "sine", "--epochs", "100000"]
    command += ["--scheduler", crew.address, "--run", str(tmp_path), "--resume", "--sync-every", "512"]
    with started(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        wait_for_rounds(process, tmp_path, 5, read_log)
        crew.kill("a")
        rounds = tmp_path / "rounds.jsonl"
        until(lambda: process.poll() is not None or '"lost"' in rounds.read_text())
        crew.start("a", wait=False)
        until(lambda: process.poll() is not None or '"joined"' in rounds.read_text())
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=LONG)[1]
    assert '"lost"' in rounds.read_text()
    lost, *others, joined, end = errors.splitlines()
    assert "  a was lost: " in lost
    assert "  a is back after " in joined
    assert end.startswith("Interrupted after")
    assert not [line for line in others if "  a is joining" not in line]
    assert process.returncode == 128 + signal.SIGTERM


def test_a_second_driver_is_refused_and_the_first_goes_on(crew: Any, directed: Any, many: Any, classifier: Any) -> None:
    first = directed(lambda **more: rudel.fit(classifier(), *many, steps=10**7, client=crew.client, **more))
    first.more_rounds(5, {"a", "b"})
    in_use = rf"[ab] is in use: the training {re.escape(str(first.run))} of \S+ \(process {os.getpid()}\) runs on it"
    with pytest.raises(ClusterError, match=in_use):
        rudel.fit(classifier(), *many, epochs=1, client=crew.address)
    with pytest.raises(ClusterError, match=in_use):
        plan_recipe(RecipeRequest("digits", steps=200), client=crew.address)
    first.more_rounds(5, {"a", "b"})
    assert not first.log.events("lost")
    first.stop()


def test_an_interrupt_while_data_is_sent_leaves_nothing_on_the_workers(
    crew: Any, many: Any, classifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, keep = threading.Event(), Supply._ship

    async def ship(self: Supply, member: Any, pieces: Any) -> None:
        sending.set()
        await asyncio.sleep(LONG)
        await keep(self, member, pieces)

    monkeypatch.setattr(Supply, "_ship", ship)
    with interrupted(sending):
        rudel.fit(classifier(), *many, steps=10**7, client=crew.client)
    assert not any(crew.client.run(left_on).values())


def test_what_arrives_before_the_first_step_is_shown(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, keep = Shown(), Supply._ship

    async def ship_and_wait_until_it_is_shown(self: Supply, member: Any, pieces: Any) -> None:
        await keep(self, member, pieces)
        await asyncio.to_thread(until, lambda: shown.sent)

    monkeypatch.setattr(Supply, "_ship", ship_and_wait_until_it_is_shown)
    monkeypatch.setattr("rudel.training.whole_run.choose_display", lambda verbose, on_hosts: shown)
    model = keras.Sequential([keras.Input((200,)), keras.layers.Dense(2000), keras.layers.Dense(2)])  # 1.6 MB
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.random.default_rng(1).random((600, 200), "float32")  # never sent before
    rudel.fit(model, x, np.zeros(600, "int32"), steps=10, client=crew.client)
    assert shown.rounds_at_first, "what is drawn with the bar is of the round that has ended"
    assert shown.sent == sorted(shown.sent)
    assert 0 < shown.sent[-1][0] <= shown.sent[-1][1]
    assert shown.sent[0][0] < 4 * 2 * model.count_params(), "the weights go to two workers, and after the examples"


def left_on(dask_worker: Any) -> list[str]:
    return [name for name in [*dask_worker.plugins, *dask_worker.handlers] if name.startswith("rudel")]


@pytest.mark.parametrize("where", ["driver", "worker"])
def test_a_defect_ends_the_training_with_its_traceback_in_the_log(
    where: str, crew: Any, many: Any, classifier: Any, directed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = directed(lambda **more: rudel.fit(classifier(), *many, steps=10**7, client=crew.client, **more))
    training.more_rounds(3, {"a", "b"})
    if where == "driver":
        monkeypatch.setattr(RoundLeader, "_measure_skew", defective)
    else:
        crew.client.run(break_service)
    with pytest.raises(ClusterError, match=r"by an error that Rudel did not expect .*the defect.*log\.txt") as caught:
        training.result()
    assert "No host can continue" not in str(caught.value)
    log = (training.run / "log.txt").read_text()
    assert "Traceback (most recent call last)" in log
    assert "in defective" in log, "the traceback of where it happened"
    assert not any(crew.client.run(left_on).values()), "the workers are given back"
    assert not training.log.events("lost")


def defective(*arguments: Any, **named: Any) -> None:
    raise KeyError("the defect")


def break_service(dask_worker: Any) -> None:
    for plugin in dask_worker.plugins.values():
        if hasattr(plugin, "operations"):
            plugin._service._take = defective
