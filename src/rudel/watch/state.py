"""How it stands with a training, judged by its directory."""

from dataclasses import dataclass

QUIET_SECONDS = 60.0
"""Silence after which a training that is there may be stuck; those that tell something rarely get more."""

STARTING_SECONDS = 600.0
"""Silence in which a training may read data and compile before its first steps."""

_ELSEWHERE_SECONDS = 3600.0
_GAPS = 6


@dataclass(frozen=True)
class Signs:
    """Signs of a run's state, from one look at its directory.

    Args:
        exists: whether there is a directory.
        existed: whether there was one at an earlier look.
        begun: whether it has a `config.json`.
        finished: whether it has a `summary.json`.
        locked: whether a process of this computer trains into it.
        news: whether anything was measured yet: an epoch, a round, a checkpoint.
        silent: seconds since anything in it changed.
        gap: the longest time between two of the latest news, in seconds.
        elsewhere: whether it was seen to change though no process of this computer trains into it.
        failure: why the training ended, if that is known; a training that begins removes it.
    """

    exists: bool
    existed: bool
    begun: bool
    finished: bool
    locked: bool
    news: bool
    silent: float
    gap: float
    elsewhere: bool
    failure: str | None = None


def judge(signs: Signs) -> tuple[str, str]:
    """A word for the page to go by, and a sentence for people.

    Returns:
        `waiting`, `starting`, `running`, `quiet`, `stopped`, `failed` or `finished`; and what that means.

    >>> judge(Signs(True, True, True, True, False, True, 3.0, 1.0, False))
    ('finished', 'The training is finished.')
    """
    if not signs.exists:
        return "waiting", (
            "The directory was removed; waiting for a new training in it."
            if signs.existed
            else "Waiting for a training to start in this directory."
        )
    if signs.finished:
        return "finished", "The training is finished."
    if signs.failure and not signs.locked:
        return "failed", signs.failure
    elsewhere = signs.elsewhere and signs.silent <= max(_ELSEWHERE_SECONDS, _GAPS * signs.gap)
    if not signs.locked and not elsewhere:
        return _nobody(signs)
    if not signs.begun or not signs.news:
        return _starting(signs)
    if signs.silent > max(QUIET_SECONDS, _GAPS * signs.gap):
        return "quiet", "The training is running, but has sent no news for longer than usual."
    return "running", "The training is running."


def _nobody(signs: Signs) -> tuple[str, str]:
    if not signs.begun:
        return "waiting", "Waiting for a training to start in this directory."
    return "stopped", (
        "No process on this computer trains here, and the training is not finished: it was stopped or killed. "
        "The same command with --resume continues it; in Python, the same call with resume=True."
    )


def _starting(signs: Signs) -> tuple[str, str]:
    if signs.silent > STARTING_SECONDS:
        return "quiet", "The training has started, but has sent no news for longer than usual."
    return "starting", "The training is starting: it reads data, compiles, and takes its first steps."
