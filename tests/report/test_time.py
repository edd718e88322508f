import pytest

from rudel.report.time import parts_of


def test_the_rest_completes_the_total(whole):
    rows = whole.report().table("Parts of the run's time")
    assert [(row[0], row[2]) for row in rows] == [
        ("set-up", "1.00\u202fs"),
        ("compiling", "2.00\u202fs"),
        ("training", "5.70\u202fs"),
        ("evaluating", "0.50\u202fs"),
        ("checkpoints", "0.30\u202fs"),
        ("the rest", "0.50\u202fs"),
    ]


def test_parts_that_are_missing_or_zero_are_left_out():
    parts = parts_of({"train_seconds": 2.0, "setup_seconds": 0, "compile_seconds": None, "total_seconds": 1.9})
    assert [(name, seconds) for name, _, seconds in parts] == [("training", 2.0)]
    assert parts_of({"total_seconds": 3.0}) == []


def test_the_bar_is_filled_from_end_to_end(whole):
    (bar,) = (svg for svg in whole.report().all("svg") if svg.get("class") == "time")
    edge = 0.0
    for part in bar:
        assert float(part.get("x", -1)) == pytest.approx(edge, abs=0.02)
        edge += float(part.get("width", 0))
    assert edge == pytest.approx(1000, abs=0.05)
