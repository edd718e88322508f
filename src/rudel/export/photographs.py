"""Whether a SavedModel can take photographs as files, and how it does with some.

A signature for files is made where `rudel predict` reads them as photographs (`rudel.data.photographs`): the model
classifies, its one input is an image, and it learned from pixels of 0 to 255. A recipe that reads images in a way of
its own, by `read_image`, gets none, since that way is Python.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rudel.data.dataset import Arrays
from rudel.data.photographs import decode
from rudel.data.pictures import sides_of
from rudel.errors import ExportError
from rudel.export.inputs import Inputs
from rudel.export.materials import Materials
from rudel.loop.classification import as_probabilities, of_both, squash_of
from rudel.loop.evaluation import predict

MOST_FILES = 64
_LEAST_AGREEMENT = 0.9


@dataclass(frozen=True)
class Serving:
    """Properties of a signature for image files.

    Attributes:
        height, width, channels: of the images that the model takes.
        classes: what its classes are called.
        squash: what makes probabilities of its outputs.
        pairs: whether it has one output for two classes.
    """

    height: int
    width: int
    channels: int
    classes: list[str]
    squash: Literal["", "softmax", "sigmoid"]
    pairs: bool


@dataclass(frozen=True)
class FromFiles:
    """Agreement of the exported model's answers to files with those of Rudel.

    Attributes:
        files: how many JPEG and PNG files were made of examples, and given to both.
        largest_difference: between two probabilities.
        agreement: share of the files for which both name the same class.
    """

    files: int
    largest_difference: float
    agreement: float


def serving_of(materials: Materials, inputs: Inputs, outputs: Arrays) -> Serving | str:
    """The form in which the model of a run takes photographs, or a sentence that says why it does not.

    Args:
        materials: the run.
        inputs: of its model.
        outputs: its outputs, for any examples.
    """
    probabilities = as_probabilities(materials.model, outputs) if isinstance(outputs, np.ndarray) else None
    sides = sides_of(inputs.leaves[0].shape) if inputs.structure == 0 else None
    pixels = inputs.columns(materials.comparison.x)[0]
    if materials.reads_images_itself:
        return "It takes arrays alone: the recipe makes inputs of pictures in a way of its own, by `read_image`."
    if sides is None or probabilities is None:
        return "It takes arrays alone: it does not classify pictures."
    learned_from = materials.run.read_config().get("input_range")
    if pixels.dtype != np.uint8 and not _are_pixels(learned_from, inputs.leaves[0].shape):
        return f"It takes arrays alone: it learned from {pixels.dtype} numbers, not from pixels of 0 to 255."
    pairs = probabilities.shape[1] == 1
    count = 2 if pairs else probabilities.shape[1]
    names = materials.class_names
    called = names if len(names) == count else [str(i) for i in range(count)]
    return Serving(*sides, called, squash_of(materials.model, probabilities.shape[1]), pairs)


def _are_pixels(learned_from: Sequence[float] | None, shape: tuple[int, ...]) -> bool:
    """Whether floats of this range are surely pixels: rows of temperatures may be 0 to 40, without channels."""
    return len(shape) == 3 and learned_from is not None and learned_from[0] >= 0 and 127 < learned_from[1] <= 255


def write_files(materials: Materials, serving: Serving, folder: Path) -> np.ndarray:
    """Writes some examples as JPEG and PNG files: `0.image`, `1.image` and so on in a folder.

    Returns:
        What Rudel decodes of them, as inputs of the model (N, ...).
    """
    x = np.asarray(materials.comparison.x)[:MOST_FILES].clip(0, 255).astype(np.uint8)
    sides = serving.height, serving.width, serving.channels
    files = [_file(image, number) for number, image in enumerate(x.reshape(-1, *sides))]
    for number, file in enumerate(files):
        (folder / f"{number}.image").write_bytes(file)
    return np.stack([decode(file, *sides) for file in files]).reshape(x.shape)


def compare_answers(materials: Materials, serving: Serving, inputs: np.ndarray, answers: Path) -> FromFiles:
    """Compares what the exported model says of files with what Rudel does.

    Args:
        materials: the run.
        serving: how the exported model takes files.
        inputs: what Rudel decodes of them.
        answers: an `.npz` file with `class`, `class_id` and `probabilities`.

    Raises:
        ExportError: the answers are others.
    """
    probabilities = as_probabilities(materials.model, predict(materials.model, inputs))
    assert probabilities is not None
    probabilities = of_both(probabilities)
    with np.load(answers) as stored:
        found, ids, classes = stored["probabilities"], stored["class_id"], stored["class"]
    same = (ids == probabilities.argmax(1)) & (classes == np.array(serving.classes)[ids])
    if same.mean() < _LEAST_AGREEMENT:
        raise ExportError(
            f"The exported model names another class for {len(same) - same.sum()} of {len(same)} files: "
            "this is a bug in Rudel."
        )
    return FromFiles(len(inputs), float(np.abs(found - probabilities).max()), float(same.mean()))


def _file(pixels: np.ndarray, number: int) -> bytes:
    """An example as it might come from a camera: PNG or JPEG, in various sizes and proportions, turned or not."""
    from PIL import Image

    image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    if number % 4:
        larger = 1 + number % 7
        image = image.resize((larger * image.width + 3, larger * image.height + number % 5))
    exif = Image.Exif()
    exif[0x0112] = 1 + number % 8
    content = io.BytesIO()
    if number % 2:
        image.save(content, "JPEG", quality=90, exif=exif)
    else:
        image.save(content, "PNG", exif=exif)
    return content.getvalue()
