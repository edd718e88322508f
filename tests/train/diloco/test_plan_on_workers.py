"""`rudel plan` on workers that there are."""

from typing import Any

import numpy as np
import pytest

from rudel.errors import ClusterError, OptionError, RecipeError
from rudel.train.from_recipe import train_recipe
from rudel.train.plan.recipe import look
from rudel.train.prepared import Asked


def test_workers_are_measured_and_can_train_thereafter(crew_of_the_session: Any, tmp_path: Any) -> None:
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
    assert [len(forecast.hosts) for forecast in outlook.planned.forecasts] == [1, 2]
    alone = outlook.planned.forecasts[0]
    assert alone.seconds == pytest.approx(200 * min(host.speed.step for host in outlook.measured.hosts))
    assert outlook.planned.why
    run = train_recipe("digits", steps=64, client=client, run=tmp_path / "run", verbose=False)
    assert run.summary["hosts"] == ["a", "b"]


def test_what_cannot_be_planned_is_told() -> None:
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
    assert len(times) == 3
    assert np.all(np.isfinite(times))
