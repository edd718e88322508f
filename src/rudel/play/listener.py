"""A run that recognises words or movements: what its page has to know."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.errors import ServeError
from rudel.features import LogMel
from rudel.features.layer import Features
from rudel.features.sensor_columns import Columns, columns_of
from rudel.loop.classification import as_probabilities, ends_in_softmax
from rudel.micro.packages.recogniser import PASSED_OVER, REST, SMOOTHING, STARTS_AT, THRESHOLD
from rudel.micro.packages.sensing import MOVING, other_channels
from rudel.runs import run_directory

if TYPE_CHECKING:
    import keras

ROW_RATE = 119
"""Rows a second of the Nano 33 BLE's sensor, which recordings of movements come from."""

_EVERY = 0.1
"""Seconds from one run of a network of words to the next: a browser has time for it."""


@dataclass(frozen=True)
class Listener:
    """A run whose model recognises sound or movement.

    Args:
        run: its directory.
        features: of its sound, or of its rows.
        length: frames, or rows, that the network takes.
        classes: names, in the order of the outputs.
        attribution: of the data that it learned from.
        channels: names of the columns of its rows; empty for sound, and where nobody said.
    """

    run: Path
    features: LogMel | Columns
    length: int
    classes: tuple[str, ...]
    attribution: str
    channels: tuple[str, ...] = ()

    page = "sensor_page"

    @property
    def notes(self) -> list[str]:
        """What a user should know, a sentence each."""
        return [] if self._knows_phones else other_channels(self.channels, "a phone")

    @property
    def _knows_phones(self) -> bool:
        """Whether its columns are those of a phone, in whatever order."""
        return sorted(self.channels) == sorted(MOVING)

    @property
    def _places(self) -> list[int]:
        """Where the columns of the model's rows are in a phone's; as they come where it has others."""
        return [MOVING.index(name) for name in (self.channels if self._knows_phones else MOVING)]

    def description(self, module: str | None = None, offline: bool = False) -> dict[str, Any]:
        """The description of the model for the page, as JSON; see `sensor_page/recogniser.js`.

        Args:
            module: address of the model's JavaScript.
            offline: whether the page shall be kept by the browser.
        """
        about = {
            "run": self.run.resolve().name,
            "classes": list(self.classes),
            "module": module,
            "offline": offline,
            "attribution": self.attribution,
        }
        if isinstance(self.features, Columns):
            moving = {"rows": self.length, "rowRate": ROW_RATE, "startsAt": STARTS_AT, "places": self._places}
            return about | {"kind": "motion"} | moving
        seconds = self.features.hop / self.features.rate
        every = max(1, round(_EVERY / seconds))
        return about | {
            "kind": "sound",
            "rate": self.features.rate,
            "hop": self.features.hop,
            "bands": self.features.width,
            "spectrum": self.features.bands,
            "silence": self.features.silence.tolist(),
            "frames": self.length,
            "every": every,
            "smoothed": max(1, round(SMOOTHING / (every * seconds))),
            "resting": max(1, round(REST / (every * seconds))),
            "threshold": THRESHOLD,
            "passedOver": [name in PASSED_OVER for name in self.classes],
        }


def listener_of(directory: run_directory.RunDirectory, model: "keras.Model") -> Listener | None:
    """Makes the listener of a run whose model has been read; None if it takes neither sound nor rows of a sensor.

    Raises:
        ServeError: it does, and a page cannot run it.
    """
    inputs = getattr(model, "inputs", None) or ()
    if len(inputs) != 1:
        return None
    layer = next((layer for layer in model.layers if layer.name != inputs[0].name and layer.input is inputs[0]), None)
    features = layer.features if isinstance(layer, Features) else columns_of(layer)
    config = directory.read_config()
    if features is None or layer is None:
        return None
    names = tuple(config.get("class_names") or ())
    if not names or model.output_shape != (None, len(names)):
        raise ServeError(f"The run {directory.path} is not a classifier: give one of `keywords` or `motion`.")
    if not _gives_probabilities(model, len(names)):
        raise ServeError(
            f"The run {directory.path} does not give probabilities, which the page of a sensor needs: let its model "
            "end in a softmax, and train it again."
        )
    if isinstance(features, Columns) and len(features.mean) != 6:
        raise ServeError(
            f"The run {directory.path} takes {len(features.mean)} columns, and a phone's motion sensor gives 6: "
            "acceleration and rotation."
        )
    length = tuple(layer.compute_output_shape(inputs[0].shape))[1]
    channels = tuple(config.get("channels") or ())
    return Listener(directory.path, features, length, names, config.get("attribution") or "", channels)


def _gives_probabilities(model: "keras.Model", classes: int) -> bool:
    """Whether the outputs are probabilities as they are, by the last layer or by the loss."""
    probe = np.eye(classes, dtype=np.float32)
    found = as_probabilities(model, probe)
    return ends_in_softmax(model) or (found is not None and np.array_equal(found, probe))
