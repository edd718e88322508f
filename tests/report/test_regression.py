import dataclasses
from typing import Any

import numpy as np
import pytest

from rudel.errors import DataError, RunError
from rudel.report.predictions import save as save_classes
from rudel.report.predictions import summarise
from rudel.report.read import read_run
from rudel.report.regression_data import Answers, answers, choose, load, nearest, save
from rudel.report.regression_fit import Estimate, Fit, judge, shared_by_neighbours
from rudel.report.regression_words import signs, verdict

EPOCHS = [
    {"epoch": e, "loss": 1 / e, "val_loss": 1.1 / e, "mae": 1 / e, "learning_rate": 0.1 / e} for e in range(1, 41)
]
FINE = Fit(1.0, 10.0, Estimate(0.02, -0.03, 0.07), Estimate(0.05, -0.1, 0.2))
MISSED, LEARNED_BY_HEART = Estimate(0.5, 0.4, 0.6), Estimate(0.5, 0.2, 0.8)


def sine(predict: Any, seed: int, sizes: tuple[int, ...] = (600, 200, 200), noise: Any = None) -> dict[str, Answers]:
    """What `predict` answers to noisy samples of a sine."""
    random = np.random.default_rng(seed)
    noise = noise or (lambda random, x: random.normal(0, 0.1, x.shape))
    parts = {}
    for part, size in zip(("train", "validation", "test"), sizes, strict=False):
        x = random.uniform(0, 2 * np.pi, (size, 1))
        parts[part] = answers(np.sin(x) + noise(random, x), predict(x), x, neighbours=part == "train")
    return parts


def test_answers_survive_the_disk(tmp_path):
    saved = sine(np.cos, 0)
    save(tmp_path / "p.npz", saved)
    back = load(tmp_path / "p.npz")
    assert back is not None
    assert list(back) == ["train", "validation", "test"]
    for part, name in ((part, field.name) for part in saved for field in dataclasses.fields(Answers)):
        np.testing.assert_array_equal(getattr(back[part], name), getattr(saved[part], name))
    assert back["train"].neighbours is not None
    assert back["test"].neighbours is None


def test_answers_of_a_classifier_are_told_apart(tmp_path):
    save_classes(tmp_path / "p.npz", summarise([[0.1, 0.9]], [1]))
    assert load(tmp_path / "p.npz") is None


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("train_truth", np.zeros((3, 2), np.float32)),
        ("train_predicted", np.full((600, 1), np.nan, np.float32)),
        ("train_neighbours", np.full((600, 8), 600, np.int32)),
        ("train_neighbours", np.full((600, 0), 0, np.int32)),
        ("validation_x", np.zeros(3, np.float32)),
    ],
)
def test_answers_that_do_not_fit_are_refused(run, name, changed):
    save(run.config().path / "predictions.npz", sine(np.sin, 0))
    arrays = dict(np.load(run.path / "predictions.npz"))
    np.savez(run.path / "predictions.npz", **arrays | {name: changed})
    with pytest.raises(RunError, match=r"predictions.npz` does not hold predictions, or is damaged"):
        read_run(run.path)


def test_inputs_are_kept_where_they_are_single_numbers():
    one, two = np.zeros((3, 1)), np.zeros((3, 2))
    assert answers(one, one, one).x is not None
    assert answers(one, one, two).x is None
    assert answers(one, one, {"a": one, "b": one}).x is None
    assert answers(one, one, np.array([[0.0], [np.nan], [1.0]])).x is None


def test_neighbours_are_those_that_are_nearest():
    points = np.random.default_rng(0).normal(size=(700, 3)) * [1, 100, 0.01] + [5, 0, 0]
    scaled = points / points.std(axis=0)
    found = nearest(points, 5)
    for i in (0, 255, 256, 699):
        distances = np.linalg.norm(scaled - scaled[i], axis=1)
        assert found[i].tolist() == np.argsort(distances)[1:6].tolist()


