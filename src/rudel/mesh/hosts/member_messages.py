"""Messages between the member processes of a training and the driver: plain data, and one parcel of code."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rudel.mesh.hosts.processes import Processes
from rudel.runs.checkpoint import Checkpoint

State = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], list[np.ndarray]]
"""The values of a `ModelState`, in NumPy arrays."""

HOOKS = ("on_epoch_begin", "on_epoch_end", "on_test_begin", "on_test_end")
"""The methods of callbacks that a member can ask for."""

# -- to a member -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """The order that starts a member.

    Args:
        processes: who trains together.
        parcel: the job; see `parcel.py`.
        saved: where the training stands, for member 0, which tells the others.
        asks: whether the driver has callbacks, which act on the model.
        devices: how many virtual devices to make of the processor; None for as many as there are.
    """

    processes: Processes
    parcel: bytes
    saved: Checkpoint | None
    asks: bool
    devices: int | None


@dataclass(frozen=True)
class Acted:
    """Changes that callbacks made.

    Args:
        changes: new values of variables, by `part/place` in the `ModelState`.
        stop: whether the training is to end.
    """

    changes: dict[str, np.ndarray] = field(default_factory=dict)
    stop: bool = False


# -- from a member -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """The member has found the others.

    Args:
        devices: how many devices its host has.
        kind: what they are, as JAX calls it.
    """

    devices: int
    kind: str


@dataclass(frozen=True)
class Begun:
    """Everything is compiled, and the first step comes.

    Args:
        about: what the summary says of how it is trained.
        compile_seconds: how long compiling took.
    """

    about: dict[str, Any]
    compile_seconds: float


@dataclass(frozen=True)
class Noted:
    """Something to know of the training, a sentence."""

    text: str


@dataclass(frozen=True)
class Advanced:
    """A block has ended; arguments of `Display.advance`."""

    step: int
    logs: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Moment:
    """A moment at which callbacks act.

    Args:
        hook: the method of callbacks, one of `HOOKS`.
        number: of the epoch, or None.
        logs: that they are called with.
        state: of the model, where callbacks are to see it.
        waits: whether the member waits for an `Acted`.
    """

    hook: str
    number: int | None
    logs: dict[str, float]
    state: State | None
    waits: bool


@dataclass(frozen=True)
class Recorded:
    """A span has ended, with its record."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """A checkpoint."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Best:
    """The best weights so far."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Done:
    """The training has ended.

    Args:
        about: what the summary says of how it was trained.
        state: of the model.
        step: how many steps were taken.
        stopped: whether a callback ended it.
        clock: seconds by kind.
    """

    about: dict[str, Any]
    state: State
    step: int
    stopped: bool
    clock: dict[str, float]


@dataclass(frozen=True)
class Interrupted:
    """The training was interrupted, and a checkpoint written before."""


@dataclass(frozen=True)
class Refused:
    """The training cannot go on, with or without other hosts.

    Args:
        kind: the name of a class in `rudel.errors`.
        reason: why, a sentence.
        trace: the traceback, of an error that is not the user's.
    """

    kind: str
    reason: str
    trace: str = ""


@dataclass(frozen=True)
class Failed:
    """Something went wrong that others may do better, such as a connection that broke off.

    Args:
        reason: what, in a line.
    """

    reason: str
