"""`rudel train` on hosts, with the frames on the air counted: `python cluster_driver.py LAB ARGUMENT...`.

The command is the user's own. Counted is what all stations of the lab send from before the first round until after the
last; LAB is the lab's name, or `-` where there is none.
"""

import json
import sys
from typing import Any

from rudel.cli.main import run
from rudel.train.diloco.coordinator import Coordinator


def main() -> None:
    """Trains, tells."""
    lab = sys.argv.pop(1)
    if lab != "-":
        _count(lab)
    sys.argv[0] = "rudel"
    run()


def _count(lab: str) -> None:
    from rudel.lab import Lab

    stats, train = Lab.attach(lab).stats, Coordinator.run

    async def counted(coordinator: Any) -> None:
        before = sum(sent.bytes for sent in stats().values())
        await train(coordinator)
        after = sum(sent.bytes for sent in stats().values())
        print(json.dumps({"event": "trained", "air_bytes": after - before}), flush=True)

    setattr(Coordinator, "run", counted)  # noqa: B010  # type checkers are right, but this is a benchmark


if __name__ == "__main__":
    main()
