"""Names of files: their endings, and how they are in documents and tables, which are UTF-8, as names need not be."""

import unicodedata
from collections.abc import Sequence

SOUND = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff")
"""Endings of the names of recordings, in small letters."""


def printable(name: str) -> str:
    r"""A name in which bytes that are not UTF-8 are written as escapes.

    >>> printable("fl\udcf6te.wav")
    'fl\\udcf6te.wav'
    """
    return name.encode("utf-8", "backslashreplace").decode()


def composed(names: Sequence[str]) -> list[str]:
    """Names in the form of Unicode in which classes have theirs; a terminal or a disk may give another (NFD)."""
    return [unicodedata.normalize("NFC", name) for name in names]
