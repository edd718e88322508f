"""A run continued by what its directory says, without the command that began it."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rudel.errors import RunError, option
from rudel.runs import run_directory
from rudel.training.from_recipe import TrainedRun, train_recipe
from rudel.training.strategies import with_options


def resume_run(
    run: str | Path,
    progress: Callable[[int, int], None] | None = None,
    notify: Callable[[str], None] | None = None,
    min_hosts: int | None = None,
) -> TrainedRun:
    """Continues an unfinished run as it was begun, in the folder in which it was begun if that is still there.

    Until it returns, that is the working directory of the process.

    Args:
        run: its directory.
        progress: called with (bytes done, bytes in all) while data is fetched.
        notify: called before the first step with each sentence of the result's `notes`.
        min_hosts: how many of its hosts must be there to continue; None for as many as when it was begun.

    Returns:
        The finished run, as `rudel.train_recipe` returns it.

    Raises:
        RunError: there is no such run, it is finished, or it was not begun by a recipe.
        RudelError: everything that `rudel.train_recipe` raises.
    """
    directory = run_directory.open_run(Path(run))
    config = directory.read_config()
    if directory.read_summary() is not None:
        raise RunError(
            f"The run {directory.path} is finished: to train it for longer, repeat it with more {option('epochs')}, "
            f"{option('run', directory.path)} and {option('resume', True)}."
        )
    if "asked" not in config:
        raise RunError(
            f"The run {directory.path} does not say how it was begun: if that was in Python, call the same function "
            "with `resume=True`; else repeat its command with --resume."
        )
    recorded = config["asked"]
    if recorded is None:
        raise RunError(
            f"The run {directory.path} was begun with callbacks, a cluster or another object that no file holds: "
            "repeat its command with --resume, or its call in Python with `resume=True`."
        )
    spread = recorded.pop("strategy")
    strategy = with_options(spread["name"], _tuples(spread["options"])) if spread else None
    recorded |= {"options": _tuples(recorded["options"]), "strategy": strategy, "run": directory.path.resolve()}
    if min_hosts is not None:
        recorded["min_hosts"] = min_hosts
    folder = recorded.pop("folder", None)
    with contextlib.chdir(folder) if folder and Path(folder).is_dir() else contextlib.nullcontext():
        return train_recipe(**recorded, resume=True, progress=progress, notify=notify)


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
