"""What happens to hosts, said as people would; the live display and the report say it alike."""

from rudel.report.words import duration

_REASONS = (
    (("Exception while trying to call", "in <TCP", "in <TLS", "Connection reset", "Broken pipe"), "its connection broke"),
    (("Timed out", "TimeoutError", "timed out"), "it did not answer in time"),
    (("Connection refused", "No route to host", "Network is unreachable", "refused"), "it cannot be reached"),
)
"""Beginnings of what libraries say, and what it means."""

_MOST_WORDS = 160


def plain(reason: str) -> str:
    """Why a host was lost, without the words of libraries.

    >>> plain("Exception while trying to call remote method 'rudel_exchange' using comm <TCP (closed) ...>.")
    'its connection broke'
    >>> plain("it did not answer in time")
    'it did not answer in time'
    """
    for marks, meaning in _REASONS:
        if any(mark in reason for mark in marks):
            return meaning
    return " ".join(reason.split()).rstrip(".")[:_MOST_WORDS]


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
    because = f": {plain(reason)}" if reason else ""
    if event == "lost":
        return "was lost" + because
    if event == "joining":
        return "is joining" + because
    return ("has joined" if away is None else f"is back after {duration(away)}") + because
