"""The log of Rudel's modules on the terminal."""

import logging
import sys


class _Terminal(logging.Handler):
    """Writes to whatever standard error is at the time, as a live display puts another one in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def log_to_terminal(verbose: bool) -> None:
    """Shows warnings on standard error, and everything else that is logged if that is asked for."""
    handler = _Terminal(logging.INFO if verbose else logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s" if verbose else "%(message)s"))
    logger = logging.getLogger("rudel")
    logger.handlers = [handler, *(h for h in logger.handlers if not isinstance(h, _Terminal))]
    logger.setLevel(logging.INFO if verbose else logging.NOTSET)
