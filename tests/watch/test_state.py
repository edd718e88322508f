import dataclasses
from typing import Any

import pytest

from rudel.watch.state import Signs, judge

RUNNING = Signs(
    exists=True, existed=True, begun=True, finished=False, locked=True, news=True, silent=3.0, gap=1.0, elsewhere=False
)


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "running", "is running"),
        ({"exists": False, "existed": False}, "waiting", "to start"),
        ({"exists": False}, "waiting", "was removed"),
        ({"begun": False, "locked": False}, "waiting", "to start"),
        ({"begun": False, "news": False}, "starting", "compiles"),
        ({"news": False, "silent": 300.0}, "starting", "compiles"),
        ({"news": False, "silent": 700.0}, "quiet", "longer than usual"),
        ({"silent": 59.0}, "running", ""),
        ({"silent": 61.0}, "quiet", "longer than usual"),
        ({"silent": 500.0, "gap": 100.0}, "running", ""),
        ({"silent": 700.0, "gap": 100.0}, "quiet", ""),
        ({"locked": False}, "stopped", "--resume"),
        ({"locked": False, "elsewhere": True}, "running", ""),
        ({"locked": False, "elsewhere": True, "silent": 700.0}, "quiet", ""),
        ({"locked": False, "elsewhere": True, "silent": 4000.0}, "stopped", "--resume"),
        ({"locked": False, "elsewhere": True, "silent": 4000.0, "gap": 1000.0}, "running", ""),
        ({"locked": False, "elsewhere": True, "failure": "The loss became NaN."}, "failed", "The loss became NaN."),
        ({"finished": True, "locked": False}, "finished", "is finished"),
        ({"locked": False, "failure": "The loss became NaN."}, "failed", "The loss became NaN."),
        ({"failure": "The loss became NaN."}, "running", ""),
    ],
)
def test_states(changes: dict[str, Any], state: str, words: str) -> None:
    found, message = judge(dataclasses.replace(RUNNING, **changes))
    assert found == state
    assert words in message
