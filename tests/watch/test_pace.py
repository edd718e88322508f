import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudel.runs import checkpoint as checkpoints
from rudel.runs.checkpoint import Checkpoint
from rudel.watch.live_curves import curves, thinned
from rudel.watch.pace import Mark, Pace, newest_checkpoint, spans, steps_per_epoch, total_steps


def test_how_many_steps_a_run_takes() -> None:
    config = {"epochs": 3, "steps": None, "batch_size": 32, "data": {"train": 1000}}
    assert steps_per_epoch(config) == 32
    assert total_steps(config) == 96
    assert total_steps(config | {"steps_per_epoch": 40}) == 120, "batches of a source differ in size"
    assert total_steps(config | {"steps": 50, "epochs": None}) == 50
    assert total_steps({}) is None
    assert total_steps({"epochs": 3, "data": {"train": 10}, "batch_size": 0}) is None


def test_pace_by_the_clock() -> None:
    pace = Pace()
    assert pace.steps_per_second is None
    pace.heard(100.0, 10)
    assert pace.steps_per_second is None
    pace.heard(102.0, 50)
    pace.heard(102.5, 50)
    pace.heard(105.0, 60)
    assert pace.steps_per_second == 10
    assert pace.gap == 3


def test_pace_of_a_training_that_went_back_begins_anew() -> None:
    pace = Pace()
    for when, step in ((0.0, 100), (1.0, 200), (50.0, 120), (51.0, 130)):
        pace.heard(when, step)
    assert pace.steps_per_second == 10


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(1e-3, 10), st.integers(0, 100)), min_size=1, max_size=500), st.integers(2, 50))
def test_spans_keep_all_steps(parts: list[tuple[float, int]], most: int) -> None:
    moments, steps = np.cumsum([0.0, *(p[0] for p in parts)]), np.cumsum([0, *(p[1] for p in parts)])
    found = spans([Mark(float(s), int(n)) for s, n in zip(moments, steps, strict=True)], most)
    assert len(found) <= most + 1
    assert sum((last - first) * speed for first, last, speed in found) == pytest.approx(steps[-1])
    assert all(a[1] == b[0] for a, b in itertools.pairwise(found))


@settings(max_examples=50)
@given(st.lists(st.floats(-100, 100) | st.just(math.nan), min_size=1, max_size=2000), st.integers(4, 100))
def test_thinned_curves_keep_what_stands_out(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    found = thinned([(float(x), y) for x, y in points], most)
    known = [(x, y) for x, y in points if not math.isnan(y)]
    assert len(found) <= most
    assert set(found) <= set(known)
    assert [x for x, _ in found] == sorted({x for x, _ in found})
    if known:
        assert {f(y for _, y in found) for f in (min, max)} == {f(y for _, y in known) for f in (min, max)}
        assert found[-1] == known[-1]


def test_curves_say_what_the_page_needs() -> None:
    lines = [{"epoch": e, "step": e, "loss": v, "val_loss": 2 * v} for e, v in ((1, 5.0), (2, 0.001), (3, 0.1))]
    (loss,) = curves(lines)
    assert loss["log"]
    assert loss["lines"][1] == {"name": "validation", "points": [(1.0, 10.0), (2.0, 0.002), (3.0, 0.2)]}
    assert loss["best"] == {"epoch": 2.0, "value": 0.002}


@pytest.mark.parametrize("count", [1000, 5000])
def test_all_lines_have_their_values_at_the_same_epochs(count: int) -> None:
    made = np.random.default_rng(0)
    keys = ("loss", "val_loss", "accuracy", "val_accuracy")
    values = dict(zip(keys, made.uniform(0.1, 1, (4, count)), strict=True))
    epochs = [{"epoch": float(e + 1)} | {key: float(values[key][e]) for key in keys} for e in range(count)]
    lines = [line["points"] for curve in curves(epochs) for line in curve["lines"]]
    shown = {tuple(x for x, _ in line) for line in lines}
    assert len(shown) == 1
    assert 300 < len(shown.pop()) <= 400
    for line, key in zip(lines, keys, strict=True):
        assert {min(y for _, y in line), max(y for _, y in line)} == {values[key].min(), values[key].max()}


def test_a_checkpoint_tells_how_far_a_training_is(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path, None) is None
    for step in (500, 1500):
        checkpoints.save(tmp_path, Checkpoint(step, {"w": np.zeros(9)}, {"clock": {"train": step / 100}}))
    found = newest_checkpoint(tmp_path, None)
    assert found is not None
    assert found.mark == Mark(15.0, 1500)
    assert newest_checkpoint(tmp_path, found) is found
    checkpoints.path_of(tmp_path, 1600).write_bytes(b"cut sho")
    torn = newest_checkpoint(tmp_path, found)
    assert torn is not None
    assert (torn.step, torn.mark) == (1600, None)
