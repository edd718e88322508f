"""Inputs of the user's, from .npy and .npz files."""

from pathlib import Path

import numpy as np

from rudel.data.npz import read_npz
from rudel.errors import CompileError


def read_examples(path: Path) -> list[np.ndarray]:
    """Returns the arrays of a file: the one of an .npy, or those of an .npz in their order, without one named `y`.

    Raises:
        CompileError: the file cannot be read as such, or has no arrays of numbers.
    """
    try:
        arrays = [array for name, array in read_npz(path).items() if name != "y"]
    except (OSError, ValueError) as error:
        raise CompileError(f"`{path}` cannot be read as .npy or .npz: {error}.") from error
    if not arrays:
        raise CompileError(f"`{path}` has no inputs: save one array for each input of the model.")
    if not all(array.dtype.kind in "fiub" for array in arrays):
        raise CompileError(f"`{path}` has arrays that are not numbers.")
    return arrays
