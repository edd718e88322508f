"""`rudel train` on hosts, with the frames on the air counted: `python cluster_driver.py LAB ARGUMENT...`.

The command is the user's own. Counted is what all stations of the lab send from before the first round until after the
last; LAB is the lab's name, or `-` where there is none. Also told: the number of this process, with how many rounds
done the training begins, and when the clock of the rounds began, in seconds of `time.perf_counter`, which on Linux is
the same for all processes.
"""

import json
import os
import sys
import time
from typing import Any

from rudel.cli.main import run
from rudel.replicas.coordinator import Coordinator


def main() -> None:
    """Trains, tells."""
    lab = sys.argv.pop(1)
    if lab != "-":
        _count(lab)
    sys.argv[0] = "rudel"
    _tell("driver", pid=os.getpid())
    run()


def _count(lab: str) -> None:
    from rudel.lab import Lab

    stats, train = Lab.attach(lab).stats, Coordinator.run

    async def counted(coordinator: Any) -> None:
        _tell("begun", round=coordinator.state.round, at=time.perf_counter())
        before = sum(sent.bytes for sent in stats().values())
        await train(coordinator)
        after = sum(sent.bytes for sent in stats().values())
        _tell("trained", air_bytes=after - before, began=coordinator._team.began)

    setattr(Coordinator, "run", counted)  # noqa: B010  # a type checker would mind, and rightly so elsewhere


def _tell(event: str, **numbers: Any) -> None:
    print(json.dumps({"event": event, **numbers}), flush=True)


if __name__ == "__main__":
    main()
