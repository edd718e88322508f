"""The settings among which a sweep searches."""

import pytest

from rudel.errors import OptionError
from rudel.tuning.space import Choice, Range, as_space, read_setting


def test_texts_are_ranges_choices_and_values() -> None:
    varied, fixed = as_space(
        {"lr": "log:1e-4..1e-2", "hidden": "64,128,256", "depth": "1..3", "kind": "relu", "n": [1, 2]}
    )
    assert varied == {
        "lr": Range(1e-4, 1e-2, log=True),
        "hidden": Choice(("64", "128", "256")),
        "depth": Range(1, 3),
        "n": Choice((1, 2)),
    }
    assert fixed == {"kind": "relu"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log:0..1", "above 0"),
        ("2..1", "smaller number to a larger"),
        ("log:1e-4", "log:LOW..HIGH"),
        ("log:a,b", "log:LOW..HIGH"),
        ("e..1", "two numbers"),
        ("1..1e999", "smaller number to a larger"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_setting(text)


def test_something_has_to_vary() -> None:
    with pytest.raises(OptionError, match="Nothing varies"):
        as_space({"lr": 0.1})
    with pytest.raises(OptionError, match="nothing to choose for `lr`"):
        as_space({"lr": [0.1, 0.1]})
