"""Quick, Draw!: drawings of 345 things, 28 x 28 grey pixels each, fetched as far as they are needed and no further.

The public bucket has one file of uint8 (N, 784) per class, often above 100 MB; only the first drawings of each travel,
about 3 MB for 4,000, and what has travelled once lies verified in the cache. A mirror of the bucket, or a local folder,
serves as well.
"""

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np

from rudel.cache import cache_folder
from rudel.data.npy import PIXELS
from rudel.data.quickdraw_categories import CATEGORIES
from rudel.data.quickdraw_sources import Folder, Mirror, Progress
from rudel.errors import DataError, OptionError
from rudel.files import expanded
from rudel.retry_policy import RetryPolicy

PUBLIC_BUCKET = "https://storage.googleapis.com/quickdraw_dataset"
"""The default source of the drawings."""

ATTRIBUTION = "The Quick, Draw! Dataset, made available by Google, Inc. under CC BY 4.0"
"""The attribution that has to accompany the drawings and models trained on them."""

_LAYOUT = "full/numpy_bitmap"


@dataclass(frozen=True, eq=False)
class Drawings:
    """Drawings of some classes, class after class.

    Args:
        x: pixels, uint8 (N, 28, 28), 0 for paper and 255 for ink.
        y: labels, int32 (N,), the place of the class in the list that was given.
        counts: drawings of each class; fewer than requested where the source has no more.
    """

    x: np.ndarray
    y: np.ndarray
    counts: tuple[int, ...]


def load(
    classes: Sequence[str],
    count: int,
    source: str | Path | None = None,
    progress: Progress | None = None,
    retry: RetryPolicy | None = None,
) -> Drawings:
    """Loads the first drawings of each class.

    Args:
        classes: names of classes, such as "alarm clock"; label 0 is the first.
        count: drawings of each class.
        source: the http or https address of a mirror of the public bucket; or a folder laid out like it, or one that
            holds `<class>.npy` itself. None for the public bucket.
        progress: called with (bytes done, bytes in all) while something is fetched, from one thread at a time; never
            called where all is in the cache or in a local folder.
        retry: how long to wait for a server, and how often to try; None for the usual.

    Raises:
        OptionError: a class, the count or the source cannot be used; nothing was fetched.
        DownloadError: the drawings could not be fetched.
        DataError: a local file, or the cache, cannot be used.
    """
    _check_names(classes)
    if count < 1:
        raise OptionError(f"`count` is {count}, but at least 1 drawing of each class is needed.")
    place = _open(source, classes, progress, retry or RetryPolicy())
    counts = place.prepare(classes, count)
    pixels = np.empty((sum(counts), PIXELS), np.uint8)
    place.read(classes, np.split(pixels, np.cumsum(counts)[:-1]))
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), counts)
    return Drawings(pixels.reshape(-1, 28, 28), labels, tuple(counts))


def _open(
    source: str | Path | None, classes: Sequence[str], progress: Progress | None, retry: RetryPolicy
) -> Folder | Mirror:
    if source is None:
        _check_known(classes)
        source = PUBLIC_BUCKET
    if isinstance(source, str) and "://" in source:
        base = _checked_address(source)
        cache = cache_folder() / "quickdraw" / hashlib.sha256(base.encode()).hexdigest()[:16]
        return Mirror(f"{base}/{_LAYOUT}", cache, retry, progress)
    folder = expanded(source)
    if not folder.is_dir():
        raise DataError(f"There is no folder `{folder}`: give the folder or the address that holds the drawings.")
    return Folder(folder / _LAYOUT if (folder / _LAYOUT).is_dir() else folder)


def _checked_address(source: str) -> str:
    """The address without a slash at its end, safe to be put into a request."""
    try:
        parts = urlsplit(source)
        _ = parts.port
    except ValueError as error:
        raise OptionError(f"`{source}` is not an address that drawings can be fetched from ({error}).") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(
            f"`{source}` is not an address that drawings can be fetched from: give http://, https:// or a folder."
        )
    if parts.query or parts.fragment:
        raise OptionError(
            f"`{source}` has a `?` or `#`, but names of files have to follow it: give the address of a folder."
        )
    return quote(source.rstrip("/"), safe="%/:@[]!$&'()*+,;=~")


def _check_names(classes: Sequence[str]) -> None:
    """Makes sure that the names are names of files, and have distinct labels."""
    if not classes or isinstance(classes, str):
        raise OptionError("No class was asked for: `classes` is a list of names such as `cat`.")
    for at, name in enumerate(classes):
        if not name or name.startswith(".") or any(mark in name for mark in "/\\\0"):
            raise OptionError(f"`{name}` is not a name of a class.")
        if name in classes[:at]:
            raise OptionError(f"The class `{name}` was asked for twice.")


def _check_known(classes: Sequence[str]) -> None:
    small = {name.casefold(): name for name in CATEGORIES}
    for name in classes:
        if name not in CATEGORIES:
            near = difflib.get_close_matches(name.casefold(), small, 1, 0.0)
            raise OptionError(f"Quick, Draw! has no class `{name}`: the nearest of its 345 is `{small[near[0]]}`.")
