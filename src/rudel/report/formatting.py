"""Numbers and names as people read them.

`rudel.watch` formats numbers in the same way in JavaScript (`watch/page/words.js`); both are held to
`tests/report/numbers.json`. Halves are rounded away from zero, by the exact value that a float has.
"""

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TypeGuard

_THIN = "\u202f"
_HIGHER = ("accuracy", "auc", "precision", "recall", "f1", "iou", "r2", "cosine")
_ABBREVIATIONS = frozenset({"auc", "f1", "iou", "mae", "mape", "mse", "msle", "r2", "rmse"})
_LOWER = ("loss", "error", "entropy", "mae", "mse", "rmse", "perplexity", "divergence")


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 0 to 1 in per cent, never rounded up to the whole; "–" for none.

    >>> percent(0.8125), percent(0.98, 0), percent(0.99996, 0)
    ('81.3\u202f%', '98\u202f%', '>99\u202f%')
    """
    if share is None or not math.isfinite(share):
        return "–"
    written = _fixed(100 * share, digits)
    if share < 1 and _rounded(100 * share, digits) >= 100:
        written = ">" + _fixed(100 - 10.0**-digits, digits)
    return f"{written}{_THIN}%"


def count(number: object) -> str:
    """A whole number with commas; "–" for none.

    >>> count(204301)
    '204,301'
    """
    return _fixed(number, 0) if is_number(number) else "–"


def number(value: object, digits: int = 4) -> str:
    """A value with so many significant digits; "–" for none.

    >>> number(0.61234), number(12345.6), number(1.5e-7)
    ('0.6123', '12,346', '1.5e−7')
    """
    if not is_number(value):
        return "–"
    rounded = _significant(value, digits)
    if 1000 <= abs(rounded) < 1e9:
        return count(value)
    power = rounded.adjusted()
    if rounded and (power < -4 or power >= 9):
        written = f"{rounded.scaleb(-power).normalize():f}e{power}"
    else:
        written = f"{rounded.normalize():f}" if rounded else "0"
    return written.replace("-", "−")


def epoch_number(epoch: float) -> str:
    """The number of an epoch, with its fraction where a value was taken within one.

    >>> epoch_number(7.0), epoch_number(1200), epoch_number(6.57992), epoch_number(0.205622)
    ('7', '1200', '6.58', '0.206')
    """
    return f"{_rounded(epoch, 2 if epoch >= 1 else 3).normalize():f}"


def rate(per_second: object) -> str:
    """Number a second, rounded to three digits; "–" for none.

    >>> rate(25612.4), rate(12.345)
    ('25,600', '12.3')
    """
    return number(float(_significant(per_second, 3)), 3) if is_number(per_second) else "–"


def duration(seconds: object) -> str:
    """A time in the units that fit it; "–" for none.

    >>> duration(0.0312), duration(12.34), duration(125), duration(7380)
    ('0.03\u202fs', '12.3\u202fs', '2\u202fmin 5\u202fs', '2\u202fh 3\u202fmin')
    >>> duration(200_000)
    '2\u202fdays 7\u202fh'
    """
    if not is_number(seconds):
        return "–"
    if seconds < 59.95:
        return f"{_fixed(seconds, 2 if seconds < 9.995 else 1)}{_THIN}s"
    whole = int(_rounded(seconds, 0))
    if whole < 3600:
        return f"{whole // 60}{_THIN}min {whole % 60}{_THIN}s"
    if whole < 2 * 86400:
        return f"{whole // 3600}{_THIN}h {whole % 3600 // 60}{_THIN}min"
    return f"{whole // 86400}{_THIN}days {whole % 86400 // 3600}{_THIN}h"


def size(amount: object) -> str:
    """So many bytes, with three digits; "–" for none.

    >>> size(512), size(3141), size(1_618_821)
    ('512\u202fbytes', '3.14\u202fkB', '1.62\u202fMB')
    """
    if not is_number(amount):
        return "–"
    for unit in ("bytes", "kB", "MB"):
        if amount < 999.5:
            return f"{number(amount, 3)}{_THIN}{unit}"
        amount /= 1000
    return f"{_fixed(amount, 1)}{_THIN}GB"


def metric_name(key: str) -> str:
    """A Keras metric's name in words, without `val_`.

    >>> metric_name("val_sparse_categorical_accuracy")
    'sparse categorical accuracy'
    >>> metric_name("mae")
    'MAE'
    """
    words = key.removeprefix("val_").split("_")
    return " ".join(word.upper() if word in _ABBREVIATIONS else word for word in words)


def metric_value(key: str, value: object) -> str:
    """A metric's value: accuracies in per cent, all else as it is.

    >>> metric_value("val_accuracy", 0.8125), metric_value("loss", 0.61234)
    ('81.3\u202f%', '0.6123')
    """
    if is_share(key) and is_number(value) and 0 <= value <= 1:
        return percent(value)
    return number(value)


def is_share(key: str) -> bool:
    """Whether the metric is a share of the examples, by its name: an accuracy."""
    return key.endswith(("accuracy", "_acc")) or key == "acc"


def better(key: str) -> int:
    """1 when more of the metric is better, -1 when less is, 0 when its name does not tell.

    The word that comes last says so: others are of the output's name.

    >>> better("val_error_kind_accuracy"), better("glossy_acc"), better("loss"), better("own")
    (1, 1, -1, 0)
    """
    name = key.removeprefix("val_").lower()
    if is_share(name):
        return 1
    found = [(name.rfind(w) + len(w), sign) for sign, words in ((-1, _LOWER), (1, _HIGHER)) for w in words if w in name]
    return max(found, default=(0, 0))[1]


def plural(number: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "host"), plural(4, "host")
    ('1 host', '4 hosts')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a finite number, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _fixed(value: float, digits: int) -> str:
    """With so many digits behind the point, and commas."""
    written = f"{_rounded(value, digits):,f}".replace("-", "−")
    return written if written.strip("−0.,") else written.removeprefix("−")


def _rounded(value: float, digits: int) -> Decimal:
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, Context(prec=400))


def _significant(value: float, digits: int) -> Decimal:
    return Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(value))
