"""A recipe trained again with the best settings of a sweep, on all hosts together."""

import json
from pathlib import Path
from typing import Any

from rudel.training.from_recipe import TrainedRun, train_recipe
from rudel.training.prepared import RecipeRequest
from rudel.tuning.recipe_objective import with_settings
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
    first = RecipeRequest(recipe, swept["data"], None, swept["epochs"], swept["steps"], swept["batch_size"])
    arguments = vars(with_settings(first, swept["fixed"] | tuned.settings))
    path: Path = tuned.path / "final"
    return train_recipe(**arguments, **where, monitor=tuned.monitor, run=path, resume=True)
