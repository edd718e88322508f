"""`Engine`: how the steps of a training are taken."""

from typing import Any, Protocol, TypeVar

from rudel.runs.checkpoint import Checkpoint

Reported = TypeVar("Reported", contravariant=True)
"""The session that an engine reports to: `rudel.session.session.Session`."""


class Engine(Protocol[Reported]):
    """Takes the steps of one training, and reports to its session what comes of them.

    A session calls `prepare` once, `restore` where it continues from a checkpoint, then `run`, `write` and `close`.
    While it runs, an engine ends spans, saves checkpoints and reacts to interrupts by the session's methods.
    """

    def prepare(self, session: Reported) -> None:
        """Makes everything ready for the first step: compiles, places or packs the model and the examples.

        Args:
            session: of this training; its model has all variables.

        Raises:
            RudelError: this model or these examples cannot be trained this way.
        """
        ...

    def restore(self, saved: Checkpoint) -> None:
        """Takes over the arrays of a checkpoint, to which the session's position has been set.

        Raises:
            RunError: they are not of this model.
        """
        ...

    def run(self) -> None:
        """Takes all steps that are left, or as many as are taken before the training is ended or interrupted.

        Raises:
            RudelError: the training cannot continue.
            KeyboardInterrupt, SystemExit: it was interrupted.
        """
        ...

    def write(self) -> None:
        """Puts the state into the model's variables, also after an error."""
        ...

    def describe(self) -> dict[str, Any]:
        """Entries of the summary about how the model was trained: `strategy`, `hosts`, `samples`, and more."""
        ...

    def close(self) -> None:
        """Ends what was begun, such as threads that read; may be called several times."""
        ...