def test_neighbours_of_equal_inputs_and_of_few():
    assert nearest(np.zeros((2, 4))).tolist() == [[1], [0]]
    assert all(i not in row for i, row in enumerate(nearest(np.zeros((30, 1))).tolist()))


def test_a_sample_is_as_large_as_its_numbers_allow():
    assert len(np.unique(choose(50_000, 3))) == len(choose(50_000, 3)) == 2000
    assert len(choose(50_000, 10**6)) == 1


@pytest.mark.parametrize(
    "noise",
    [
        lambda random, x: random.normal(0, 0.1, x.shape),
        lambda random, x: random.standard_t(3, x.shape) * 0.1,
        lambda random, x: random.exponential(0.1, x.shape) - 0.1,
        lambda random, x: random.normal(0, 0.02 + 0.05 * x),
    ],
    ids=["normal", "heavy tails", "skewed", "growing"],
)
def test_noise_is_hardly_ever_taken_for_a_sign(noise):
    judged = [judge(sine(np.sin, seed, noise=noise)) for seed in range(40)]
    assert sum(fit.underfits for fit in judged) == 0
    assert sum(fit.overfits for fit in judged) <= 1


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_interval_holds_the_part_that_could_have_been_learned(share):
    """A sine is missed altogether: its mean square is known, and so is that of the noise."""
    amplitude, deviation = np.sqrt(2 * share), np.sqrt(1 - share)
    random = np.random.default_rng(1)
    found = []
    for _ in range(60):
        x = random.uniform(0, 2 * np.pi, (400, 1))
        truth = amplitude * np.sin(x) + random.normal(0, deviation, x.shape)
        estimate = shared_by_neighbours(answers(truth, np.zeros_like(x), x, neighbours=True))
        assert estimate is not None
        found.append(estimate)
    assert np.mean([estimate.value for estimate in found]) == pytest.approx(share, abs=0.02)
    assert sum(not estimate.low <= share <= estimate.high for estimate in found) <= 6


def test_a_straight_line_through_a_sine_underfits():
    fit = judge(sine(lambda x: 0.9 - 0.29 * x, 3))
    assert fit.underfits
    assert not fit.overfits
    assert verdict(fit) == "It underfits."
    assert "missed in the same direction" in signs(fit)
    assert "noise alone would make it 0.1" in signs(fit)


def test_knowing_the_training_examples_by_heart_overfits():
    parts = sine(np.sin, 4)
    known = parts["train"]
    parts["train"] = dataclasses.replace(known, predicted=known.truth - 0.3 * (known.truth - known.predicted))
    fit = judge(parts)
    assert fit.overfits
    assert not fit.underfits
    assert verdict(fit) == "It overfits."
    assert "fits its training examples better than others" in signs(fit)


def test_errors_without_noise_that_are_tiny_do_not_matter():
    """A pattern is all that is wrong, and it is a millionth of what there was to learn."""
    fit = judge(sine(lambda x: np.sin(x) * 0.999, 5, noise=lambda random, x: 0 * x))
    assert fit.pattern is not None
    assert fit.pattern.value > 0.9 * fit.error
    assert not fit.underfits
    assert "too small to matter" in signs(fit)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_pattern_over_several_inputs_and_outputs_is_found(outputs):
    random = np.random.default_rng(6)
    x = random.normal(size=(600, 2))
    truth = x[:, :1] * x[:, 1:] + random.normal(0, 0.3, (600, outputs))
    fit = judge({"train": answers(truth, np.zeros_like(truth), {"a": x[:, 0], "b": x[:, 1:]}, neighbours=True)})
    assert fit.underfits
    assert fit.gap is None
    assert verdict(fit) == "It underfits."


