"""Precision and recall of each class."""

from dataclasses import dataclass

import numpy as np

from rudel.report.confusion import class_count
from rudel.report.formatting import count, percent
from rudel.report.markup import Html, element, join, table
from rudel.report.predictions import Predictions
from rudel.report.read import Run

_MOST_OPEN = 40


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of C classes, float64 (C,) each; NaN where a score is not defined.

    Args:
        precision: of the examples taken for the class, the share that is of it; NaN if none was.
        recall: of the examples of the class, the share that was recognised; NaN if there are none.
        f1: harmonic mean of the two; NaN if there are neither examples nor answers.
        support: examples of the class, int64 (C,).
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray


def score(predictions: Predictions, classes: int) -> Scores:
    """Scores of so many classes; takes memory by their number, not by its square."""
    truth, predicted = predictions.truth, predictions.predicted
    right, support, answers = (
        np.bincount(each, minlength=classes) for each in (truth[truth == predicted], truth, predicted)
    )
    return Scores(_ratio(right, answers), _ratio(right, support), _ratio(2 * right, support + answers), support)


def class_table(run: Run) -> Html | None:
    """Precision, recall, F1 and support of each class, and their means."""
    if run.predictions is None or not len(run.predictions.truth):
        return None
    scores = score(run.predictions, class_count(run))
    columns = (scores.precision, scores.recall, scores.f1)
    rows = [
        [
            run.class_name(i),
            *(percent(float(column[i])) for column in columns[:2]),
            _bar(scores.f1[i]),
            count(int(support)),
        ]
        for i, support in enumerate(scores.support)
    ]
    seen = scores.support > 0
    means = [percent(_mean(column[seen])) for column in columns]
    made = table(
        "Scores of each class",
        ["class", "precision", "recall", "F1", "examples"],
        rows,
        [["mean over classes", *means, count(int(scores.support.sum()))]],
    )
    explained = (
        "Precision: of the examples predicted as this class, the share that belongs to it. "
        "Recall: of the examples of this class, the share predicted as it. F1: their harmonic mean."
    )
    if len(rows) > _MOST_OPEN:
        made = element("details", element("summary", f"All {len(rows)} classes"), made)
    return join([element("p", explained, class_="note"), _extremes(run, scores), made])


def _extremes(run: Run, scores: Scores) -> Html | None:
    known = np.flatnonzero(np.isfinite(scores.f1) & (scores.support > 0))
    if len(known) < 3:
        return None
    order = known[np.argsort(-scores.f1[known], kind="stable")]
    best, worst = order[0], order[-1]
    return element(
        "p",
        f"Best class: {run.class_name(best)} (F1 {percent(float(scores.f1[best]))}); "
        f"worst: {run.class_name(worst)} ({percent(float(scores.f1[worst]))}).",
    )


def _bar(share: float) -> Html:
    width = f"width:{100 * share:.1f}%" if np.isfinite(share) else "width:0"
    track = element("span", element("span", style=width), class_="bar", aria_hidden="true")
    return join([track, percent(float(share))])


def _mean(values: np.ndarray) -> float | None:
    return float(np.nan_to_num(values).mean()) if len(values) else None


def _ratio(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    return np.divide(parts, wholes, out=np.full(len(parts), np.nan), where=wholes > 0)
