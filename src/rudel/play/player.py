"""A run that guesses drawings."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.data.pictures import other_numbers
from rudel.errors import ServeError
from rudel.loop import model_state
from rudel.loop.classification import as_probabilities
from rudel.loop.compiled_loop import Program, compile_prediction
from rudel.play.drawing import Drawing, ReadImage, drawing_for
from rudel.runs import run_directory
from rudel.runs.loading import MissingReadImage, read_image_of

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class Player:
    """A run whose model guesses drawings; `guess` asks it.

    Args:
        run: its directory.
        model: its Keras model.
        drawing: how strokes become its input.
        read_image: of its recipe.
        classes: names, in the order of the outputs.
        logits: whether its outputs still have to go through a softmax.
        attribution: of the data that it learned from.
    """

    run: Path
    model: "keras.Model"
    drawing: Drawing
    read_image: ReadImage | None
    classes: tuple[str, ...]
    logits: bool
    attribution: str

    page = "page"

    def guess(self, content: bytes) -> list[float]:
        """Probabilities of the classes for a bitmap.

        Raises:
            ServeError: there are too many bytes, or too few.
        """
        side = self.drawing.side
        if len(content) != side * side:
            raise ServeError(f"A drawing has {side * side} bytes here, one for each of {side} x {side} pixels.")
        pixels = np.frombuffer(content, np.uint8).reshape(side, side)
        x = self.drawing.input(pixels, self.read_image, tuple(self.model.input_shape[1:]))
        probabilities = as_probabilities(self.model, self._outputs(x))
        if probabilities is None:
            raise ServeError("The model does not give probabilities for this drawing.")
        return probabilities[0].astype(float).tolist()

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        state, programs = self._compiled
        if x.dtype.name not in programs:
            programs[x.dtype.name] = compile_prediction(self.model, state, x)
        return np.asarray(programs[x.dtype.name].run(state.trainable, state.non_trainable, x)[0])

    @cached_property
    def _compiled(self) -> tuple[model_state.ModelState, dict[str, Program]]:
        """The variables, and a program for each dtype of an input."""
        return model_state.read(self.model), {}

    def description(self, module: str | None = None, offline: bool = False) -> dict[str, Any]:
        """The description of the model for the page, as JSON; see `page/guesser.js`.

        Args:
            module: address of the model's JavaScript; None where the server has to predict.
            offline: whether the page shall be kept by the browser.
        """
        return {
            "run": self.run.resolve().name,
            "classes": list(self.classes),
            "side": self.drawing.side,
            "lineWidth": self.drawing.line_width,
            "inputSide": self.drawing.input_side,
            "margin": self.drawing.margin,
            "logits": self.logits,
            "module": module,
            "offline": offline,
            "attribution": self.attribution,
        }


def player_of(directory: run_directory.RunDirectory, model: "keras.Model") -> Player:
    """Makes the player of a run whose model has been read.

    Raises:
        ServeError: it does not guess drawings.
    """
    read_image, config = read_image_of(directory), directory.read_config()
    shape = getattr(model, "input_shape", None)
    single = tuple(shape[1:]) if isinstance(shape, tuple) else None
    drawing = drawing_for(str(directory.path), single, read_image)
    outputs = getattr(model, "output_shape", None)
    count = outputs[-1] if isinstance(outputs, tuple) and len(outputs) == 2 else None
    probe = np.eye(count or 1, dtype=np.float32)
    if count is None or count < 2 or (probabilities := as_probabilities(model, probe)) is None:
        raise ServeError(f"The run {directory.path} is not a classifier: give one, such as `digits`.")
    if isinstance(read_image, MissingReadImage):
        raise ServeError(read_image.reason)
    if read_image is None and (others := other_numbers(config.get("input_range"))):
        raise ServeError(
            f"The run {directory.path} learned from {others}, and drawings have pixels of 0 to 255: train it on such, "
            "with `keras.layers.Rescaling(1 / 255)` as the first layer."
        )
    names = config.get("class_names") or []
    classes = tuple(names) if len(names) == count else tuple(str(i) for i in range(count))
    attribution = config.get("attribution") or ""
    logits = bool((probabilities != probe).any())
    return Player(directory.path, model, drawing, read_image, classes, logits, attribution)
