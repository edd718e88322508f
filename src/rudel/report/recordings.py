"""Recordings of sound and of movements on the page: to see and to hear."""

import base64
import io
import wave

import numpy as np

from rudel.errors import DataError, OptionError
from rudel.report.markup import Html, element, join

_COLOURS = ("train", "validation", "test")
_WIDTH, _HEIGHT = 240, 72


def spectrogram(samples: np.ndarray, rate: int) -> np.ndarray | None:
    """The spectrogram of a recording: time from left to right, low frequencies below, loud ones bright.

    Args:
        samples: int16 (S,).
        rate: samples a second.

    Returns:
        uint8 (bands, frames), scaled to its own least and greatest value; None at a rate that has no spectrogram, or
        where there is not one frame.
    """
    from rudel.features import LogMel

    try:
        bands = LogMel(rate)(samples).astype(np.int16).T[::-1]
    except (DataError, OptionError):
        return None
    if not bands.size:
        return None
    least = bands.min()
    return np.rint((bands - least) * (255 / max(1, bands.max() - least))).astype(np.uint8)


def player(samples: np.ndarray, rate: int, about: str) -> Html:
    """An element that plays a recording, which is inside it as a WAV file.

    Args:
        samples: int16 (S,).
        rate: samples a second.
        about: what it is, for those who do not see the page.
    """
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate)
        written.writeframes(samples.astype("<i2").tobytes())
    source = "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()
    return element("audio", controls="controls", preload="none", src=source, aria_label=about)


def curves(series: np.ndarray, among: np.ndarray, about: str) -> Html:
    """The columns of a recording over time, three to a panel where their number is a multiple of three.

    Args:
        series: float (T, C).
        among: (M, T, C), the recordings beside which it is shown; their panels have the same scale.
        about: what it is, in words.
    """
    columns = series.shape[1]
    each = 3 if columns % 3 == 0 else columns
    panels = [
        _panel(series[:, first : first + each], among[..., first : first + each], top)
        for top, first in enumerate(range(0, columns, each))
    ]
    view = f"0 0 {_WIDTH} {_HEIGHT * len(panels)}"
    return element("svg", join(panels), role="img", aria_label=about, viewBox=view)


def _panel(series: np.ndarray, among: np.ndarray, top: int) -> Html:
    finite = among[np.isfinite(among)]
    least, greatest = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    scaled = (np.nan_to_num(series, nan=least).clip(least, greatest) - least) / ((greatest - least) or 1)
    x = np.linspace(1, _WIDTH - 1, len(series))
    y = (top + 1) * _HEIGHT - 4 - scaled * (_HEIGHT - 8)
    return join(
        element(
            "polyline",
            points=" ".join(f"{across:.1f},{down:.1f}" for across, down in zip(x, y[:, column], strict=True)),
            fill="none",
            stroke=f"var(--{_COLOURS[column % len(_COLOURS)]})",
            stroke_width=1.25,
        )
        for column in range(series.shape[1])
    )
