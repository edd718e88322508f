"""Short trainings of every engine, compared with what they were: losses, and what was decided.

Losses may differ by rounding, decisions not at all. Of trainings whose merges come when the network lets them, only
what does not depend on that is compared.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
from golden import Golden

import rudel

FILE = Path(__file__).with_name("golden.json")
SETTINGS: dict[str, Any] = {"batch_size": 16, "seed": 2, "validation": 0.25, "monitor": "val_loss", "keep": 3}
ROUNDING = 2e-3


class Slower(keras.callbacks.Callback):
    """Lowers the learning rate after every epoch, and ends the training, or fails, after one of them."""

    def __init__(self, ends: int | None = None, fails: int | None = None) -> None:
        super().__init__()
        self._ends, self._fails = ends, fails

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        assert self.model
        self.model.optimizer.learning_rate = 0.02 / (epoch + 2)
        if epoch == self._ends:
            self.model.stop_training = True
        if epoch == self._fails:
            raise InterruptedError


class Losing(keras.callbacks.Callback):
    """Loses the host b at the end of the second epoch."""

    def __init__(self, crew: Any) -> None:
        super().__init__()
        self._crew = crew

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1 and "b" in self._crew.names:
            self._crew.kill("b")


def what_came_of(run: Path, history: Any) -> dict[str, Any]:
    """What a run directory keeps of a training, without times and bytes."""
    summary, config = (json.loads((run / name).read_text()) for name in ("summary.json", "config.json"))
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = ("strategy", "steps", "samples", "best", "stopped_early", "rounds", "arrivals", "workers_lost", "metrics")
    found: dict[str, Any] = {name: summary[name] for name in kept if name in summary}
    found["options"] = {name: str(value) for name, value in (config.get("strategy_options") or {}).items()}
    found["records"] = [{name: value for name, value in r.items() if name != "seconds"} for r in records]
    found["epochs"] = history.epoch
    found["checkpoints"] = sorted(path.name for path in (run / "checkpoints").glob("*.npz"))
    if (rounds := run / "rounds.jsonl").exists():
        lines = [json.loads(line) for line in rounds.read_text().splitlines()]
        found["round ends"] = [line["step"] for line in lines if "round" in line]
        found["events"] = [line["event"] for line in lines if "event" in line]
    if "restarts" in summary:
        found["restarts"] = [{k: r[k] for k in ("step", "from_step", "lost", "hosts")} for r in summary["restarts"]]
    return found


@pytest.fixture
def train(classifier: Callable[..., Any], blobs: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Trains into a run directory; returns what came of that."""

    def work(**settings: Any) -> dict[str, Any]:
        optimizer: Any = keras.optimizers.SGD(0.05)
        run = tmp_path / "run"
        history = rudel.fit(classifier(optimizer), *blobs, run=run, **SETTINGS | settings)
        return what_came_of(run, history)

    return work


@pytest.mark.parametrize("strategy", ["single", "mesh"])
def test_steps_in_this_process(train: Callable[..., Any], golden: Golden, strategy: str) -> None:
    options = rudel.Mesh(devices=1) if strategy == "mesh" else None
    settings = {"strategy": options, "steps": 50, "eval_every": 12, "checkpoint_every": 5}
    with pytest.raises(InterruptedError):
        train(callbacks=[Slower(fails=2)], **settings)
    found = train(callbacks=[Slower(ends=3)], resume=True, **settings)
    golden.check(FILE, rounding=ROUNDING, **{strategy: found})


def test_mesh_on_hosts_of_which_one_is_lost(train: Callable[..., Any], crew: Any, golden: Golden) -> None:
    settings = {"strategy": "mesh", "client": crew.client, "steps": 50, "eval_every": 12, "checkpoint_every": 5}
    found = train(callbacks=[Slower(), Losing(crew)], **settings)
    golden.check(FILE, rounding=ROUNDING, **{"mesh on hosts": found})


def test_rounds_of_one_host(train: Callable[..., Any], crew: Any, golden: Golden) -> None:
    crew.only("a")
    exact = {"delta_codec": "float32", "merge_codec": "float32", "outer": "nesterov:1:0", "rate_factor": 1.0}
    options = rudel.Diloco(round_steps=6, **exact)
    found = train(strategy=options, client=crew.client, steps=50, eval_every=12)
    golden.check(FILE, rounding=ROUNDING, diloco={k: v for k, v in found.items() if k != "checkpoints"})


def test_visits_of_one_host(train: Callable[..., Any], crew: Any, golden: Golden) -> None:
    crew.only("a")
    exact = {"delta_codec": "float32", "merge_codec": "float32", "outer": "sum", "rate_factor": 1.0}
    found = train(strategy=rudel.Async(steps_between=6, **exact), client=crew.client, steps=50, eval_every=50)
    kept = ("strategy", "steps", "samples", "metrics", "options", "epochs", "workers_lost")
    golden.check(FILE, rounding=ROUNDING, **{"async": {name: found[name] for name in kept}})
