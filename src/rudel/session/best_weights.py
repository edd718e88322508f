"""The best evaluation so far, by one metric, and whether it has become better lately.

What is known of it follows from the records of a training, so checkpoints have it without holding it. The weights are
in a checkpoint of their own, `checkpoints/best-STEP.npz`, which is not removed before a newer one counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import OptionError
from rudel.report.formatting import better
from rudel.runs import checkpoint as checkpoints
from rudel.runs.checkpoint import Checkpoint
from rudel.session.training_options import TrainingOptions


@dataclass(frozen=True)
class Best:
    """The best evaluation.

    Args:
        value: of the metric.
        step: after which it was made.
        epoch: as its record says.
        since: how many evaluations came after it.
    """

    value: float
    step: int
    epoch: float
    since: int = 0


class Watch:
    """Looks at one metric; with no metric, at nothing.

    Args:
        metric: its name, as in metrics.jsonl.
        sign: 1 if more of it is better, -1 if less is.
        patience: evaluations without improvement after which the training is to end; None for no end.

    Attributes:
        after: the step up to which another metric was monitored, whose best weights were kept; records until then do
            not count; -1 where there was none.

    >>> watch = Watch("val_loss", -1, patience=2)
    >>> [watch.observe({"step": i, "epoch": i, "logs": {"val_loss": v}}) for i, v in enumerate([3.0, 2.0, 2.5, 2.0])]
    [True, True, False, False]
    >>> watch.best, watch.exhausted
    (Best(value=2.0, step=1, epoch=1, since=2), True)
    """

    def __init__(self, metric: str | None, sign: int = 0, patience: int | None = None) -> None:
        self.metric, self._sign, self._patience = metric, sign, patience
        self.best: Best | None = None
        self.after = -1

    @property
    def exhausted(self) -> bool:
        """Whether it has not become better for as long as was to be waited."""
        return self.best is not None and self._patience is not None and self.best.since >= self._patience

    def observe(self, record: Mapping[str, Any]) -> bool:
        """Takes a record in; returns whether it is the best so far."""
        value = record["logs"].get(self.metric)
        if value is None or record["step"] <= self.after or (self.best is None and value != value):
            return False
        if self.best is None or self._sign * value > self._sign * self.best.value:
            self.best = Best(value, record["step"], record["epoch"])
            return True
        self.best = Best(self.best.value, self.best.step, self.best.epoch, self.best.since + 1)
        return False

    def observe_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Takes records in, from the first on."""
        self.best = None
        for record in records:
            self.observe(record)


def make_watch(options: TrainingOptions, metrics: Iterable[Any], names: Iterable[str] | None) -> Watch:
    """A watch for a training.

    Args:
        options: with the metric, and when to end.
        metrics: the model's metric objects, which may know what is better.
        names: of the metrics of a span; None where the model's own steps decide that, see `check_known`.

    Raises:
        OptionError: there is no such metric, or nobody knows which of its values are better.
    """
    from rudel.internals.keras import metric_direction

    if (monitor := options.watched) is None:
        return Watch(None)
    if names is not None:
        check_known(monitor, names)
    bare = monitor.removeprefix("val_")
    directions = {getattr(m, "name", ""): metric_direction(m) for m in metrics}
    sign = {"up": 1, "down": -1}.get(directions.get(bare.partition("/")[0]) or "") or better(monitor)
    if not sign:
        raise OptionError(
            f"Whether higher or lower `{monitor}` is better is not clear from its name: monitor another metric, or "
            "give Keras' EarlyStopping with `mode` as a callback."
        )
    return Watch(monitor, sign, options.stop_early)


def check_known(monitor: str | None, names: Iterable[str]) -> None:
    """Refuses to monitor a metric that a training does not have.

    Raises:
        OptionError: says which ones it has.
    """
    if monitor is not None and monitor not in (known := sorted(names)):
        hint = " (there is no validation data)" if monitor.startswith("val_") and not _has_validation(known) else ""
        raise OptionError(f"This training has no metric `{monitor}` to monitor{hint}: it has {', '.join(known)}.")


def path_of(run: Path, step: int) -> Path:
    """The path of the best weights, if they are those of this step."""
    return run / checkpoints.FOLDER / f"best-{step:010d}.npz"


def save(run: Path, checkpoint: Checkpoint, before: Iterable[int | None]) -> None:
    """Keeps the best weights, and those of the steps `before`, which a resumed training would know as the best.

    Raises:
        CheckpointError: they cannot be written.
    """
    checkpoints.write(path_of(run, checkpoint.step), checkpoint)
    prune(run, {checkpoint.step, *before})


def prune(run: Path, steps: Iterable[int | None]) -> None:
    """Removes the best weights of all steps but these."""
    kept = {path_of(run, step) for step in steps if step is not None}
    for path in (run / checkpoints.FOLDER).glob("best-*.npz"):
        if path not in kept:
            path.unlink(missing_ok=True)


def _has_validation(names: Iterable[str]) -> bool:
    return any(name.startswith("val_") for name in names)
