"""What happens to hosts, said as people would; the live display and the report say it alike."""

from rudel.report.words import duration


def called(name: str) -> str:
    """A host's name in a sentence; those of a Dask cluster may be numbers.

    >>> called("pi@raspi1"), called("3")
    ('pi@raspi1', 'host 3')
    """
    return f"host {name}" if name.isdecimal() else name


def happening(event: str, reason: str, away: float | None = None) -> str:
    """What happened to a host, to stand behind its name.

    Args:
        event: `lost`, `joining` or `joined`.
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
    return ("has joined" if away is None else f"is back after {duration(away)}") + because
