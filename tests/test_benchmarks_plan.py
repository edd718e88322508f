"""What `benchmarks/plan.py` makes of its numbers."""

import importlib
from pathlib import Path
from typing import Any

import pytest

PLAN = {
    "predicted": {"single-1": 10.0, "diloco-2": 6.0, "diloco-4": 3.3, "mesh-4": 1000.0},
    "look_seconds": 12.0,
    "steps": 1000,
    "work": {"steps": 1000, "batch_size": 32, "weights": 4000, "variables": 12000},
    "measured": {
        "hosts": [
            {"speed": {"name": f"h{i}", "step": 0.01, "exchange": 0.0, "message": 0.0, "memory": 1e9, "tried": [1, 1]}}
            for i in range(4)
        ]
    },
}


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("plan")


def trained(seconds: float, steps: int = 1000, strategy: str = "diloco", hosts: int = 4) -> dict[str, Any]:
    return {"train_seconds": seconds, "steps": steps, "strategy": strategy, "hosts": hosts, "plan": PLAN}


def test_trainings_stand_beside_what_was_forecast_right_before(plan: Any) -> None:
    auto = trained(3.0) | {"plan": None, "forecast": {"forecast": {"seconds": 3.3}}}
    results = {
        "mlp@20/plan": PLAN,
        "mlp@20/single-1": {"train_seconds": 11.0, "plan": PLAN},
        "mlp@20/diloco-2": trained(5.0),
        "mlp@20/diloco-4": trained(2.5),
        "mlp@20/mesh-4": trained(26.0, steps=25),
        "mlp@20/auto-4": auto,
    }
    assert list(plan.cells(results)) == [
        ("mlp@20/single-1", 10.0, 11.0),
        ("mlp@20/diloco-2", 6.0, 5.0),
        ("mlp@20/diloco-4", 3.3, 2.5),
        ("mlp@20/mesh-4", 25.0, 26.0),
        ("mlp@20/auto-4", 3.3, 3.0),
    ]
    assert list(plan.choices(results)) == [("mlp@20/auto-4", "diloco-4", 1.2)]
    document = {"rounds": [results], "job": {"latency": 0.0}}
    names = {name: seconds for name, seconds, _ in plan.simulated(document)}
    assert names == {"mlp@20/diloco-2": pytest.approx(5.0, rel=0.05), "mlp@20/diloco-4": pytest.approx(2.5, rel=0.05)}
    verdicts = [(verdict.median, verdict.holds) for verdict in plan.verdicts(document)]
    assert verdicts[0] == (pytest.approx(0.32), False)
    assert verdicts[1] == (pytest.approx(0.2), False)
    assert verdicts[2] == (1.2, False)
    assert [holds for _, holds in verdicts[3:]] == [True, True]


def test_nothing_is_said_of_what_was_not_measured(plan: Any) -> None:
    verdicts = plan.verdicts({"rounds": [{"mlp@20/single-1": {"train_seconds": 11.0}}], "job": {"latency": 0.0}})
    assert all(verdict.holds is None for verdict in verdicts)
