"""The choice of held-out recordings: whole ones, or all of a speaker; never one window of a recording alone."""

import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np

from rudel.data.images.shard_plan import place
from rudel.errors import DataError, OptionError


def held_out(groups: Sequence[str], share: float, names: Sequence[str] = ()) -> np.ndarray:
    """Chooses groups of examples, in the order of a hash of their names, which does not change when others are added.

    Args:
        groups: of each example, the name of what it belongs to.
        share: of all examples, so many are held out, as nearly as whole groups allow; at least one group of several.
        names: of the groups to hold out, in the place of a share.

    Returns:
        bool (N,), true for what is held out.

    Raises:
        OptionError: the share is not from 0 to below 1.
        DataError: there is no such group, or nothing would be left to learn from.
    """
    if not 0 <= share < 1:
        raise OptionError(f"`validation` is a share, from 0 to below 1, not {share:g}.")
    every, counts = np.unique(np.array(groups, dtype=object).astype(str), return_counts=True)
    if unknown := [name for name in names if name not in every]:
        some = ", ".join(every[:5])
        raise DataError(
            f"There is nothing of `{unknown[0]}` to hold out: there are {some}{', ...' * (len(every) > 5)}."
        )
    if names and len(set(names)) == len(every):
        raise DataError("All examples would be held out, and none left for training: hold out fewer.")
    chosen = set(names) or _chosen(every, counts, share)
    return np.array([group in chosen for group in groups])


def _chosen(every: np.ndarray, counts: np.ndarray, share: float) -> set[str]:
    if not share or len(every) < 2:
        return set()
    order = sorted(range(len(every)), key=lambda number: place(every[number]))[:-1]
    middles = np.cumsum(counts[order]) - counts[order] / 2
    return {str(every[number]) for number in order[: max(1, int((middles < share * counts.sum()).sum()))]}


def speaker_of(name: str, label: str) -> str:
    """The speaker of a recording, by the name of its file: the first word after the name of its class.

    >>> speaker_of("7/7_jackson_12.wav", "7"), speaker_of("bed/00176480_nohash_0.wav", "bed")
    ('jackson', '00176480')
    >>> speaker_of("turn left/turn left_anna_0001.wav", "turn left")
    'anna'
    """
    stem = unicodedata.normalize("NFC", PurePosixPath(name).stem)  # as the names of classes
    own = re.sub(rf"^[_\-\s]*{re.escape(label)}(?=[_\-\s])", "", stem)
    words = [word for part in (own, stem) for word in re.split(r"[_\-\s]+", part) if word]
    return words[0] if words else name
