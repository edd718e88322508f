"""`Together`: what several processes of a mesh decide together, between two blocks of steps.

Process 0 alone has a run directory and a display. It says how long the next block is, whether a checkpoint is due, and
whether a callback has ended the training; all hear of each other's signals. Callbacks act in all processes, on models
that have the same weights, with the logs of process 0.
"""

from rudel.errors import NonFiniteError
from rudel.mesh import agreement as agree
from rudel.runs.checkpoint import Checkpoint
from rudel.session.held_signals import Interrupts
from rudel.session.session import Session
from rudel.session.training_display import Display

BLOCK_SECONDS = 1.5
"""Aim for the length of a block of several processes, which have to agree on what comes after each."""


class Together:
    """`Decisions` of several processes; see the module."""

    block_seconds = BLOCK_SECONDS
    keeps = False

    def __init__(self) -> None:
        self._interrupts = SharedInterrupts()
        self._next_block = 0

    def prepare(self, session: Session) -> None:
        """See `Decisions`; gives the session what all processes share."""
        self.keeps = bool(agree.first(session.store.keeps))
        session.saved, session.interrupts = _shared(session.saved), self._interrupts
        if not agree.is_first():
            session.display = Display()

    def wait(self) -> None:
        """See `Decisions`."""
        agree.numbers([0])

    def steps(self, wanted: int) -> int:
        """See `Decisions`; often it was agreed on with the last decision to save."""
        agreed, self._next_block = self._next_block, 0
        return agreed or agree.first(wanted)

    def save_is_due(self, due: bool, wanted: int) -> bool:
        """See `Decisions`; agrees, in one exchange, on all that has to be known between two blocks."""
        heard = agree.numbers([self._interrupts.noted, int(due), wanted])
        self._interrupts.hear(int(heard[:, 0].max()))
        due = bool(heard[0, 1] or (self.keeps and self._interrupts.received))
        self._next_block = 0 if due else int(heard[0, 2])  # after a checkpoint there are others until the next one
        return due

    def logs(self, logs: dict[str, float]) -> dict[str, float]:
        """See `Decisions`."""
        return logs | agree.first(logs)

    def stop(self, wanted: bool) -> bool:
        """See `Decisions`."""
        return agree.first(wanted)

    def can_write(self, error: BaseException) -> bool:
        """See `Decisions`: gathering takes all processes, and after other errors they wait for something else."""
        return isinstance(error, NonFiniteError | KeyboardInterrupt | SystemExit)

    def traffic(self) -> dict[str, int]:
        """See `Decisions`; what JAX sends is not counted."""
        return {}


class SharedInterrupts(Interrupts):
    """Signals that are acted on when all processes have heard of them."""

    def __init__(self) -> None:
        super().__init__()
        self._noted = 0

    @property
    def noted(self) -> int:
        """The signal that this process has got, or 0."""
        return self._noted

    def hear(self, number: int) -> None:
        """Takes note of a signal that all have heard of, or of none, which is 0."""
        self._received = number or None

    def _note(self, number: int, frame: object) -> None:
        self._noted = number
        self._restore()


def _shared(saved: Checkpoint | None) -> Checkpoint | None:
    """The checkpoint that process 0 continues from, for all."""
    known = agree.first({"step": saved.step, "document": saved.document} if saved else None)
    if known is None:
        return None
    return Checkpoint(known["step"], agree.first_arrays(saved.arrays if saved else None), known["document"])