@pytest.mark.parametrize(
    ("pattern", "gap", "sentence"),
    [
        (FINE.pattern, FINE.gap, "It neither underfits nor overfits."),
        (MISSED, FINE.gap, "It underfits."),
        (FINE.pattern, LEARNED_BY_HEART, "It overfits."),
        (MISSED, LEARNED_BY_HEART, "It underfits and overfits."),
        (None, LEARNED_BY_HEART, "It overfits; whether it also underfits is not known."),
        (None, FINE.gap, "It does not overfit; whether it underfits is not known."),
        (FINE.pattern, None, "It does not underfit; whether it overfits is not known."),
        (None, None, "Whether it fits is not known."),
    ],
)
def test_verdicts(pattern, gap, sentence):
    fit = dataclasses.replace(FINE, pattern=pattern, gap=gap)
    assert verdict(fit) == sentence
    assert signs(fit).endswith(".")


def test_too_few_examples_are_no_ground_for_a_verdict():
    assert verdict(judge(sine(np.cos, 0, (29, 29)))) == "Whether it fits is not known."


def test_a_model_without_any_error():
    fit = judge(sine(np.sin, 0, noise=lambda random, x: 0 * x))
    assert verdict(fit) == "It neither underfits nor overfits."
    assert "no errors in training" in signs(fit)


def test_a_report_of_a_curve(run):
    run.config(recipe="sine", class_names=[], data={"train": 600, "validation": 200, "test": 200}).epochs(EPOCHS)
    save(run.path / "predictions.npz", sine(np.sin, 0))
    page = run.summary().report()
    assert page.sections == ["data", "learning", "fit", "time", "ran"]
    assert "It neither underfits nor overfits." in page.words()
    assert [row[:2] for row in page.table("The targets")] == [
        ["training", "600"], ["validation", "200"], ["test", "200"],
    ]  # fmt: skip
    headings = ["".join(heading.itertext()) for heading in page.all("h3")]
    assert headings[:5] == [
        "Loss", "MAE", "Learning rate", "Loss without the first 4 epochs", "MAE without the first 4 epochs",
    ]  # fmt: skip
    assert headings[5:8] == ["Training", "Validation", "Test"]
    labels = [drawing.get("aria-label", "") for drawing in page.all("svg")]
    assert any(label.startswith("The examples as dots") for label in labels)
    assert sum("the predictions as a line" in label for label in labels) == 3
    ids = [part.get("id") for part in page.root.iter() if part.get("id")]
    assert len(ids) == len(set(ids))


def test_the_errors_are_those_of_the_answers(run):
    parts = {"train": Answers(np.array([[0], [2]], np.float32), np.array([[1], [2]], np.float32))}
    save(run.config(data={}).path / "predictions.npz", parts)
    assert run.report().table("Errors") == [["training", "2", "0.7071", "0.5", "0.5"]]


def test_a_report_of_other_regressions(run):
    random = np.random.default_rng(0)
    x, truth = random.normal(size=(900, 3)), random.normal(size=(900, 2))
    parts = {part: answers(truth, truth * 0.9, x, neighbours=part == "train") for part in ("train", "validation")}
    save(run.config(data={"train": 50_000, "validation": 900}).epochs(EPOCHS).path / "predictions.npz", parts)
    page = run.report()
    assert "A dot is a prediction" in page.words()
    assert "All numbers here are of 900 training examples, chosen at random." in page.words()
    assert page.table("Errors")[0][:2] == ["training", "50,000"]
    assert len(page.text) < 300_000


def test_a_short_training_has_no_second_curves(run):
    save(run.config().epochs(EPOCHS[:19]).path / "predictions.npz", sine(np.sin, 0))
    assert "without the first" not in run.report().words()


def test_targets_that_are_all_alike_have_no_r2(run):
    same = np.ones((40, 1), np.float32)
    save(run.config().path / "predictions.npz", {"train": answers(same, same * 2, same, neighbours=True)})
    assert run.report().table("Errors")[0][-1] == "–"


def test_odd_answers_are_refused():
    with pytest.raises(DataError, match="finite"):
        answers(np.ones((2, 1)), np.array([[1], [np.inf]]), np.ones((2, 1)))
    with pytest.raises(DataError, match="must both be"):
        answers(np.ones((2, 1)), np.ones((2, 3)), np.ones((2, 1)))
