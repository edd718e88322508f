"""The ends of a member that reach the driver: what is shown, what callbacks do, what is kept."""

import queue
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rudel.loop import model_state
from rudel.mesh import agreement as agree
from rudel.mesh.hosts.channel import Channel
from rudel.mesh.hosts.member_messages import Acted, Advanced, Best, Moment, Noted, Recorded, Saved, State
from rudel.runs.checkpoint import Checkpoint
from rudel.session.training_display import Display


class SentDisplay(Display):
    """A display that sends everything to the driver.

    Args:
        channel: to it.
    """

    live = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def note(self, text: str) -> None:
        """Something to know of the training."""
        self._channel.send(Noted(text))

    def advance(self, step: int, logs: dict[str, float], seconds: float) -> None:
        """A block has ended."""
        self._channel.send(Advanced(step, logs, seconds))


class SentStore:
    """A `Store` that sends everything to the driver, whose session keeps it.

    Args:
        channel: to the driver.
    """

    keeps = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def begin(self, records: Sequence[dict[str, Any]]) -> None:
        """See `Store`; the driver has these records."""

    def add(self, record: dict[str, Any]) -> None:
        """See `Store`."""
        self._channel.send(Recorded(record))

    def save(self, checkpoint: Checkpoint, best_step: int | None) -> None:
        """See `Store`."""
        self._channel.send(Saved(checkpoint))

    def save_best(self, weights: Checkpoint, before: Iterable[int | None]) -> None:
        """See `Store`."""
        self._channel.send(Best(weights))

    def after_interrupt(self) -> str:
        """See `Store`; the driver says it."""
        return ""

    def after_failure(self, step: int) -> str:
        """See `Store`; the driver says it."""
        return ""


class Relay(keras.callbacks.Callback):
    """Stands for the callbacks of the driver: they act there, and all members do what they did.

    Every member has one, as each has to make the same changes; that of member 0 speaks with the driver.

    Args:
        channel: to it; None for other members.
        answers: where its answers arrive.
        asks: whether there are any callbacks, so that there is something to wait for.
    """

    def __init__(self, channel: Channel | None, answers: "queue.SimpleQueue[Acted]", asks: bool) -> None:
        super().__init__()
        self._channel, self._answers, self._asks = channel, answers, asks

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """A span begins."""
        self._act("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """A span ends."""
        self._act("on_epoch_end", epoch, logs, with_state=True)

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """An evaluation begins."""
        self._act("on_test_begin", None, logs)

    def on_test_end(self, logs: Mapping[str, float] | None = None) -> None:
        """An evaluation has ended."""
        self._act("on_test_end", None, logs)

    def _act(self, hook: str, number: int | None, logs: Mapping[str, float] | None, with_state: bool = False) -> None:
        acted = Acted()
        if self._channel:
            state = state_of(self.model) if self._asks and with_state else None
            self._channel.send(Moment(hook, number, dict(logs or {}), state, self._asks))
            acted = self._answers.get() if self._asks else acted
        if not self._asks or self.model is None:
            return
        changes = agree.first_arrays(acted.changes)
        variables = model_state.variables(self.model)
        for name, value in changes.items():
            part, _, place = name.partition("/")
            getattr(variables, part)[int(place)].assign(value)
        if agree.first(acted.stop):
            self.model.stop_training = True


def state_of(model: Any) -> State:
    """The values of a model's variables, in NumPy arrays."""
    found = model_state.variables(model)
    trainable, non_trainable, optimizer, metrics = ([np.array(v.value) for v in part] for part in found)
    return trainable, non_trainable, optimizer, metrics
