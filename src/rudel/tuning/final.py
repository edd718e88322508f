"""A recipe trained again with the best settings of a sweep, on all hosts together."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rudel.files import replace_folder, restore_folder
from rudel.runs.run_directory import RunDirectory, finite, writing
from rudel.training.from_recipe import TrainedRun, train_recipe
from rudel.training.prepared import RecipeRequest
from rudel.tuning.recipe_objective import OF_TRAINING, with_settings
from rudel.tuning.tune import Tuned

_VARIED = ("options", *OF_TRAINING)
"""Arguments of a training that trials of a sweep may differ in."""


def train_final(recipe: str, tuned: Tuned, **where: Any) -> TrainedRun:
    """Trains into the folder `final` of the sweep; continues where that was interrupted.

    What an earlier call trained with other settings, as the sweep has found better ones since, stays until then.

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

    def train(path: Path) -> TrainedRun:
        return train_recipe(**arguments, **where, monitor=tuned.monitor, run=path, resume=True)

    final, fresh = tuned.path / "final", tuned.path / ".new"
    new, old = fresh / "final", fresh / "old"
    with writing(tuned.path):
        restore_folder(final, old)
    has_new = bool(RunDirectory(new).read_config()) and _is_free(new, arguments)
    if not has_new:
        shutil.rmtree(fresh, ignore_errors=True)
        if _is_free(final, arguments):
            return train(final)
    trained = train(new)
    with writing(tuned.path):
        replace_folder(new, final, old)
        shutil.rmtree(fresh)
    return replace(trained, path=final)


def _is_free(run: Path, arguments: Mapping[str, Any]) -> bool:
    """Whether a directory has no training, or one of these arguments."""
    if not (config := RunDirectory(run).read_config()):
        return True
    wanted = {name: arguments[name] for name in _VARIED}
    asked = {name: (config.get("asked") or {}).get(name) for name in _VARIED}
    return asked == json.loads(json.dumps(finite(wanted)))
