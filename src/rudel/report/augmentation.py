"""Examples of a run's augmentation: some of its training images, each with changed versions.

`augmentation.npz` holds two arrays: `originals`, uint8 (M, H, W) or (M, H, W, 1 or 3), and `changed`, (K, M, ...), K
versions of each.
"""

from pathlib import Path

import numpy as np

from rudel.aliases import Tree
from rudel.data.dataset import Dataset
from rudel.data.npz import read_npz
from rudel.errors import RunError
from rudel.files import written_atomically
from rudel.report.gallery import SHARP_BELOW, data_uri
from rudel.report.markup import Html, element, join
from rudel.report.predictions import as_images, image_like
from rudel.report.read import Run

FILE = "augmentation.npz"

_EXAMPLES, _VERSIONS = 6, 3


def save(path: Path, dataset: Dataset) -> None:
    """Writes what the augmentation of a dataset makes of some training examples, if it has one and they are images.

    Args:
        path: the file; in a run directory, `augmentation.npz`.
        dataset: what was trained on. Its examples are taken from all over it; uint8 images are kept as they are,
            others are scaled so that the least and the greatest value of all become 0 and 255.

    Raises:
        DataError: an example cannot be read.
        OSError: the file cannot be written.
    """
    if dataset.augment is None:
        return
    import jax

    count = min(_EXAMPLES, len(dataset.train))
    x: Tree = dataset.train.take(np.linspace(0, len(dataset.train) - 1, count).round().astype(int)).x
    if not image_like(getattr(x, "shape", ())):
        return
    augment = jax.jit(dataset.augment)
    changed = np.stack([np.asarray(augment(jax.random.key(i), x), np.float32) for i in range(_VERSIONS)])
    if not image_like(changed.shape[1:]):
        return
    if x.dtype == np.uint8:
        originals, changed = x, np.rint(changed.clip(0, 255)).astype(np.uint8)
    else:
        flat = as_images(np.concatenate([np.asarray(x, np.float32).ravel(), changed.ravel()]))
        originals, changed = flat[: x.size].reshape(x.shape), flat[x.size :].reshape(changed.shape)
    with written_atomically(path) as file:
        np.savez_compressed(file, originals=originals, changed=changed)


def augmentation(run: Run) -> Html | None:
    """A column of images for each example: as it is, and changed; nothing where a run has none."""
    loaded = _load(run.path / FILE)
    if loaded is None:
        return None
    originals, changed = loaded
    columns = [
        element(
            "li",
            _image(original, "A training example"),
            join(_image(version[i], "The same example, augmented") for version in changed),
        )
        for i, original in enumerate(originals)
    ]
    text = "Top: training examples. Below: randomly augmented versions, which the model sees in training."
    return join([element("p", text), element("ul", join(columns), class_="gallery changes")])


def _image(image: np.ndarray, alt: str) -> Html:
    height, width = image.shape[:2]
    sharp = "sharp" if max(height, width) < SHARP_BELOW else None
    return element("img", src=data_uri(image), alt=alt, width=width, height=height, class_=sharp)


def _load(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    if not path.is_file():
        return None
    damaged = f"`{path}` does not hold images, or is damaged: delete it or train again."
    try:
        arrays = read_npz(path)
        originals, changed = arrays["originals"], arrays["changed"]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(damaged) from error
    fits = originals.dtype == changed.dtype == np.uint8 and changed.ndim == originals.ndim + 1
    if not fits or not image_like(originals.shape) or changed.shape[1] != len(originals):
        raise RunError(damaged)
    return originals, changed
