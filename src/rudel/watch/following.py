"""A file of JSON lines, followed while another process writes it."""

import json
import os
from pathlib import Path
from typing import Any


class Following:
    """Reads what is new in a file that others add to, put another in the place of, or remove.

    A line counts when its end is there; until then it may be a part of one. Lines that are not JSON objects are passed
    over and counted. The file stays open, so that the system gives its number to no other file that takes its place.

    Args:
        path: of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._read = 0
        self._begun = b""
        self.damaged = 0
        """Lines that could not be understood."""
        self.changed = 0.0
        """When the file was last written, seconds since 1970; 0.0 while there is none."""

    def new_lines(self) -> tuple[bool, list[dict[str, Any]]]:
        """Reads the lines that were added since the last call.

        Returns:
            Whether all that was read before no longer counts, and the lines that are new.
        """
        restarted = not self._same_file()
        if restarted:
            self._open()
        if self._file is None:
            self.changed = 0.0
            return restarted, []
        self.changed = os.fstat(self._file).st_mtime
        content = self._begun + self._rest()
        whole, _, self._begun = content.rpartition(b"\n")
        return restarted, [line for line in map(self._understood, whole.splitlines()) if line is not None]

    def close(self) -> None:
        """Closes the file; the next call of `new_lines` reads from the beginning."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._read, self._begun, self.damaged = None, 0, b"", 0

    def _same_file(self) -> bool:
        try:
            found = self._path.stat()
        except OSError:
            return self._file is None
        if self._file is None:
            return False
        return os.path.samestat(os.fstat(self._file), found) and found.st_size >= self._read

    def _open(self) -> None:
        self.close()
        try:
            self._file = os.open(self._path, os.O_RDONLY)
        except OSError:
            self._file = None

    def _rest(self) -> bytes:
        assert self._file is not None
        parts = []
        while part := os.pread(self._file, 1 << 20, self._read):
            parts.append(part)
            self._read += len(part)
        return b"".join(parts)

    def _understood(self, line: bytes) -> dict[str, Any] | None:
        try:
            parsed = json.loads(line, parse_constant=lambda _: None)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return parsed
        self.damaged += bool(line.strip())
        return None
