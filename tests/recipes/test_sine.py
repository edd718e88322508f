import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predicting import predict_files

import rudel
from rudel.recipes.load import find_recipe
from rudel.report.read import read_run
from rudel.report.regression_fit import Fit, judge
from rudel.runs.evaluate_run import evaluate_run
from rudel.runs.loading import load


def judged(run: Path) -> Fit:
    answers = read_run(run).regression
    assert answers is not None
    return judge(answers)


def test_the_samples_are_a_noisy_sine_in_three_parts():
    recipe = find_recipe("sine")
    dataset = recipe.data(recipe.settings({}))
    parts = [dataset.train, dataset.validation, dataset.test]
    assert [len(part) for part in parts] == [600, 200, 200]
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in "xy")
    assert x.dtype == y.dtype == np.float32
    assert len(np.unique(x)) == 1000
    assert 0 <= x.min() < 0.05
    assert 2 * np.pi - 0.05 < x.max() <= 2 * np.pi
    noise = y - np.sin(x)
    assert noise.std() == pytest.approx(0.1, rel=0.1)
    assert abs(noise.mean()) < 0.015


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Any]:
    """What the default trains by this seed, once."""

    @functools.cache
    def trained(seed: int) -> Any:
        run = tmp_path_factory.mktemp("full") / "run"
        return rudel.train_recipe("sine", options={"seed": seed}, seed=seed, run=run)

    return trained


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_small_net_underfits_and_the_default_does_not(full: Callable[[int], Any], tmp_path: Path, seed: int):
    small = rudel.train_recipe("sine", options={"net": "small", "seed": seed}, seed=seed, run=tmp_path / "small")
    default = full(seed)
    assert [len(run.model.layers) for run in (small, default)] == [2, 3]
    assert judged(small.path).underfits
    assert not judged(default.path).underfits
    assert not judged(default.path).overfits
    assert default.summary["metrics"]["test_mae"] < 0.1
    assert "It underfits." in (small.path / "report.html").read_text()
    assert "It neither underfits nor overfits." in (default.path / "report.html").read_text()


def test_a_run_is_evaluated_and_asked(full: Callable[[int], Any], tmp_path: Path):
    trained = full(0)
    assert json.loads((trained.path / "config.json").read_text())["data"] == {
        "train": 600, "validation": 200, "test": 200,
    }  # fmt: skip
    evaluated = evaluate_run(trained.path)
    assert evaluated.examples == 200
    assert evaluated.metrics["mae"] == pytest.approx(trained.summary["metrics"]["val_mae"], rel=1e-5)
    x = np.linspace(0, 6, 7, dtype=np.float32)[:, None]
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "true.npz", x=x, y=np.sin(x))
    predictions = predict_files(trained.path, [tmp_path / "x.npy"])
    assert np.allclose([prediction.outputs[0] for prediction in predictions], np.sin(x[:, 0]), atol=0.15)
    assert [prediction.ranking for prediction in predictions] == [[]] * 7
    assert evaluate_run(trained.path, tmp_path / "true.npz").metrics["mae"] < 0.1
    assert load(trained.path).count_params() == 321


def test_answers_that_are_kept_are_those_of_the_model(tmp_path: Path):
    trained = rudel.train_recipe("sine", epochs=5, run=tmp_path / "run")
    answers = read_run(trained.path).regression
    assert answers is not None
    test = find_recipe("sine").data(find_recipe("sine").settings({})).test
    np.testing.assert_array_equal(answers["test"].truth, test.y)
    np.testing.assert_allclose(answers["test"].predicted, rudel.predict(trained.model, test.x), rtol=1e-5, atol=1e-6)
