"""Why a start of the members ended early: the host that caused it, and the message.

With one member all of them end, within a second or so, so what is heard first is often a consequence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class EndError(Exception):
    """A member has ended, or cannot be reached.

    Args:
        host: whose.
        reason: why.
        weight: how likely it is that this is the cause and no consequence.
    """

    host: str
    reason: str
    weight: int


def end_of(name: str, code: int, failed: str, words: Sequence[str]) -> EndError:
    """The error for a member that ended by itself."""
    if failed:
        return EndError(name, f"{name}: {failed}", 0)
    if code < 0 and code != -6:
        return EndError(name, f"the process on {name} was ended by signal {-code}", 2)
    return EndError(name, f"the process on {name} ended with code {code}: {_last_of(words)[:300]}", 1)


def reason_of(end: EndError, lost: Sequence[str]) -> str:
    """Why an attempt ended: where hosts fell silent, that is why, whoever ended by it first."""
    if not lost or end.host in lost:
        return end.reason
    return f"{' and '.join(lost)} {'does' if len(lost) == 1 else 'do'} not answer any more"


def _last_of(words: Sequence[str]) -> str:
    """The last line that says something: one that C++ ends with is followed by addresses of its stack.

    >>> _last_of(["F1122 07:28:04.6 74 client.h:77] A task has died.", "*** Check failure stack trace: ***", "@  0x7f"])
    'A task has died.'
    """
    said = (word.strip() for word in reversed(words))
    last = next((word for word in said if word and not word.startswith(("@", "***", "PC:"))), "it said nothing")
    return re.sub(r"^[IWEF]\d{4} [^\]]*\] ", "", last)
