"""A recipe trained again with the best settings of a sweep, on all hosts together."""

import json
from pathlib import Path
from typing import Any

from rudel.training.from_recipe import TrainedRun, train_recipe
from rudel.training.prepared import Asked
from rudel.tuning.recipe_objective import asked_for
from rudel.tuning.tune import Tuned


def train_final(recipe: str, tuned: Tuned, **where: Any) -> TrainedRun:
    """Trains into the folder `final` of the sweep; continues where that was interrupted.

    Args:
        recipe: the name or file that the sweep was of.
        tuned: with a best trial.
        where: `on`, `client`, `ssh_config` and `min_hosts`; see `rudel.train_recipe`.

    Raises:
        RudelError: everything that `rudel.train_recipe` raises.
    """
    swept = json.loads((tuned.path / "tune.json").read_text(encoding="utf-8"))
    first = Asked(recipe, swept["data"], None, swept["epochs"], swept["steps"], swept["batch_size"])
    asked = vars(asked_for(first, swept["fixed"] | tuned.settings))
    path: Path = tuned.path / "final"
    return train_recipe(**asked, **where, monitor=tuned.monitor, run=path, resume=True)
