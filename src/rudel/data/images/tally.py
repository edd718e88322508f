"""Counts of records by split and class, while they come; whatever wrote them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rudel.data.images.dataset_file import LABELS
from rudel.data.images.record import ENCODED, HEIGHT, LABEL, TEXT, WIDTH
from rudel.data.records.example import Feature, parse_example

_KEPT = 10
"""Images of each class, for a contact sheet."""


class Tally:
    """Counts over the records read so far.

    Args:
        known: names of the classes, if a file has them.
    """

    def __init__(self, known: tuple[str, ...] | None) -> None:
        self._known = known
        self.records: Counter[str] = Counter()
        self.by_class: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.features: list[str] = []
        self._names: dict[str, int] = {}
        self._heights: list[int] = []
        self._widths: list[int] = []
        self._first: dict[str, list[bytes]] = {}
        self._out_of_range: Counter[int] = Counter()
        self._no_example = 0

    def add(self, split: str, content: bytes) -> None:
        """Counts a record of a split."""
        self.records[split] += 1
        try:
            features = parse_example(content)
        except ValueError:
            self._no_example += 1
            return
        self.features = self.features or sorted(features)
        height, width = _number(features.get(HEIGHT)), _number(features.get(WIDTH))
        if height is not None and width is not None:
            self._heights.append(height)
            self._widths.append(width)
        name = self._class_of(features)
        if name is None:
            return
        self.by_class[split][name] += 1
        kept = self._first.setdefault(name, [])
        if len(kept) < _KEPT and (encoded := _text(features.get(ENCODED))):
            kept.append(encoded)

    def _class_of(self, features: Mapping[str, Any]) -> str | None:
        label, text = _number(features.get(LABEL)), _text(features.get(TEXT))
        if self._known and label is not None:
            if 0 <= label < len(self._known):
                return self._known[label]
            self._out_of_range[label] += 1
        if label is None and text is None:
            return None
        name = text.decode("utf-8", "replace") if text is not None else str(label)
        self._names.setdefault(name, label if label is not None else 0)
        return name

    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels."""
        found = sorted(self._names, key=lambda name: (self._names[name], name))
        return (*(self._known or ()), *(name for name in found if name not in (self._known or ())))

    def sizes(self) -> dict[str, tuple[int, int, int]] | None:
        """Smallest, middle and largest height and width in pixels; None where no record tells."""
        if not self._heights:
            return None
        pairs = (("height", self._heights), ("width", self._widths))
        return {name: (min(values), int(np.median(values)), max(values)) for name, values in pairs}

    def first(self) -> dict[str, tuple[bytes, ...]]:
        """By class, the first images, encoded."""
        return {name: tuple(kept) for name, kept in self._first.items() if kept}

    def problems(self) -> Iterator[str]:
        """Faults of records, a sentence each."""
        if self._no_example:
            yield f"{_counted(self._no_example, 'record')} cannot be read as tf.train.Example."
        for label, count in sorted(self._out_of_range.items()):
            there = len(self._known or ())
            classes = f"{there:,} class{'' if there == 1 else 'es'}"
            have = "has" if count == 1 else "have"
            yield f"{_counted(count, 'record')} {have} the label {label}, and {LABELS} names {classes}."


def _number(feature: Feature | None) -> int | None:
    return int(feature[0]) if isinstance(feature, np.ndarray) and feature.dtype.kind == "i" and len(feature) else None


def _text(feature: Feature | None) -> bytes | None:
    return feature[0] if isinstance(feature, list) and feature else None


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
