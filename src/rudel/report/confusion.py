"""Confusion matrix: the classes that the model takes for others."""

import math
from typing import TYPE_CHECKING

import numpy as np

from rudel.report.formatting import count, percent
from rudel.report.markup import Html, element, join, scrolling, table
from rudel.report.predictions import Predictions
from rudel.report.read import Run
from rudel.report.svg import INK, MUTED, ON_RIGHT, RIGHT, RULE, WRONG, as_svg, figure, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DRAWN = 1_000
"""Classes of a matrix that is drawn: it takes memory by their square, and has less than a pixel for each of more."""

_MOST_WITH_COUNTS = 20
_MOST_NAMES = 50
_MOST_PAIRS = 15
_LONGEST_NAME = 18
_PAGE = 880
_PIXELS_RIGHT, _PIXELS_WRONG = (58, 128, 220), (236, 112, 36)


def confusion(run: Run) -> Html | None:
    """The confusion matrix as a picture, if it has not too many classes, and the most confused pairs as a table."""
    predictions = run.predictions
    if predictions is None or not len(predictions.truth):
        return None
    names = [run.class_name(i) for i in range(class_count(run))]
    right, examples = int((predictions.truth == predictions.predicted).sum()), len(predictions.truth)
    intro = f"{right:,} of {examples:,} validation examples are correct, {percent(right / examples)}."
    drawn = _drawn(confusion_matrix(predictions, len(names)), names) if len(names) <= _MOST_DRAWN else None
    return join([element("p", intro), drawn, _pairs_table(predictions, names)])


def _drawn(matrix: np.ndarray, names: list[str]) -> Html:
    label = (
        f"Confusion matrix of {len(names)} classes: {matrix.trace():,} of {matrix.sum():,} examples on the diagonal. "
        "The most confused pairs and the table of classes below hold its main numbers."
    )
    counts = len(names) <= _MOST_WITH_COUNTS
    drawing = _with_counts(matrix, names, label) if counts else _as_image(matrix, names, label)
    scale = "square" if counts else "cube"
    explained = (
        "Rows are true classes, columns predicted classes; correct predictions lie on the diagonal. "
        f"Colour is the share of the row, on a {scale}-root scale, which keeps rare mistakes visible"
        + ("; the numbers count examples." if counts else ".")
    )
    return element("figure", scrolling(drawing, "Confusion matrix"), element("figcaption", explained), class_="matrix")


def class_count(run: Run) -> int:
    """Number of classes of the run: those with names, or as many as its answers need."""
    named = len(run.config.get("class_names") or [])
    seen = run.predictions
    if seen is None or not len(seen.truth):
        return named
    return max(named, int(seen.truth.max()) + 1, int(seen.predicted.max()) + 1)


def confusion_matrix(predictions: Predictions, classes: int) -> np.ndarray:
    """Numbers of examples of each class that were taken for each class.

    Returns:
        int64 (classes, classes); rows are the right classes, columns the answers.
    """
    flat = predictions.truth.astype(np.int64) * classes + predictions.predicted
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def row_shares(matrix: np.ndarray) -> np.ndarray:
    """Each cell as a share of its row, float64 (C, C); zeros in a row without examples."""
    return matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)


def most_confused(predictions: Predictions, most: int) -> list[tuple[int, int, int]]:
    """The largest cells off the diagonal, as (right class, answer, how many), the most frequent first.

    Takes memory by the number of examples, not by that of classes.
    """
    wrong = predictions.truth != predictions.predicted
    pairs = np.stack([predictions.truth[wrong], predictions.predicted[wrong]], axis=1)
    cells, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [(int(truth), int(answer), int(n)) for (truth, answer), n in zip(cells[order], counts[order], strict=True)]


def _pairs_table(predictions: Predictions, names: list[str]) -> Html | None:
    most = _MOST_PAIRS if len(names) > _MOST_WITH_COUNTS else min(6, len(names) * 2)
    pairs = most_confused(predictions, most)
    if not pairs or len(names) < 3:
        return None
    sizes = np.bincount(predictions.truth)
    rows = [[names[t], names[p], count(n), percent(n / sizes[t])] for t, p, n in pairs]
    header = ["true class", "predicted as", "examples", "share of its class"]
    return table("The most confused pairs", header, rows, words=(0, 1))


def _with_counts(matrix: np.ndarray, names: list[str], label: str) -> Html:
    from matplotlib.patches import Rectangle

    axes, width = _axes(names, 60 if len(names) <= 8 else 44)
    for (row, column), share in np.ndenumerate(row_shares(matrix)):
        strength = round(math.sqrt(share), 3)
        colour = RIGHT if row == column else WRONG
        square = (column - 0.48, row - 0.48), 0.96, 0.96
        axes.add_patch(Rectangle(*square, color=RULE, alpha=0.35, linewidth=0, clip_on=False))
        if not matrix[row, column]:
            continue
        axes.add_patch(Rectangle(*square, color=colour, alpha=strength, linewidth=0, clip_on=False))
        ink = ON_RIGHT if strength > 0.8 else INK
        size = 12 if matrix[row, column] < 10_000 else 10
        axes.text(
            column, row, count(int(matrix[row, column])), color=ink, fontsize=size, ha="center", va="center_baseline"
        )
    return _finished(axes, names, label, range(len(names)), width)


def _as_image(matrix: np.ndarray, names: list[str], label: str) -> Html:
    axes, width = _axes(names, 16)
    pixels = np.zeros((*matrix.shape, 4), np.uint8)
    pixels[..., :3] = _PIXELS_WRONG
    pixels[np.eye(len(matrix), dtype=bool), :3] = _PIXELS_RIGHT
    pixels[..., 3] = np.rint(255 * np.cbrt(row_shares(matrix)))
    axes.imshow(pixels, interpolation="none", aspect="auto")
    axes.patch.set(visible=True, facecolor=RULE, alpha=0.35)
    every = 1 if len(names) <= _MOST_NAMES else math.ceil(len(names) / 40)
    return _finished(axes, names, label, range(0, len(names), every), width)


def _axes(names: list[str], cell: float) -> tuple["Axes", float]:
    margin = max(90, 28 + 7 * min(max(map(len, names)), _LONGEST_NAME))
    side = min(cell * len(names), _PAGE - margin)
    width = side + margin + 4
    axes = figure(width, width).add_axes((margin / width, 4 / width, side / width, side / width))
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.patch.set_visible(False)
    return axes, width


def _finished(axes: "Axes", names: list[str], label: str, ticks: range, width: float) -> Html:
    shown = [literal(_shortened(names[i])) for i in ticks]
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(ticks, shown, rotation=90)
    axes.set_yticks(ticks, shown)
    size = 12 if len(names) <= _MOST_WITH_COUNTS else 11
    axes.tick_params(length=0, pad=6, labelsize=size, labelcolor=INK)
    corner = 1 - axes.get_position().width - 4 / width
    for words, above in (("true ↓", 12), ("predicted →", 27)):
        place = corner - 10 / width, 1 - corner + above / width
        axes.figure.text(*place, words, color=MUTED, fontsize=12, ha="right")
    drawing = axes.get_figure(root=True)
    assert drawing is not None
    return as_svg(drawing, "confusion", label)


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
