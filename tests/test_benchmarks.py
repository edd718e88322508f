"""The benchmarks run and count right; how fast anything is, no test says."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def drawings(tmp_path: Path) -> Path:
    """Three made-up classes of 60 drawings, in Quick, Draw!'s layout."""
    folder = tmp_path / "full" / "numpy_bitmap"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in ("bit", "bot", "but"):
        np.save(folder / f"{name}.npy", random.integers(0, 256, (60, 784), np.uint8))
    return tmp_path


def test_single_runs_from_end_to_end(drawings: Path, tmp_path: Path) -> None:
    out = tmp_path / "numbers.json"
    arguments = ["--data", drawings, "--classes", "bit,bot,but", "--steps", 40, "--repeats", 1]
    arguments += ["--contestants", "rudel,numpy-floor", "--json", out]
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "single.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "numpy-floor" in process.stdout

    document = json.loads(out.read_text())
    (results,) = document["rounds"]
    assert list(results) == ["rudel, first run", "rudel", "numpy-floor"]
    for numbers in results.values():
        assert numbers["steps"] == 40
        assert numbers["step_seconds"] > 0
        assert numbers["job_seconds"] > 0
        assert numbers["peak_bytes"] > 10e6
    for name in ("rudel, first run", "rudel"):
        assert 0 <= results[name]["accuracy"] <= 1
        assert results[name]["versions"]["keras"]
    assert results["rudel"]["accuracy"] == results["rudel, first run"]["accuracy"]

    (ratio,) = document["step_seconds_over_rudel"]["numpy-floor"]
    assert ratio == pytest.approx(results["numpy-floor"]["step_seconds"] / results["rudel"]["step_seconds"])
    assert document["job"]["steps"] == 40
    assert str(tmp_path) not in out.read_text()
    holds = {claim["text"]: claim["holds"] for claim in document["claims"]}
    assert holds["0.805 of the held-out drawings right"] is None
    assert holds["at least 1.3 times the steps per second of Keras on JAX"] is None


def test_an_unknown_contestant_is_one_sentence(drawings: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "single.py"), "--data", str(drawings), "--contestants", "abacus"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.startswith("There is no contestant abacus: ")


def test_ratios_are_paired_within_rounds(benchmark_module: Any) -> None:
    measure = benchmark_module("measure")
    rounds = [
        {"rudel": {"step_seconds": 1.0}, "slow": {"step_seconds": 6.0}},
        {"rudel": {"step_seconds": 10.0}, "slow": {"step_seconds": 40.0}},
        {"rudel": {"step_seconds": 2.0}, "slow": {"step_seconds": 10.0}},
        {"rudel": {"step_seconds": 2.0}},
    ]
    ratios = measure.paired_ratios(rounds, "step_seconds", "slow", "rudel")
    assert ratios == [6.0, 4.0, 5.0]
    assert measure.spread(ratios) == measure.Spread(5.0, 4.0, 6.0)
    assert measure.values(rounds, "slow", "step_seconds") == [6.0, 40.0, 10.0]
    assert measure.paired_ratios(rounds, "accuracy", "slow", "rudel") == []


def test_a_claim_is_judged_by_the_median_of_its_ratios(benchmark_module: Any) -> None:
    claims = benchmark_module("claims")
    rounds = [
        {"rudel": {"step_seconds": 1.0, "accuracy": 0.81}, "keras-jax": {"step_seconds": ratio}}
        for ratio in (1.2, 1.4, 9.0)
    ]
    verdicts = {verdict.text: verdict for verdict in claims.judged(claims.MLP, rounds, claims.ARTICLE_STEPS)}
    over_jax = verdicts["at least 1.3 times the steps per second of Keras on JAX"]
    assert (over_jax.median, over_jax.holds) == (1.4, True)
    assert verdicts["0.805 of the held-out drawings right"].holds is True
    assert verdicts["compiled within 1 s at later runs"].holds is None


def test_a_missing_package_is_told_with_its_remedy(benchmark_module: Any) -> None:
    measure = benchmark_module("measure")
    here = measure.Contestant("here", Path("x.py"), ("json",), "nothing")
    gone = measure.Contestant("gone", Path("x.py"), ("json", "no_such_package"), "no-such-package")
    assert here.absence == ""
    assert gone.absence.endswith("no_such_package cannot be imported: pip install no-such-package")


def test_a_contestant_that_fails_is_told_in_one_sentence(benchmark_module: Any, tmp_path: Path) -> None:
    measure = benchmark_module("measure")
    script = tmp_path / "falls.py"
    script.write_text("raise SystemExit('no legs')")
    with pytest.raises(measure.BenchmarkError, match=r"^walker ended with code 1 and no result \(no legs\)\.$"):
        measure.run(measure.Contestant("walker", script), {}, {})


def test_hidden_packages_look_as_if_not_installed(benchmark_module: Any, tmp_path: Path) -> None:
    measure = benchmark_module("measure")
    script = tmp_path / "looks.py"
    script.write_text(
        "import importlib.util, json, sys\n"
        "found = {name: importlib.util.find_spec(name) is not None for name in ('numpy', 'jax')}\n"
        "print(json.dumps(found | json.loads(sys.argv[1])))"
    )
    contestant = measure.Contestant("looks", script, hidden=("jax",), settings={"b": 2})
    numbers = measure.run(contestant, {"a": 1}, {})
    assert numbers.pop("job_seconds") > 0
    assert numbers == {"numpy": True, "jax": False, "a": 1, "b": 2}
