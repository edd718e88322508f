import itertools
import math

import pytest

from rudel.report.curves import epoch_ticks, find_curves, wants_log_scale


def lines(**columns):
    count = len(next(iter(columns.values())))
    return [{"epoch": i + 1} | {key: values[i] for key, values in columns.items()} for i in range(count)]


def test_the_loss_comes_first_and_validation_joins_its_metric():
    found = find_curves(lines(mae=[3, 2], val_mae=[4, 3], loss=[1, 0.5], val_auc=[0.5, 0.6], seconds=[1, 1]))
    assert [curve.key for curve in found] == ["loss", "mae", "auc"]
    assert [[name for name, _, _ in curve.lines] for curve in found] == [
        ["training"],
        ["training", "validation"],
        ["validation"],
    ]
    assert found[1].validation == (4.0, 3.0)


def test_values_that_are_not_numbers_are_gaps_and_curves_without_any_are_left_out():
    (curve,) = find_curves(lines(loss=[1.0, None, 0.5], mae=[None, math.nan, math.inf]))
    assert curve.train is not None
    assert math.isnan(curve.train[1])
    assert curve.train[::2] == (1.0, 0.5)


@pytest.mark.parametrize(
    ("key", "values", "log"),
    [
        ("loss", [100.0, 0.9], True),
        ("loss", [100.0, 1.0], False),
        ("loss", [100.0, 0.0], False),
        ("loss", [5.0, -0.001], False),
        ("mae", [100.0, 0.9], False),
    ],
)
def test_a_loss_over_two_decades_is_drawn_on_a_log_scale(key, values, log):
    (curve,) = find_curves(lines(**{key: values}))
    assert wants_log_scale(curve) is log


def test_a_learning_rate_is_shown_only_when_it_changes():
    assert [c.key for c in find_curves(lines(loss=[1, 2], learning_rate=[0.1, 0.1]))] == ["loss"]
    assert [c.key for c in find_curves(lines(loss=[1, 2], learning_rate=[0.1, 0.05]))] == ["loss", "learning_rate"]


@pytest.mark.parametrize("last", [1, 2, 7, 14, 99, 1000, 123_456])
def test_the_first_and_last_epoch_are_written_and_never_too_many(last):
    ticks = epoch_ticks(1, last)
    assert (ticks[0], ticks[-1]) == (1, last)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 8


@pytest.mark.parametrize(
    ("first", "last"), [(0.205622, 6.57992), (0.1, 0.35), (0.000125, 0.5), (12.3456, 12.3461), (0.9999, 123456.789)]
)
def test_epochs_that_are_not_whole_are_labelled_at_round_numbers(first, last):
    ticks = epoch_ticks(first, last)
    assert 2 <= len(ticks) <= 8
    assert first <= ticks[0] < ticks[-1] <= last
    steps = [after - before for before, after in itertools.pairwise(ticks)]
    step = min(steps)
    assert steps == pytest.approx([step] * len(steps), rel=1e-6)
    digits = f"{step:e}".partition("e")[0]
    assert float(digits) in (1, 2, 5)


def test_labels_of_axes_are_short(run):
    found = [line | {"epoch": 0.205622 * (i + 1)} for i, line in enumerate(lines(loss=[1 / e for e in range(1, 33)]))]
    page = run.config().epochs(found).report()
    (plot,) = [svg for svg in page.all("svg") if "epochs" in svg.get("aria-label", "")]
    labels = ["".join(text.itertext()) for text in plot.iter("text")]
    numbers = [label for label in labels if label.strip("0123456789.") == ""]
    assert numbers == ["2", "4", "6", "0", "0.25", "0.5", "0.75", "1"]
    assert plot.get("aria-label") == "Line plot of the loss, epochs 0.206 to 6.58: training from 1 to 0.03125."
    assert page.table("Metrics after each epoch")[-1][0] == "6.58"


def test_captions_name_the_end_and_the_best(run):
    found = lines(
        loss=[3.0, 2.0, 1.0], val_loss=[3.0, 1.5, 2.0], accuracy=[0.1, 0.2, 0.3], val_accuracy=[0.1, 0.9, 0.2]
    )
    page = run.config().epochs(found).report()
    captions = ["".join(caption.itertext()) for caption in page.all("figcaption")]
    assert captions == [
        "At the end: training 1, validation 2. Best in validation: 1.5, epoch 2.",
        "At the end: training 30.0\u202f%, validation 20.0\u202f%. Best in validation: 90.0\u202f%, epoch 2.",
    ]


def test_one_epoch_only(run):
    page = run.config().epochs(lines(loss=[1.0], val_loss=[2.0], accuracy=[0.0])).report()
    assert page.words("figcaption") == "At the end: training 1, validation 2. At the end: training 0.0 %."


@pytest.mark.parametrize(
    "values", [[None], [None, None], [math.nan, 1.0], [1.0, math.inf, 2.0], [0.0, 0.0], [1e38, 1e-38], [-1e300, 1e300]]
)
def test_odd_values_draw_without_a_warning(run, values):
    page = run.config().epochs(lines(loss=values, val_loss=values)).report()
    assert ("learning" in page.sections) == any(v is not None and math.isfinite(v) for v in values)


def test_the_table_of_a_long_run_is_thinned_out(run):
    page = run.config().epochs(lines(loss=[1 / e for e in range(1, 1001)])).report()
    rows = page.table("Metrics after every 17 epochs")
    assert len(rows) <= 62
    assert (rows[0][0], rows[-1][0]) == ("1", "1000")
