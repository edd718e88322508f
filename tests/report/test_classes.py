import numpy as np
import pytest

from rudel.report.classes import score
from rudel.report.confusion import confusion_matrix, most_confused, row_shares
from rudel.report.predictions import Predictions, summarise


def brute_force(truth, predicted, classes):
    return [
        [sum(t == i and p == j for t, p in zip(truth, predicted, strict=True)) for j in range(classes)]
        for i in range(classes)
    ]


def answers_of(matrix):
    """Answers that have this confusion matrix."""
    cells = np.array([place for place, count in np.ndenumerate(np.array(matrix)) for _ in range(count)])
    probabilities = np.eye(len(matrix))[cells[:, 1]]
    return summarise(probabilities, cells[:, 0])


@pytest.mark.parametrize("classes", [2, 5, 13])
def test_confusion_and_scores_equal_a_count_by_hand(make_answers, classes):
    predictions = summarise(*make_answers(classes, 400))
    truth, predicted = predictions.truth.tolist(), predictions.predicted.tolist()
    matrix = confusion_matrix(predictions, classes)
    assert matrix.tolist() == brute_force(truth, predicted, classes)
    np.testing.assert_allclose(row_shares(matrix).sum(axis=1), 1)
    scores = score(predictions, classes)
    for c in range(classes):
        hits = sum(t == p == c for t, p in zip(truth, predicted, strict=True))
        precision, recall = hits / predicted.count(c), hits / truth.count(c)
        assert scores.precision[c] == pytest.approx(precision)
        assert scores.recall[c] == pytest.approx(recall)
        assert scores.f1[c] == pytest.approx(2 * precision * recall / (precision + recall))
        assert scores.support[c] == truth.count(c)


def test_scores_that_are_not_defined_are_nan():
    scores = score(answers_of([[2, 0, 0], [1, 0, 0], [0, 0, 0]]), 3)
    np.testing.assert_array_equal(scores.precision, [2 / 3, np.nan, np.nan])
    np.testing.assert_array_equal(scores.recall, [1, 0, np.nan])
    np.testing.assert_array_equal(scores.f1, [0.8, 0, np.nan])


def test_most_confused_pairs_come_in_order_and_without_the_right_ones():
    predictions = answers_of([[9, 2, 0], [4, 9, 2], [0, 0, 9]])
    assert most_confused(predictions, 5) == [(1, 0, 4), (0, 1, 2), (1, 2, 2)]
    assert most_confused(predictions, 1) == [(1, 0, 4)]


def test_the_page_shows_each_count_and_each_class(whole, make_answers):
    page = whole.report()
    predictions = summarise(*make_answers(3, 300))
    matrix = confusion_matrix(predictions, 3)
    (picture,) = (svg for svg in page.all("svg") if "Confusion" in svg.get("aria-label", ""))
    drawn = [text.text for text in picture.iter("text")]
    assert sorted(t for t in drawn if t and t.isdigit()) == sorted(str(n) for n in matrix.flat if n)
    assert drawn.count("bird") == 2
    rows = page.table("Scores of each class")
    assert [row[0] for row in rows] == ["bird", "cat", "fish"]
    assert [int(row[-1]) for row in rows] == matrix.sum(axis=1).tolist()


def test_345_classes_are_a_picture_and_a_table_of_pairs(run):
    names = [f"class number {i}" for i in range(345)]
    page = run.config(class_names=names).predictions(345, 3000).report()
    (picture,) = (svg for svg in page.all("svg") if "Confusion" in svg.get("aria-label", ""))
    assert float(picture.get("width", 0)) <= 900
    assert len(list(picture.iter("image"))) == 1
    assert len(list(picture.iter("text"))) < 100
    assert len(page.table("The most confused pairs")) == 15
    assert len(page.table("Scores of each class")) == 345
    assert len(page.text) < 1_000_000


def test_a_hundred_thousand_classes_take_no_memory_by_their_square():
    classes = 100_000  # whose matrix would have 80 GB
    truth = np.arange(300)
    predicted = np.where(truth < 9, classes - 1 - truth // 5, truth)
    sure = np.ones(300, np.float32)
    predictions = Predictions(truth.astype("int32"), predicted.astype("int32"), sure, sure)
    scores = score(predictions, classes)
    assert (scores.recall[9], scores.precision[classes - 1], scores.support.sum()) == (1, 0, 300)
    assert most_confused(predictions, 2) == [(0, classes - 1, 1), (1, classes - 1, 1)]


def test_beyond_a_thousand_classes_the_pairs_stay_and_the_picture_goes(run):
    page = run.config(class_names=[f"c{i}" for i in range(1001)]).predictions(1001, 500, pictures=False).report()
    assert not [svg for svg in page.all("svg") if "Confusion" in svg.get("aria-label", "")]
    assert len(page.table("The most confused pairs")) == 15
    assert len(page.table("Scores of each class")) == 1001


@pytest.mark.parametrize("classes", [1, 2, 20, 21, 60])
def test_any_number_of_classes_has_a_page(run, classes):
    page = run.config(class_names=[f"c{i}" for i in range(classes)]).predictions(classes, 200).report()
    assert "mistakes" in page.sections


def test_classes_without_names_go_by_number(run):
    page = run.config(class_names=["only this one"]).predictions(3).report()
    assert [row[0] for row in page.table("Scores of each class")] == ["only this one", "1", "2"]


def test_no_examples_make_no_section(run):
    page = run.config().predictions(3, 0).report()
    assert page.sections == ["ran"]


def test_a_perfect_model_has_no_pairs_and_no_wrong_pictures(run, tmp_path):
    from rudel.report.predictions import save

    truth = np.arange(60) % 3
    save(tmp_path / "predictions.npz", summarise(np.eye(3)[truth], truth), np.zeros((60, 8, 8), np.uint8))
    page = run.config().report()
    assert "most confused pairs" not in page.words("table")
    assert "Correct" in page.words("h3")
    assert "Wrong" not in page.words("h3")
