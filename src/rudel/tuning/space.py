"""The settings among which a sweep searches, as texts on the command line and as Python values."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.errors import OptionError

if TYPE_CHECKING:
    import optuna

_RANGE = re.compile(r"(?P<log>log:)?(?P<low>[-+\d.eE]+?)\.\.(?P<high>[-+\d.eE]+)")


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included; whole ones where both ends are.

    Args:
        low: the smallest.
        high: the largest.
        log: whether they are tried evenly by their logarithm.

    Raises:
        OptionError: the ends are not finite, or in the wrong order, or not above 0 with `log`.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise OptionError(f"A range goes from a smaller number to a larger one, not {self.low}..{self.high}.")
        if self.log and self.low <= 0:
            raise OptionError(f"A logarithmic range has to begin above 0, not at {self.low}.")


@dataclass(frozen=True)
class Choice:
    """Some values, one of which is tried at a time.

    Args:
        values: plain values or texts.
    """

    values: tuple[Any, ...]


def read_setting(text: str) -> Range | Choice | str:
    """Reads the value of a `--set`, behind its equals sign.

    Returns:
        A range, a choice, or a single value, which is the same in all trials.

    Raises:
        OptionError: a range that makes no sense.

    >>> read_setting("log:1e-4..1e-2")
    Range(low=0.0001, high=0.01, log=True)
    >>> read_setting("16..64"), read_setting("64,128"), read_setting("relu")
    (Range(low=16, high=64, log=False), Choice(values=('64', '128')), 'relu')
    """
    if found := _RANGE.fullmatch(text):
        try:
            low, high = _number(found["low"]), _number(found["high"])
        except ValueError as error:
            raise OptionError(
                f"A range has the form LOW..HIGH or log:LOW..HIGH with two numbers, not {text!r}."
            ) from error
        return Range(low, high, bool(found["log"]))
    if text.startswith("log:"):
        raise OptionError(f"A logarithmic range has the form log:LOW..HIGH, as in log:1e-4..1e-2, not {text!r}.")
    values = tuple(part.strip() for part in text.split(",") if part.strip())
    return Choice(values) if len(values) > 1 else text


def as_space(given: Mapping[str, Any]) -> tuple[dict[str, Range | Choice], dict[str, Any]]:
    """Splits settings into those that vary and those that are the same in all trials.

    Args:
        given: by name, a `Range`, a `Choice`, a text as on the command line, a list of values, or a single value;
            NumPy's numbers and arrays become Python's.

    Raises:
        OptionError: nothing varies, a choice has fewer than two values, or a value cannot be sent and kept.
    """
    read = {name: _read(name, value) for name, value in given.items()}
    varied = {name: value for name, value in read.items() if isinstance(value, Range | Choice)}
    for name, value in varied.items():
        if isinstance(value, Choice) and len(set(map(repr, value.values))) < 2:
            raise OptionError(f"There is nothing to choose for `{name}`: give two values or more.")
    if not varied:
        raise OptionError("Nothing varies: give a setting a range or a choice, such as log:1e-4..1e-2 or 64,128.")
    return varied, {name: value for name, value in read.items() if name not in varied}


def suggest(trial: "optuna.trial.BaseTrial", space: Mapping[str, Range | Choice]) -> dict[str, Any]:
    """The values of a trial: those that it has, and for the other settings those that Optuna chooses.

    >>> from optuna.trial import FixedTrial
    >>> space, _ = as_space({"layers": [[8], [16, 8]], "units": "8..64"})
    >>> suggest(FixedTrial({"layers": "[16, 8]", "units": 9}), space)
    {'layers': [16, 8], 'units': 9}
    """
    made: dict[str, Any] = {}
    for name, setting in space.items():
        if isinstance(setting, Choice):
            values = {_as_category(value): value for value in setting.values}
            made[name] = values[trial.suggest_categorical(name, list(values))]
        elif isinstance(setting.low, int) and isinstance(setting.high, int):
            made[name] = trial.suggest_int(name, setting.low, setting.high, log=setting.log)
        else:
            made[name] = trial.suggest_float(name, setting.low, setting.high, log=setting.log)
    return made


def _as_category(value: Any) -> Any:
    """A value among which Optuna can choose, and plot: a list, tuple or dict as text."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _read(name: str, value: Any) -> Any:
    match value:
        case str():
            return read_setting(value)
        case Range():
            return Range(_plain(name, value.low), _plain(name, value.high), value.log)
        case Choice():
            return Choice(tuple(_plain(name, each) for each in value.values))
        case Sequence() if not isinstance(value, bytes):
            value = list(value)
    plain = _plain(name, value)
    return Choice(tuple(plain)) if isinstance(plain, list) else plain


def _plain(name: str, value: Any) -> Any:
    """A value as JSON and messages have it.

    Raises:
        OptionError: they have no such value.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, each) for key, each in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise OptionError(f"`{name}` can be a number, a text, None, or a list or dict of them, not {value!r}.")


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
