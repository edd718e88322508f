"""The settings among which a sweep searches."""

import json
from typing import Any

import numpy as np
import optuna
import pytest

from rudel.errors import OptionError
from rudel.tuning.space import Choice, Range, as_space, read_setting, suggest


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


def test_values_of_numpy_become_plain() -> None:
    whole: Any = np.int64
    varied, fixed = as_space(
        {"units": [whole(8), whole(16)], "rate": np.array([0.5, 1.0]), "depth": Range(whole(1), whole(3))}
        | {"layers": [(8,), (16, whole(8))], "scale": np.float32(0.5)}
    )
    assert varied == {
        "units": Choice((8, 16)),
        "rate": Choice((0.5, 1.0)),
        "depth": Range(1, 3),
        "layers": Choice(([8], [16, 8])),
    }
    assert fixed == {"scale": 0.5}
    assert json.dumps([vars(setting) for setting in varied.values()] + [fixed])


def test_optuna_chooses_what_a_trial_does_not_have() -> None:
    space, _ = as_space({"units": "8..64", "rate": "log:1e-3..1e-1", "layers": [[8], [16, 8]]})
    trial = optuna.create_study().ask()
    trial.suggest_int("units", 8, 64)
    units = trial.params["units"]
    made = suggest(trial, space)
    assert made["units"] == units
    assert 1e-3 <= made["rate"] <= 1e-1
    assert made["layers"] in ([8], [16, 8])
    assert suggest(trial, space) == made


def test_tuples_are_chosen_by_their_texts() -> None:
    space = {"layers": Choice(((8,), (16, 8)))}
    study = optuna.create_study()
    trial = study.ask()
    made = suggest(trial, space)
    assert made["layers"] in ((8,), (16, 8))
    assert trial.params["layers"] == json.dumps(made["layers"])


@pytest.mark.parametrize("value", [object(), {1, 2}, {1: 2}, [1, print], b"text", Choice((1, print))])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(OptionError, match="`x` can be a number, a text, None, or a list or dict of them, not"):
        as_space({"x": value, "y": [1, 2]})


def test_something_has_to_vary() -> None:
    with pytest.raises(OptionError, match="Nothing varies"):
        as_space({"lr": 0.1})
    with pytest.raises(OptionError, match="nothing to choose for `lr`"):
        as_space({"lr": [0.1, 0.1]})
