"""`rudel plan` on workers that there are."""

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from processes import interrupted

import rudel
from rudel.cluster.guest import Gone, Guest
from rudel.errors import ClusterError, DataError, OptionError, RecipeError, RunError
from rudel.planning import measure_hosts
from rudel.replicas.replica_service import replica_guest
from rudel.training.from_recipe import train_recipe
from rudel.training.plan_recipe import plan_recipe
from rudel.training.prepared import RecipeRequest
from rudel.training.strategies import Auto


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REHEARSAL_SECONDS", "ROUNDS_SECONDS", "HERE_SECONDS"):
        monkeypatch.setattr(f"rudel.planning.measure_hosts.{name}", 0.2)


def test_workers_are_measured_and_auto_takes_what_is_soonest_done(
    crew_of_the_package: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    crew_of_the_package.only("a", "b")
    client = crew_of_the_package.client
    outlook = plan_recipe(RecipeRequest("digits", steps=200), client=client)
    assert outlook.measured is not None
    assert [host.speed.name for host in outlook.measured.hosts] == ["a", "b"]
    for host in outlook.measured.hosts:
        assert 1e-6 < host.speed.step < 1
        assert host.speed.message > 1000
        assert 0 < host.round_trip < 5
        assert min(host.rate, host.rate_up) > 1e5
    assert min(outlook.measured.together, outlook.measured.together_up) > 1e5
    assert 0.1 < outlook.measured.quiet <= 1
    alone, *others = outlook.planned.forecasts
    assert [(each.strategy, len(each.hosts)) for each in others] == [("diloco", 2), ("async", 2), ("mesh", 2)]
    fastest = min(host.speed.step for host in outlook.measured.hosts)
    assert alone.seconds == pytest.approx(200 * fastest * outlook.measured.quiet, abs=1.0)  # and a few messages
    assert outlook.planned.why

    run = tmp_path / "run"
    chosen = train_recipe("digits", steps=64, client=client, run=run, strategy="auto", verbose=False)
    document = json.loads((run / "plan.json").read_text())
    assert chosen.summary["hosts"] == sorted(document["hosts"]) == sorted(document["forecast"]["hosts"])
    soonest = min(document["forecasts"], key=lambda forecast: forecast["seconds"])
    assert document["forecast"]["seconds"] <= 1.2 * soonest["seconds"]
    assert "Forecast of every strategy" in (run / "report.html").read_text()

    run = tmp_path / "begun"  # as if `auto` had chosen these hosts for it
    train_recipe("digits", steps=64, client=client, run=run, strategy="diloco", verbose=False)
    document |= {"strategy": "diloco", "options": {}, "hosts": ["b", "gone"]}
    (run / "plan.json").write_text(json.dumps(document))
    asked = Auto(patience=77.0)
    again = train_recipe("digits", steps=96, client=client, run=run, strategy=asked, resume=True, verbose=False)
    assert again.summary["hosts"] == ["b"]
    assert again.summary["steps"] == 64 // 2 + 32, "of two hosts, then of one"
    assert again.summary["strategy_options"]["delta_codec"] == "float32"  # as of a single one
    assert again.summary["strategy_options"]["patience"] == 77.0

    document |= {"strategy": "single", "options": {"round_steps": 777}, "hosts": ["gone"]}
    (run / "plan.json").write_text(json.dumps(document))
    capsys.readouterr()
    last = train_recipe("digits", steps=128, client=client, run=run, strategy="auto", resume=True, verbose=True)
    assert last.summary["hosts"] == ["a", "b"]
    assert last.summary["strategy_options"]["round_steps"] != 777
    assert "diloco on all hosts, as none of those that were chosen is available (gone)" in printed(capsys)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def handlers_of_rudel(client: Any) -> list[str]:
    found = client.run(lambda dask_worker: [name for name in dask_worker.handlers if name.startswith("rudel_")])
    return [name for names in found.values() for name in names]


def changed_on(name: str, change: Callable[[dict[str, Any]], None]) -> Callable[..., Guest]:
    """What is installed, with operations that are changed on the worker of that name."""

    class Changed(Guest):
        async def setup(self, worker: Any) -> None:
            await super().setup(worker)
            if self.is_in_use and str(worker.name) == name:
                change(self.operations)

    def changed(backend: str = "jax", purpose: str = "") -> Guest:
        usual = replica_guest(backend, purpose)
        return Changed(usual._make, usual._operations, purpose)

    return changed


def without_memory(operations: dict[str, Any]) -> None:
    async def rehearse(**message: Any) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.")

    operations["rehearse"] = rehearse


def freed(operations: dict[str, Any]) -> None:
    async def rehearse(**message: Any) -> None:
        raise Gone

    operations["rehearse"] = rehearse


def silent(operations: dict[str, Any]) -> None:
    import asyncio

    async def probe(**message: Any) -> None:
        await asyncio.sleep(600)

    operations["probe"] = probe


def small(operations: dict[str, Any]) -> None:
    whole = operations["describe"]

    async def describe(**message: Any) -> dict[str, Any]:
        return {**await whole(**message), "memory": 1e6}

    operations["describe"] = describe


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_memory, "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes"),
        (freed, "its connection was closed"),
        (silent, "it did not answer in time"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_worker_that_cannot_be_measured_is_named(
    crew: Any, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    monkeypatch.setattr(measure_hosts, "replica_guest", changed_on("b", change))
    if change is silent:
        monkeypatch.setattr(measure_hosts, "_ANSWER_SECONDS", 1.0)
    with pytest.raises(ClusterError, match=f"^b cannot be measured: {reason}"):
        plan_recipe(RecipeRequest("digits", steps=200), client=crew.client)
    assert handlers_of_rudel(crew.client) == []


def test_auto_trains_by_diloco_where_measuring_fails(
    crew: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure_hosts, "replica_guest", changed_on("b", without_memory))
    run, asked = tmp_path / "run", Auto(patience=77.0)
    trained = train_recipe("digits", steps=64, client=crew.client, run=run, strategy=asked)  # without a terminal
    assert (trained.summary["strategy"], trained.summary["hosts"]) == ("diloco", ["a", "b"])
    assert trained.summary["strategy_options"]["patience"] == 77.0
    why = "on all hosts, as they could not be measured (b cannot be measured: RESOURCE_EXHAUSTED"
    assert f"auto: diloco {why}" in printed(capsys)
    assert why in json.loads((run / "plan.json").read_text())["why"]
    assert "Forecast of every strategy" not in (run / "report.html").read_text()
    again = train_recipe("digits", steps=96, client=crew.client, run=run, strategy=asked, resume=True, verbose=False)
    assert (again.summary["strategy"], again.summary["hosts"]) == ("diloco", ["a", "b"])


def test_what_cannot_be_trained_is_refused_before_anything_is_measured(
    crew_of_the_package: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, blobs: Any, classifier: Any
) -> None:
    monkeypatch.setattr(measure_hosts.Rehearsal, "measure", lambda self: pytest.fail("measured"))
    client, (x, y) = crew_of_the_package.client, blobs
    with pytest.raises(DataError, match="NaN or an infinity"):
        rudel.fit(classifier(), np.where(x == x[0, 0], np.nan, x), y, client=client, strategy="auto")
    rudel.fit(classifier(), x, y, steps=1, run=tmp_path / "run", verbose=False)
    with pytest.raises(RunError, match="already holds a run"):
        rudel.fit(classifier(), x, y, client=client, strategy="auto", run=tmp_path / "run")


def test_a_worker_without_room_is_left_out(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_hosts, "replica_guest", changed_on("b", small))
    outlook = plan_recipe(RecipeRequest("digits", steps=200), client=crew.client)
    assert outlook.measured
    assert [host.speed.name for host in outlook.measured.hosts] == ["a"]
    assert outlook.measured.left_out == ("b",)
    assert [forecast.strategy for forecast in outlook.planned.forecasts] == ["single"]
    assert outlook.planned.why == "There is one host. Without b: too little room for the model or the data."


def test_an_interrupt_ends_measuring_and_gives_workers_back(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsing, rehearsed = threading.Event(), measure_hosts._rehearsed
    monkeypatch.setattr(measure_hosts, "REHEARSAL_SECONDS", 4.0)

    async def noticed(*arguments: Any) -> Any:
        rehearsing.set()
        return await rehearsed(*arguments)

    monkeypatch.setattr(measure_hosts, "_rehearsed", noticed)
    with interrupted(rehearsing):
        plan_recipe(RecipeRequest("digits", steps=200), client=crew.client)
    assert handlers_of_rudel(crew.client) == []


def test_what_cannot_be_planned_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.ssh_cluster._ANSWER_SECONDS", 0.5)
    with pytest.raises(ClusterError, match="No Dask scheduler answers"):
        plan_recipe(RecipeRequest("digits", steps=10), client="tcp://127.0.0.1:1")
    with pytest.raises(OptionError, match="does not understand 'ghosts=3'"):
        plan_recipe(RecipeRequest("digits"), scenario="ghosts=3")
    with pytest.raises(RecipeError, match="no recipe `digit`"):
        plan_recipe(RecipeRequest("digit"), scenario="hosts=3")
    with pytest.raises(OptionError, match="`precision=` can be"):
        RecipeRequest(precision="float8")


def test_hosts_that_are_thought_of_are_as_fast_as_told() -> None:
    outlook = plan_recipe(RecipeRequest("digits", steps=1000), scenario="hosts=3,speed=0.5")
    assert outlook.measured is None
    assert outlook.scenario is not None
    times = np.array([forecast.seconds for forecast in outlook.planned.forecasts])
    assert len(times) == 6
    assert np.all(np.isfinite(times))
