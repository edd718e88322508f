"""The examples that the model was surest about, those it got right and those it got wrong, to look at or listen to."""

import base64
import io

import numpy as np

from rudel.report.formatting import percent
from rudel.report.markup import Html, element, join
from rudel.report.predictions import Predictions
from rudel.report.read import Run
from rudel.report.recordings import curves, player, spectrogram

_LONGEST_SIDE = 128
SHARP_BELOW = 65
"""Images with shorter sides, in pixels, are enlarged with their pixels to be seen."""


def gallery(run: Run) -> Html | None:
    """Two rows of examples; either is left out when it has none."""
    predictions = run.predictions
    if predictions is None or predictions.examples_index is None or not len(predictions.examples_index):
        return None
    index = predictions.examples_index
    right = predictions.truth[index] == predictions.predicted[index]
    return join(
        [
            _row(run, predictions, np.flatnonzero(right), "Correct"),
            _row(run, predictions, np.flatnonzero(~right), "Wrong"),
        ]
    )


def data_uri(pixels: np.ndarray) -> str:
    """An image, uint8 (H, W) or (H, W, 1 or 3), as a PNG inside an address; large ones are scaled down."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    if max(image.size) > _LONGEST_SIDE:
        image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _row(run: Run, predictions: Predictions, which: np.ndarray, title: str) -> Html | None:
    if not len(which):
        return None
    wide = predictions.examples_x is not None and predictions.examples_x.dtype != np.uint8
    items = join(_example(run, predictions, i) for i in which.tolist())
    return join([element("h3", title), element("ul", items, class_="gallery recordings" if wide else "gallery")])


def _example(run: Run, predictions: Predictions, i: int) -> Html:
    assert predictions.examples_index is not None
    example = predictions.examples_index[i]
    truth, answer = (run.class_name(int(c[example])) for c in (predictions.truth, predictions.predicted))
    sure = percent(float(predictions.confidence[example]), 0)
    mistaken = truth != answer
    about = f"An example of {truth}, predicted as {answer} with {sure}" if mistaken else f"An example of {truth}"
    return element(
        "li",
        _shown(predictions, i, about),
        element("span", element("b", answer), f" {sure}", class_="caption"),
        element("span", f"is {truth}", class_="truth") if mistaken else None,
    )


def _shown(predictions: Predictions, i: int, about: str) -> Html:
    assert predictions.examples_x is not None
    x = predictions.examples_x[i]
    if predictions.rate is not None:
        rate = int(predictions.rate)
        heard = spectrogram(x, rate)
        return join([_image(heard, about) if heard is not None else None, player(x, rate, about)])
    if x.dtype == np.uint8:
        return _image(x, about)
    return curves(x, predictions.examples_x, about)


def _image(pixels: np.ndarray, about: str) -> Html:
    height, width = pixels.shape[:2]
    small = "sharp" if max(height, width) < SHARP_BELOW else None
    return element("img", src=data_uri(pixels), alt=about, width=width, height=height, class_=small)
