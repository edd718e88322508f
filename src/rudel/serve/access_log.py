"""A line for every request: for people, or as JSON for programs. Lines are gathered and written together."""

import asyncio
import datetime
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

Style = Literal["text", "json", "none"]

_EVERY = 0.2


@dataclass(frozen=True, slots=True)
class Access:
    """The log entry of a request.

    Args:
        client: its address.
        method, path: of the request; empty where it could not be read.
        status: of the answer; 499 where the client was gone before it.
        seconds: from the beginning of the request to its answer.
        received, sent: bytes of the bodies.
        model, version: the requested ones, if they exist.
        examples: how many.
        error: the sentence of a refusal.
    """

    client: str
    method: str
    path: str
    status: int
    seconds: float
    received: int
    sent: int
    model: str
    version: str
    examples: int
    error: str


class AccessLog:
    """Writes lines about requests, and about what else happens.

    Args:
        style: how; `none` for no requests.
    """

    def __init__(self, style: Style) -> None:
        self._write_line: Callable[[Access], str] | None = {"text": _as_text, "json": _as_json, "none": None}[style]
        self._style = style
        self._out = sys.stderr
        self._lines: list[str] = []

    def request(self, access: Access) -> None:
        """Notes a request; called in the event loop."""
        if self._write_line is None:
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(_EVERY, self.flush)
        self._lines.append(self._write_line(access))

    def message(self, sentence: str) -> None:
        """Says at once what else has happened."""
        self.flush()
        line = json.dumps({"time": _now(), "message": sentence}) if self._style == "json" else sentence
        self._put(line + "\n")

    def flush(self) -> None:
        """Writes what was gathered."""
        lines, self._lines = self._lines, []
        if lines:
            self._put("".join(lines))

    def _put(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            self._write_line = None  # nobody reads it any more


def _as_text(access: Access) -> str:
    about = f"  {access.examples} examples" if access.examples > 1 else ""
    error = f"  {_printable(access.error)}" if access.error else ""
    now = datetime.datetime.now().strftime("%H:%M:%S")
    asked = f"{access.method} {_printable(access.path)}".strip() or "-"
    return f"{now}  {access.status}  {asked}  {access.seconds * 1e3:.1f} ms{about}{error}\n"


def _printable(text: str) -> str:
    """A text in one line, without what would control a terminal.

    >>> print(_printable("`a\\n04:00  200` → größer"))
    `a\\n04:00  200` → größer
    """
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _as_json(access: Access) -> str:
    return json.dumps({"time": _now(), **asdict(access), "seconds": round(access.seconds, 6)}) + "\n"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
