"""Some words to tell apart, among others that are to be passed over, and silence."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rudel.data.file_names import composed
from rudel.data.windows import Windows
from rudel.errors import DataError, OptionError

UNKNOWN, SILENCE = "unknown", "silence"


def chosen(found: Windows, words: Sequence[str], seed: int | Sequence[int] = 0) -> Windows:
    """Keeps words as classes; all others become `unknown`, and windows of `silence` are made.

    Of the others, as many windows as three words have are chosen at random; of silence, as many as one word has are
    made: noise at -90 to -50 dB of full scale. Recordings of a class `silence` belong to it as well.

    Args:
        found: windows of samples, int16 (N, S).
        words: classes to keep, in this order.
        seed: of the choice and the noise.

    Raises:
        DataError: there is no such class.
        OptionError: a word is there twice, or is `unknown` or `silence`.
    """
    words = composed(words)
    for number, word in enumerate(words):
        if word in (UNKNOWN, SILENCE):
            raise OptionError(f"`words` names `{word}`, a class that is added anyway: leave it out.")
        if word in words[:number]:
            raise OptionError(f"`words` names `{word}` twice: leave one of them out.")
    if absent := [word for word in words if word not in found.classes]:
        raise DataError(f"{found.source} has no class `{absent[0]}`: there are {', '.join(found.classes)}.")
    random = np.random.default_rng(seed)
    classes = (*words, UNKNOWN, SILENCE)
    label = {name: number for number, name in enumerate(classes)}
    labels = np.array([label.get(name, len(words)) for name in found.classes], np.int32)[found.labels]
    known = np.flatnonzero(labels < len(words))
    each = max(1, len(known) // len(words))
    others = np.flatnonzero(labels == len(words))
    others = np.sort(random.permutation(others)[: 3 * each])
    level = 2.0**15 * 10 ** (random.uniform(-90, -50, (each, 1)) / 20)
    silence = np.rint(random.normal(size=(each, found.x.shape[1])) * level).astype(np.int16)
    kept = np.zeros(len(found), bool)
    kept[known] = kept[others] = True
    kept[labels > len(words)] = True
    some = replace(found, labels=labels, classes=classes).take(kept)
    return replace(
        some,
        x=np.concatenate([some.x, silence]),
        labels=np.concatenate([some.labels, np.full(each, len(words) + 1, np.int32)]),
        names=[*some.names, *(f"{SILENCE}/{number}" for number in range(each))],
        validation=None,
    )
