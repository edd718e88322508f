"""`rudel.fit` on this computer alone, when everything is compiled: `python alone_after.py SETTINGS`.

The argument is JSON: data, classes, seed, and, where it is not `quickdraw` as it is, recipe and options. A first
training of some steps compiles; then a line on standard input, `go STEPS`, starts one that is measured, and so often as
there are lines. What is told is the training's own clock, as for `rudel train`: compiling and evaluating are no part of
it.
"""

import json
import sys
import tempfile
from pathlib import Path

from rudel.training.from_recipe import train_recipe


def main() -> None:
    """Trains, tells."""
    given = json.loads(sys.argv[1])
    _train(given, 64)
    print(json.dumps({"event": "ready"}), flush=True)
    for line in sys.stdin:
        summary = _train(given, int(line.split()[1]))
        report = {"train_seconds": summary["train_seconds"], "samples": summary["samples"]}
        print(json.dumps({"event": "done", **report}), flush=True)


def _train(given: dict, steps: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        options = {"classes": given["classes"], **given.get("options", {})}
        settings = {"data": given["data"], "options": options, "seed": given["seed"]}
        return train_recipe(
            given.get("recipe", "quickdraw"),
            **settings,
            steps=steps,
            eval_every=10**9,
            run=Path(folder) / "run",
            verbose=False,
        ).summary


if __name__ == "__main__":
    main()
