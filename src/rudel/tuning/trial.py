"""One trial, as an objective sees it: its settings, its folder, and whom it reports to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Pruned(Exception):  # noqa: N818  # it is how a trial ends that is not worth continuing, and no error
    """Ends a trial early, as others do better."""


@dataclass(frozen=True)
class Trial:
    """A trial, the argument of an objective.

    Args:
        number: of the trial, from 0.
        settings: by name, values from the space, and those that are the same in all trials.
        folder: for what is to be kept of the trial. Its `checkpoints` come back, on another host, where one is lost.
        on_report: passes on a step and a value, and returns whether to go on.
    """

    number: int
    settings: Mapping[str, Any]
    folder: Path
    on_report: Callable[[int, float], bool]

    def report(self, value: float, step: int) -> None:
        """Says how well the trial does so far.

        Args:
            value: of what is minimised or maximised.
            step: how far the trial is, such as the number of the epoch.

        Raises:
            Pruned: it is not worth continuing; let it pass.
        """
        if not self.on_report(int(step), float(value)):
            raise Pruned

    def callback(self, monitor: str = "val_loss") -> Any:
        """A Keras callback that reports a metric after each epoch, for `rudel.fit` and `model.fit`."""
        import keras

        trial = self

        class Report(keras.callbacks.Callback):
            """Reports one metric."""

            def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
                """Reports it, if it is there."""
                if (value := (logs or {}).get(monitor)) is not None:
                    trial.report(value, epoch + 1)

        return Report()
