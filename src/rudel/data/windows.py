"""Windows of recordings, of sound or motion, all of one shape: what is held out, examples, labels of a model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rudel.data.dataset import Examples, ToEvaluate
from rudel.data.file_names import composed, printable
from rudel.data.held_out import held_out, speaker_of
from rudel.data.images.shard_writer import LeftOut
from rudel.errors import DataError

_FEW = 10
"""In fewer windows, a column may rise by chance in all of them."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows and what they show.

    Args:
        source: what they were read from.
        x: (N, ...), the windows.
        labels: int32 (N,), positions in `classes`.
        names: of the recordings that windows are from, (N,).
        classes: names of the classes.
        left_out: files and recordings that are not among them, and why.
        validation: bool (N,), true for what is held out already, as of records; None where nobody has split them.
        channels: names of what a row of a motion sensor's window has; empty for sound.
    """

    source: str
    x: np.ndarray
    labels: np.ndarray
    names: Sequence[str]
    classes: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()
    validation: np.ndarray | None = None
    channels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    def take(self, mask: np.ndarray) -> "Windows":
        """The windows where a mask is true."""
        names = [name for name, kept in zip(self.names, mask, strict=True) if kept]
        validation = None if self.validation is None else self.validation[mask]
        return replace(self, x=self.x[mask], labels=self.labels[mask], names=names, validation=validation)

    def held_out(
        self, share: float, by: Literal["recording", "speaker"] = "recording", speakers: Sequence[str] = ()
    ) -> np.ndarray:
        """Chooses windows to hold out, bool (N,): all those of some recordings of each class, or of some speakers.

        Args:
            share: of all windows, unless `speakers` are named, or they are split already and `by` is recording.
            by: what is held out as a whole; by speaker, windows that are split already are split again.
            speakers: names of those to hold out.

        Raises:
            OptionError: the share is not from 0 to below 1.
            DataError: there is no such group, or nothing would be left to learn from.
        """
        if self.validation is not None and by == "recording" and not speakers:
            return self.validation
        if by == "speaker" or speakers:
            labels = (self.classes[label] for label in self.labels)
            heard = [speaker_of(name, label) for name, label in zip(self.names, labels, strict=True)]
            return held_out(heard, share, composed(speakers))
        mask = np.zeros(len(self), bool)
        for label in np.unique(self.labels):
            rows = np.flatnonzero(self.labels == label)
            mask[rows] = held_out([self.names[row] for row in rows.tolist()], share)
        return mask

    def split(self, mask: np.ndarray) -> tuple["Windows", "Windows | None"]:
        """Splits into windows to learn from and those that a mask holds out; None where there are none of these."""
        return self.take(~mask), self.take(mask) if mask.any() else None

    def examples(self) -> Examples:
        """Windows and labels."""
        return Examples(self.x, self.labels)

    def to_evaluate(self, class_names: Sequence[str], channels: Sequence[str] = ()) -> ToEvaluate:
        """All windows as a model takes them, with the labels that it has for their classes.

        Args:
            class_names: of the model.
            channels: in the order in which the model takes them; empty for that of the windows.

        Raises:
            DataError: none is of a class that the model knows, or a column is missing.
        """
        places = places_of(channels, self.channels, self.source) if channels and self.channels else slice(None)
        known = {name: label for label, name in enumerate(class_names)}
        labels = np.array([known.get(name, -1) for name in self.classes], np.int32)[self.labels]
        if not (labels >= 0).any():
            raise DataError(
                f"{self.source} has no recording of a class that the model knows: {', '.join(class_names)}."
            )
        left_out = Counter(self.classes[label] for label in self.labels[labels < 0].tolist())
        examples = Examples(self.x[labels >= 0][..., places], labels[labels >= 0])
        return ToEvaluate(examples, dict(sorted(left_out.items())), self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, a sentence each."""
        notes = []
        if self.left_out:
            count, first = len(self.left_out), self.left_out[0]
            what = "1 file or recording" if count == 1 else f"{count:,} files and recordings"
            reason = first.detail or first.reason
            notes.append(f"{what} in {self.source} cannot be used, such as {first.name}: {reason}.")
        if cut := {name: count for name, count in Counter(self.names).items() if count > 1}:
            what = "1 long recording" if len(cut) == 1 else f"{len(cut):,} long recordings"
            examples, first = sum(cut.values()), printable(next(iter(cut)))
            notes.append(
                f"{what} in {self.source}, such as {first}, became {examples:,} examples: "
                "one per window, whatever is in it."
            )
        return tuple(notes)

    @property
    def possible_clocks(self) -> tuple[str, ...]:
        """A note for the user on each column that varies, but never falls within a window.

        There is none where that may be chance: in few windows, or where no column falls, as in recordings of one row.
        """
        if not self.channels or len(self) < _FEW:
            return ()
        falls = (self.x[:, 1:] < self.x[:, :-1]).any((0, 1))
        if not falls.any():
            return ()
        return tuple(
            f"The column `{name}` in {self.source} never falls within a recording: if it is the time, a counter or the "
            "number of a recording, remove it, or the model learns when something was recorded."
            for name in np.array(self.channels)[~falls & (np.ptp(self.x, (0, 1)) > 0)]
        )

    @property
    def without_examples(self) -> tuple[str, ...]:
        """A note for the user, where classes have no window to learn from."""
        named = ", ".join(f"`{name}`" for label, name in enumerate(self.classes) if not (self.labels == label).any())
        return (f"No recording is left to learn {named} from: record some, or hold out fewer.",) if named else ()


