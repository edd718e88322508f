"""How recordings are cut from the samples of a sensor: where something begins, or one after the other.

A sound begins where a frame is 12 dB louder than the quiet of the last two seconds. A movement begins where the board
is accelerated by more than 2.5 g, axes added up, as for the sketch that recognises movements.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rudel.data.collecting.frames import Frame, Header

ROWS = 119
"""Of a movement: a second of a Nano 33 BLE Sense."""

STARTS_AT = 2.5
"""Acceleration in g, the sum of the absolute values of the first three columns; at rest it is 1 to 1.7."""

_BEFORE, _SECONDS = 0.2, 1.0
"""Seconds of a recording of sound before it begins, and in all."""

_LOUDER, _LEAST = 12.0, -60.0
"""dB above the quiet, and beside full scale, with which a sound begins."""

_QUIET_SECONDS, _QUIET_SHARE = 2.0, 0.2
"""The quiet is the level below which this share of the frames in the last seconds are."""


class Cutter:
    """Cuts recordings of one length.

    Args:
        header: what the board sends.
        continuous: take one recording after the other, whatever is in it.

    Attributes:
        level: of the last frame: in dB beside full scale, or in g.
        recording: whether a recording has begun.
    """

    def __init__(self, header: Header, continuous: bool) -> None:
        self._sound, self._continuous = header.kind == "sound", continuous
        self._length = round(_SECONDS * header.rate) if self._sound else ROWS
        self._before = round(_BEFORE * header.rate) if self._sound else 0
        self._rate = header.rate
        self._kept: np.ndarray | None = None
        self._levels: list[tuple[int, float]] = []
        self.level, self.recording = -np.inf if self._sound else 0.0, continuous

    def take(self, frame: Frame) -> Iterator[np.ndarray]:
        """The recordings that are complete with this frame: int16 (samples,), or float32 (rows, columns).

        Where samples are missing, the recording that has begun is given up.
        """
        if not frame.follows:
            self._kept, self.recording = None, self._continuous
        values = frame.values
        begins = not self.recording and self._begins(values)
        self._kept = values if self._kept is None else np.concatenate([self._kept, values])
        if begins:
            self.recording = True
            self._kept = self._kept[-(len(values) + self._before) :]
        elif not self.recording:
            self._kept = self._kept[-self._before or len(self._kept) :]
        while self.recording and len(self._kept) >= self._length:
            yield self._kept[: self._length].copy()
            self._kept, self.recording = self._kept[self._length :], self._continuous

    def _begins(self, values: np.ndarray) -> bool:
        if not self._sound:
            self.level = float(np.abs(values[-1, :3]).sum())
            return self.level > STARTS_AT
        self.level = level_of(values)
        quiet = self._quiet()
        self._levels.append((len(values), self.level))
        while sum(count for count, _ in self._levels[1:]) > _QUIET_SECONDS * self._rate:
            self._levels.pop(0)
        return quiet is not None and self.level > max(quiet + _LOUDER, _LEAST)

    def _quiet(self) -> float | None:
        """The level of the quiet, dB; None until a quarter of the time for it has passed."""
        if sum(count for count, _ in self._levels) < _QUIET_SECONDS * self._rate / 4:
            return None
        return float(np.quantile([level for _, level in self._levels], _QUIET_SHARE))


def level_of(samples: np.ndarray) -> float:
    """The level of samples, int16 (N,), in dB beside a full sine.

    >>> round(level_of(np.int16([0, 32767, 0, -32767])), 1), level_of(np.zeros(8, np.int16))
    (0.0, -100.0)
    """
    power = float(np.mean(np.square(samples / 32767.0)))
    return max(-100.0, 10 * math.log10(2 * power)) if power else -100.0


def sparks(levels: Sequence[float], low: float, high: float) -> str:
    """Levels as a line of blocks.

    >>> sparks([0, 1, 2, 3, 9], 0, 3)
    '▁▃▆██'
    """
    blocks = "▁▂▃▄▅▆▇█"
    shares = np.clip((np.asarray(levels, float) - low) / (high - low), 0, 1)
    return "".join(blocks[round(share * (len(blocks) - 1))] for share in shares)
