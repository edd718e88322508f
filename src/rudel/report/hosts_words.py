"""Events of hosts in words, the same in the live display and the report."""

from collections.abc import Sequence

from rudel.report.formatting import count, duration, percent

_NEGLIGIBLE_SHARE = 0.05
"""A host whose speed is below this share of the mean of all hosts contributes next to nothing."""

_FEW_STEPS = 500
"""Steps of a replica below which merging costs accuracy: after 256, a CNN ended 4 to 6 points lower (strategies.md)."""

AWAY = ("lost", "joining", "standby")
"""States of hosts that do not train."""

EVENTS = (*AWAY, "joined")
"""Events of hosts; see `happening`."""


def called(name: str) -> str:
    """A host's name in a sentence; those of a Dask cluster may be numbers.

    >>> called("pi@raspi1"), called("3")
    ('pi@raspi1', 'host 3')
    """
    return f"host {name}" if name.isdecimal() else name


def is_negligible(speed: float, speeds: Sequence[float]) -> bool:
    """Whether a host takes so few steps that the training would be as fast without it.

    Args:
        speed: of the host, steps a second.
        speeds: of all hosts, this one among them.

    >>> is_negligible(1.0, [1.0, 100.0, 100.0]), is_negligible(10.0, [10.0, 100.0])
    (True, False)
    """
    return len(speeds) > 1 and speed * len(speeds) < _NEGLIGIBLE_SHARE * sum(speeds)


def negligible_note(name: str, share: float) -> str:
    """The note on a host that adds too little to be used.

    Args:
        name: of the host.
        share: of all steps that it takes.

    >>> negligible_note("pi@raspi3", 0.0013)
    'pi@raspi3 contributes next to nothing: it takes 0.1\u202f% of the steps, and without it the training is as fast.'
    """
    return (
        f"{called(name)} contributes next to nothing: it takes {percent(share)} of the steps, and without it the "
        "training is as fast."
    )


def few_steps_note(strategy: str, hosts: int, steps: int) -> str | None:
    """The note on a training too short to be merged without loss; None for others.

    Args:
        strategy: its name.
        hosts: that train.
        steps: of each, the mean.

    >>> few_steps_note("diloco", 4, 43)
    '43 steps on each of 4 hosts are few: merging costs accuracy, so train for longer, or on one host.'
    >>> few_steps_note("mesh", 4, 43), few_steps_note("diloco", 1, 43), few_steps_note("diloco", 4, 2048)
    (None, None, None)
    """
    if strategy not in ("diloco", "async") or hosts < 2 or steps >= _FEW_STEPS:
        return None
    return (
        f"{count(steps)} steps on each of {count(hosts)} hosts are few: merging costs accuracy, so train for longer, "
        "or on one host."
    )


def happening(event: str, reason: str, away: float | None = None) -> str:
    """Describes an event of a host in words that follow its name.

    Args:
        event: one of `EVENTS`.
        reason: why.
        away: seconds since it was lost, None if it was never there.

    >>> happening("lost", "it did not answer in time")
    'was lost: it did not answer in time'
    >>> happening("joined", "", 12.0)
    'is back after 12.0\u202fs'
    """
    because = f": {reason.rstrip('.')}" if reason else ""
    if event == "lost":
        return "was lost" + because
    if event == "joining":
        return "is joining" + because
    if event == "standby":
        return "is on standby" + because
    return ("has joined" if away is None else f"is back after {duration(away)}") + because