def places_of(wanted: Sequence[str], there: Sequence[str], source: object) -> list[int]:
    """Where columns that a model takes are in a source.

    Args:
        wanted: names of the columns, in the order in which the model takes them.
        there: those of the source.
        source: what a message calls it.

    Raises:
        DataError: one is missing.

    >>> places_of(["aX", "aY"], ["aY", "aZ", "aX"], "punch.csv")
    [2, 0]
    """
    if missing := [name for name in wanted if name not in there]:
        raise DataError(
            f"{source} has no column `{missing[0]}`, which the model takes: its columns are {', '.join(there)}."
        )
    return [list(there).index(name) for name in wanted]


def cut_or_padded(recording: np.ndarray, length: int, padding: Literal["constant", "edge"] = "constant") -> np.ndarray:
    """Windows of a recording.

    One that is not longer than a window is laid in its middle, between zeros; or is continued with its last row
    (`edge`). Of one less than twice as long, the part with the most energy is taken. A longer one is cut into as many
    windows as it holds.

    Args:
        recording: (S, ...), at least one row.
        length: of a window.
        padding: see above.

    Returns:
        (N, length, ...) of the same dtype, at least one.

    >>> cut_or_padded(np.array([1, 2], np.int16), 5).tolist(), cut_or_padded(np.array([1, 2]), 4, "edge").tolist()
    ([[0, 1, 2, 0, 0]], [[1, 2, 2, 2]])
    >>> cut_or_padded(np.array([0, 1, 5, -5, 1], np.int16), 3).tolist()
    [[1, 5, -5]]
    >>> cut_or_padded(np.arange(7, dtype=np.int16), 3).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    spare = length - len(recording)
    if spare >= 0:
        before = spare // 2 if padding == "constant" else 0
        return np.pad(recording, [(before, spare - before), *[(0, 0)] * (recording.ndim - 1)], mode=padding)[None]
    if len(recording) >= 2 * length:
        count = len(recording) // length
        return recording[: count * length].reshape(count, length, *recording.shape[1:])
    values = recording.reshape(len(recording), -1).astype(np.float64)
    energy = np.cumsum(np.concatenate([[0.0], ((values - values.mean(axis=0)) ** 2).sum(axis=1)]))
    start = int(np.argmax(energy[length:] - energy[:-length]))
    return recording[None, start : start + length]
