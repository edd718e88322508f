"""How often Python looks for garbage in the processes that are Rudel's own."""

import gc

_THRESHOLDS = (10_000, 20, 100)
"""Python's own are 700, 10 and 10: a fifth of the processor time of a start is then spent on looking through modules
and programs in the making, of which nothing is garbage. These take no more memory (`rudel train digits`: 3.3 s of
processor time in the place of 4.0, 470 MB with both).
"""


def collect_seldom() -> None:
    """Lets the garbage collector look less often; for a process that Rudel has started, not for a user's own."""
    gc.set_threshold(*_THRESHOLDS)
