"""The strategy `mesh` in a member process: what it keeps, it tells the computer that drives."""

from typing import Any

from rudel.errors import NonFiniteError
from rudel.train import best
from rudel.train import checkpoint as checkpoints
from rudel.train.mesh.hosts.channel import Channel
from rudel.train.mesh.hosts.messages import Begun, Best, Recorded, Saved
from rudel.train.mesh.training import MeshTraining


class ToldTraining(MeshTraining):
    """See the module; arguments as of `MeshTraining`, and:

    Args:
        channel: to the computer that drives; None for members other than 0.
    """

    def __init__(self, *arguments: Any, options: Any, channel: Channel | None) -> None:
        self._channel, self._told_best = channel, -1
        super().__init__(*arguments, options=options)

    def _tell(self, message: Any) -> None:
        if self._channel:
            self._channel.tell(message)

    def _train(self) -> None:
        self._tell(Begun(self.about, self.position.clock.compile))
        super()._train()

    def _record(self, number: int, logs: dict[str, float]) -> None:
        super()._record(number, logs)
        self._tell(Recorded(self.position.records[-1]))

    def _save(self) -> None:
        super()._save()
        if self.run:
            self._tell(Saved(checkpoints.load(checkpoints.path_of(self.run.path, self.position.step))))

    def _keep_if_best(self, number: int, logs: dict[str, float]) -> None:
        super()._keep_if_best(number, logs)
        found = self._watch.best
        if self.run and found and found.step != self._told_best:
            self._told_best = found.step
            path = best.path_of(self.run.path, found.step)
            if path.exists():  # not that of a checkpoint that the computer that drives has already
                self._tell(Best(checkpoints.load(path)))

    def _non_finite(self, what: str, step: int) -> NonFiniteError:
        run, self.run = self.run, None  # what the run keeps, the computer that drives says
        try:
            return super()._non_finite(what, step)
        finally:
            self.run = run
