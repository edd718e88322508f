"""`rudel plan` on the command line."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rudel.cli import plan
from rudel.planning import measure_hosts
from rudel.planning.forecast import Forecast
from rudel.planning.planning import Planned

PLACES = ("--on", "raspi1"), ("--scheduler", "tcp://127.0.0.1:1"), ("--simulate", "hosts=2")


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_hosts, "HERE_SECONDS", 0.1)


@pytest.mark.parametrize("places", [(), PLACES[:2], PLACES[1:], PLACES], ids=len)
def test_hosts_are_named_in_one_way(rudel: Callable[..., Any], places: tuple[tuple[str, str], ...]) -> None:
    error = rudel("plan", "digits", *(part for place in places for part in place)).error
    assert "Give one of --on, --scheduler and --simulate" in error
    assert all(name in error for name, _ in places)


def test_a_scenario_is_forecast_as_json_and_as_a_table(rudel: Callable[..., Any]) -> None:
    found = rudel("plan", "--steps", 3000, "--simulate", "hosts=2,rate=1000,latency=0", "--json")
    assert found.code == 0, found.err
    document = json.loads(found.out)
    assert document.keys() == {"work", "measured", "scenario", "planned", "seconds"}
    assert document["measured"] is None
    assert document["scenario"]["hosts"] == 2
    assert document["work"]["steps"] == 3000
    forecasts, best = document["planned"]["forecasts"], document["planned"]["best"]
    assert [(f["strategy"], f["hosts"]) for f in forecasts] == [
        ("single", ["host1"]),
        ("diloco", ["host1", "host2"]),
        ("async", ["host1", "host2"]),
        ("mesh", ["host1", "host2"]),
    ]
    assert best in forecasts
    for forecast in forecasts:
        assert forecast["computing"] + forecast["exchanging"] + forecast["waiting"] == pytest.approx(1)
        assert forecast["seconds"] > 0
        assert forecast["sent"] > 0
        assert forecast["memory"] > 250e6

    shown = rudel("plan", "--steps", 3000, "--simulate", "hosts=2,rate=1000,latency=0")
    assert shown.code == 0, shown.err
    heading, *rows = [line.split() for line in shown.out.splitlines() if line.strip()]
    assert heading == ["Strategy", "hosts", "time", "times", "steps", "merge", "wait", "send", "sent", "memory"]
    assert [row[:2] for row in rows[:4]] == [["single", "1"], ["diloco", "2"], ["async", "2"], ["mesh", "2"]]
    (star,) = (row for row in rows[:4] if row[-1] == "*")
    assert " ".join(rows[4]).startswith("2 hosts by" if star[0] != "single" else ("One host", "More hosts"))


def test_a_training_too_short_to_be_merged_is_noted(rudel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(work: Any, *others: Any) -> Planned:
        best = Forecast("diloco", ("a", "b", "c", "d"), 9.0, 1, 0, 0, 1e6, 1)
        return Planned((best,), best, f"{work.steps} steps.")

    monkeypatch.setattr("rudel.training.plan_recipe.plan", planned)
    for steps, few in ((200, ["50 steps on each of 4 hosts are few"]), (2000, [])):
        shown = rudel("plan", "digits", "--steps", steps, "--simulate", "hosts=4").out.splitlines()
        after = shown[shown.index(f"{steps} steps.") + 1 :]
        assert [line.partition(":")[0] for line in after] == few


def test_what_has_to_be_read_on_every_host_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    two = ("a", "b")
    forecasts = [
        Forecast("diloco", two, 10.0, 1, 0, 0, 1e6, 1, 250e6),
        Forecast("mesh", two, 9.0, 1, 0, 0, 1e6, 1, 250e6, needs_files=True),
    ]
    plan._tell_forecasts(forecasts, forecasts[0])
    _, diloco, mesh, note = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert diloco.split()[-1] == "*"
    assert mesh.split()[-1] == "files"
    assert note.startswith("files: every host reads the data itself")


def test_forecasts_stay_on_their_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    slow = Forecast("mesh", ("a", "b", "c", "d"), 123_456.0, 0.1, 0.2, 0.7, 987e9, 9, 12e9, 0.5, True)
    plan._tell_forecasts([slow], slow)
    heading, row = [line for line in capsys.readouterr().out.splitlines() if line.strip()][:2]
    assert heading.startswith("Strategy")
    assert row.startswith("mesh")
    assert row.endswith("*")
    assert len(row) > 60
