"""The interface of every runtime to the rest of the server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rudel.serve.image_inputs import IMAGES, Decode, Files
from rudel.serve.model_signature import Signature


@dataclass(frozen=True)
class Loaded:
    """A model that answers requests.

    Args:
        signature: what it takes and gives.
        compute: columns of inputs (N, ...), in the dtypes of the signature, to columns of outputs (N, ...).
        platform: what computes it, for clients.
        labels: names of the classes; none where they are not known, or it does not classify.
        decode: makes an input of an encoded file; None where it takes no files.
        files: what these are.
        check: columns of inputs; raises a `Refusal` where the model has no place for a value.
        scores: outputs (N, C) to a score for each class, or None where it does not classify.
    """

    signature: Signature
    compute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    platform: str
    labels: tuple[str, ...] = ()
    decode: Decode | None = None
    files: Files = IMAGES
    check: Callable[[Sequence[np.ndarray]], None] = lambda columns: None
    scores: Callable[[np.ndarray], np.ndarray | None] = lambda outputs: outputs if outputs.ndim == 2 else None


def buckets(most: int) -> list[int]:
    """Sizes of batches for which a program is compiled.

    >>> buckets(64), buckets(6), buckets(1)
    ([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 6], [1])
    """
    sizes = [1]
    while sizes[-1] * 2 < most:
        sizes.append(sizes[-1] * 2)
    return sizes if most == 1 else [*sizes, most]


def padded(columns: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """Columns of the length `size`, filled up with zeros."""
    rows = len(columns[0])
    if rows == size:
        return list(columns)
    made = []
    for column in columns:
        longer = np.zeros((size, *column.shape[1:]), column.dtype)
        longer[:rows] = column
        made.append(longer)
    return made
