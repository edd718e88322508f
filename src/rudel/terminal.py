"""Standard streams, in whose place a program may put anything, and which a shell may have closed (`2>&-`)."""


def is_terminal(stream: object) -> bool:
    """Whether a stream is a terminal; a stream that does not say, is closed, or is None is not.

    >>> is_terminal(None)
    False
    """
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False
