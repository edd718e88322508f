"""`rudel plan` on workers that there are."""

import json
from typing import Any

import numpy as np
import pytest

from rudel.errors import ClusterError, OptionError, RecipeError
from rudel.train.from_recipe import train_recipe
from rudel.train.plan.recipe import look
from rudel.train.prepared import Asked


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REHEARSAL_SECONDS", "ROUNDS_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(f"rudel.train.plan.measure.{name}", 0.2)


def test_workers_are_measured_and_auto_takes_what_is_soonest_done(crew_of_the_session: Any, tmp_path: Any) -> None:
    crew_of_the_session.only("a", "b")
    client = crew_of_the_session.client
    outlook = look(Asked("digits", steps=200), client=client)
    assert outlook.measured is not None
    assert [host.speed.name for host in outlook.measured.hosts] == ["a", "b"]
    for host in outlook.measured.hosts:
        assert 1e-6 < host.speed.step < 1
        assert host.speed.message > 1000
        assert 0 < host.round_trip < 5
        assert host.rate > 1e5
    assert outlook.measured.together > 1e5
    assert 0.1 < outlook.measured.quiet <= 1
    alone, *others = outlook.planned.forecasts
    assert [(each.strategy, len(each.hosts)) for each in others] == [("diloco", 2), ("async", 2), ("mesh", 2)]
    fastest = min(host.speed.step for host in outlook.measured.hosts)
    assert alone.seconds == pytest.approx(200 * fastest * outlook.measured.quiet)
    assert outlook.planned.why

    run = tmp_path / "run"
    chosen = train_recipe("digits", steps=64, client=client, run=run, strategy="auto", verbose=False)
    document = json.loads((run / "plan.json").read_text())
    assert chosen.summary["hosts"] == document["hosts"] == document["forecast"]["hosts"]
    soonest = min(document["forecasts"], key=lambda forecast: forecast["seconds"])
    assert document["forecast"]["seconds"] <= 1.2 * soonest["seconds"]
    assert "What was forecast" in (run / "report.html").read_text()

    document |= {"strategy": "single", "hosts": ["b"], "forecast": {**document["forecast"], "hosts": ["b"]}}
    (run / "plan.json").write_text(json.dumps(document))  # as if it had been begun on one of them
    again = train_recipe("digits", steps=96, client=client, run=run, strategy="auto", resume=True, verbose=False)
    assert again.summary["hosts"] == ["b"]
    assert again.summary["steps"] >= 96


def test_what_cannot_be_planned_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.engine._ANSWER_SECONDS", 0.5)
    with pytest.raises(ClusterError, match="No Dask scheduler answers"):
        look(Asked("digits", steps=10), client="tcp://127.0.0.1:1")
    with pytest.raises(OptionError, match="does not understand 'ghosts=3'"):
        look(Asked("digits"), scenario="ghosts=3")
    with pytest.raises(RecipeError, match="no recipe `digit`"):
        look(Asked("digit"), scenario="hosts=3")
    with pytest.raises(OptionError, match="`precision` can be"):
        Asked(precision="float8")


def test_hosts_that_are_thought_of_are_as_fast_as_told() -> None:
    outlook = look(Asked("digits", steps=1000), scenario="hosts=3,speed=0.5")
    assert outlook.measured is None
    assert outlook.scenario is not None
    times = np.array([forecast.seconds for forecast in outlook.planned.forecasts])
    assert len(times) == 6
    assert np.all(np.isfinite(times))
