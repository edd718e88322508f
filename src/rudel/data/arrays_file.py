"""Examples in an `.npz` file: `x`, `y`, and optionally `names` of the classes that the labels mean."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.data.dataset import Examples
from rudel.data.npz import read_npz
from rudel.errors import DataError


def read_arrays(path: Path, class_names: Sequence[str], shape: tuple[int, ...]) -> tuple[Examples, dict[str, int]]:
    """Reads examples and gives them the labels of a model.

    Args:
        path: an `.npz` file with `x` (N, ...), `y` (N,) and optionally `names` (C,): label i in `y` means names[i].
        class_names: what the model's labels mean. Where the file has `names`, or `y` holds names itself, labels are
            matched by name, and rows of classes that the model does not know are left out; else labels are taken as
            they are.
        shape: of one input of the model; rows of `x` with as many values are reshaped to it.

    Returns:
        The examples, and how many rows of which unknown class were left out.

    Raises:
        DataError: the file cannot be read, an array is missing or does not fit, or no row is left.
    """
    try:
        arrays = read_npz(path, ("x", "y", "names"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an .npz file: {error}.") from error
    for name in ("x", "y"):
        if name not in arrays:
            raise DataError(f"{path} has no array `{name}`: save it by np.savez(file, x=..., y=..., names=...).")
    x, y = _reshaped(arrays["x"], shape, path), arrays["y"]
    if not y.ndim:
        raise DataError(f"`y` in {path} is a single value: there must be one per example.")
    if len(x) != len(y):
        raise DataError(
            f"{path} has {len(x):,} rows of `x` and {len(y):,} of `y`: there must be one of each per example."
        )
    names = arrays.get("names")
    if names is None and y.dtype.kind == "U" and class_names:
        names, y = np.unique(y, return_inverse=True)
    if names is None:
        return Examples(x, y), {}
    return _matched(x, y, [str(name) for name in names.ravel()], class_names, path)


def _reshaped(x: np.ndarray, shape: tuple[int, ...], path: Path) -> np.ndarray:
    if all(isinstance(n, int) for n in shape) and x.ndim and x[:1].size == np.prod(shape) and len(x):
        return x.reshape(len(x), *shape)
    raise DataError(f"`x` in {path} has shape {x.shape}, and the model takes inputs of shape {shape}.")


def _matched(
    x: np.ndarray, y: np.ndarray, names: Sequence[str], class_names: Sequence[str], path: Path
) -> tuple[Examples, dict[str, int]]:
    if y.ndim != 1 or y.dtype.kind not in "iu" or (y < 0).any() or (y >= len(names)).any():
        raise DataError(
            f"`y` in {path} must be whole numbers (N,) from 0 to {len(names) - 1}, one for each of `names`."
        )
    known = {name: label for label, name in enumerate(class_names)}
    labels = np.array([known.get(name, -1) for name in names], np.int32)[y]
    left_out = {name: int((y == i).sum()) for i, name in enumerate(names) if name not in known and (y == i).any()}
    keep = labels >= 0
    if not keep.any():
        raise DataError(f"{path} has no example of a class that the model knows: {', '.join(class_names)}.")
    return Examples(x[keep], labels[keep]), left_out
