"""Features of an example as a map function gets them, and as the columns of a batch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rudel.data.dataset import aligned_empty
from rudel.data.records.example import Feature, MalformedError, parse_example
from rudel.data.records.layout import Layout, layout_of
from rudel.errors import DataError

Shape = tuple[int, ...]

_FEW = 4
_LAYOUTS = 64


@dataclass(frozen=True)
class Features:
    """Features to read, and their shapes.

    Args:
        shapes: by name; None for as they come. None for all features as they come.
    """

    shapes: Mapping[str, Shape | None] | None = None

    def of(self, content: bytes, name: Callable[[], str]) -> dict[str, Any]:
        """The features of a record for a map function.

        A single value comes as it is (bytes, np.int64, np.float32), several as a list of bytes or an array; with a
        shape, as an array of that, bytes as uint8.

        Args:
            content: of the record.
            name: what to call it in an error.

        Raises:
            DataError: it is no example, has no such feature, or one that does not fit its shape.
        """
        found = self.parsed(content, name)
        if self.shapes is None:
            return {key: _plain(feature) for key, feature in found.items()}
        shaped = self.shapes.items()
        return {
            key: _plain(found[key]) if shape is None else _shaped(found[key], key, shape, name) for key, shape in shaped
        }

    def parsed(self, content: bytes, name: Callable[[], str]) -> dict[str, Feature]:
        """The features of a record as lists.

        Raises:
            DataError: it is no example, or has no such feature.
        """
        try:
            found = parse_example(content, self.shapes)
        except MalformedError as error:
            raise DataError(f"{_upper(name())} is not a tf.train.Example: give files of those.") from error
        for key in self.shapes or ():
            if key not in found:
                there = ", ".join(sorted(parse_example(content))) or "none"
                raise DataError(f"{_upper(name())} has no feature `{key}`; its features are: {there}.")
        return found


@dataclass
class Columns:
    """Examples as columns: what has the same layout is parsed together.

    Args:
        features: what to read.
        rows: shape and dtype of a row of each feature.
    """

    features: Features
    rows: Mapping[str, tuple[Shape, np.dtype]]
    _layouts: dict[int, list[Layout]] = field(default_factory=dict, repr=False)

    def of(self, contents: Sequence[bytes] | np.ndarray, name: Callable[[int], str]) -> dict[str, np.ndarray]:
        """The features of some records.

        Args:
            contents: of the records; as rows, uint8 (n, length), if they have one length.
            name: what to call the record at a place of `contents` in an error.

        Returns:
            By name uint8, int64 or float32 (n, shape of a row), in aligned memory.

        Raises:
            DataError: a record is not like the first.
        """
        rows = contents if isinstance(contents, np.ndarray) else _rows(contents)
        whole = None if rows is None else self._same_layout(rows)
        if whole is not None:
            return whole
        if isinstance(contents, np.ndarray):
            contents = [row.tobytes() for row in contents]
        columns = {key: aligned_empty((len(contents), *shape), dtype) for key, (shape, dtype) in self.rows.items()}
        lengths = np.array([len(content) for content in contents])
        for length in np.unique(lengths):
            self._fill(columns, contents, np.flatnonzero(lengths == length), name)
        return columns

    def _same_layout(self, rows: np.ndarray) -> dict[str, np.ndarray] | None:
        """All columns at once, if all records have one layout."""
        layout = self._layout(rows[0].tobytes()) if len(rows) else None
        return self._columns(layout, rows) if layout is not None and layout.matches(rows).all() else None

    def _fill(
        self, columns: dict[str, np.ndarray], contents: Sequence[bytes], places: np.ndarray, name: Callable[[int], str]
    ) -> None:
        """Writes the records at some places, which have one length, into columns."""
        while len(places) >= _FEW and (layout := self._layout(contents[places[0]])) is not None:
            joined = b"".join([contents[place] for place in places.tolist()])
            rows = np.frombuffer(joined, np.uint8).reshape(len(places), -1)
            matching = layout.matches(rows)
            found = self._columns(layout, rows[matching])
            if found is None:
                break
            for key, column in found.items():
                columns[key][places[matching]] = column
            places = places[~matching]
        for place in places.tolist():
            parsed = self.features.parsed(contents[place], lambda place=place: name(place))
            for key, (shape, dtype) in self.rows.items():
                columns[key][place] = _like_first(parsed, key, shape, dtype, lambda place=place: name(place))

    def _columns(self, layout: Layout, rows: np.ndarray) -> dict[str, np.ndarray] | None:
        """Columns of records that have a layout; None if that is not the one of the first record in all that counts."""
        columns = {}
        for key, (shape, dtype) in self.rows.items():
            if key not in layout.features:
                return None
            column = layout.column(rows, key)
            if column.dtype != dtype or math.prod(column.shape[1:]) != math.prod(shape):
                return None
            columns[key] = column.reshape(len(rows), *shape)
        return columns

    def _layout(self, content: bytes) -> Layout | None:
        """The layout of a record, from memory if there is one of the same length that fits."""
        known = self._layouts.get(len(content), ())
        row = np.frombuffer(content, np.uint8)[None]
        for layout in known:
            if layout.matches(row)[0]:
                return layout
        layout = layout_of(content)
        if layout is not None:
            if len(self._layouts) > _LAYOUTS:
                self._layouts.clear()
            self._layouts[len(content)] = [layout, *known[:3]]
        return layout


def columns_like(features: Features, first: bytes, name: Callable[[], str]) -> Columns:
    """Columns of records that are like this one.

    Raises:
        DataError: it is no example, has no such feature, or one that does not fit its shape or can be no row of an
            array.
    """
    rows = {}
    for key, feature in features.parsed(first, name).items():
        shape = (features.shapes or {}).get(key)
        array = _array(feature)
        if array is None:
            raise DataError(
                f"The feature `{key}` of {name()} holds byte strings of different lengths: "
                "give `features` without it, or a map function (`records.map(...)`)."
            )
        rows[key] = (_shaped(feature, key, shape, name).shape if shape is not None else array.shape, array.dtype)
    return Columns(features, rows)


def _rows(contents: Sequence[bytes]) -> np.ndarray | None:
    """Records of one length as a matrix; None if there are none or they have several lengths."""
    if len(set(map(len, contents))) != 1:
        return None
    return np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), -1) if contents[0] else None


def _like_first(
    parsed: Mapping[str, Feature], key: str, shape: Shape, dtype: np.dtype, name: Callable[[], str]
) -> np.ndarray:
    array = _array(parsed[key]) if key in parsed else None
    if array is None or array.dtype != dtype or array.size != math.prod(shape):
        found = "missing" if key not in parsed else "of different lengths" if array is None else _described(array)
        raise DataError(
            f"The feature `{key}` of {name()} is {found}, "
            f"and that of the first example {_described(np.empty(shape, dtype))}: "
            "give a map function that makes them alike (`records.map(...)`), or `features` without it."
        )
    return array.reshape(shape)


def _described(array: np.ndarray) -> str:
    if array.dtype == np.uint8:
        return f"{array.size:,} bytes"
    return f"{array.size:,} {array.dtype}"


def _plain(feature: Feature) -> Any:
    return feature[0] if len(feature) == 1 else feature


def _array(feature: Feature) -> np.ndarray | None:
    """A feature as a row of an array; None for strings of different lengths."""
    if isinstance(feature, np.ndarray):
        return feature[0:1].reshape(()) if len(feature) == 1 else feature
    if len({len(string) for string in feature}) > 1:
        return None
    strings = np.frombuffer(b"".join(feature), np.uint8)
    return strings if len(feature) < 2 else strings.reshape(len(feature), -1)


def _shaped(feature: Feature, key: str, shape: Shape, name: Callable[[], str]) -> np.ndarray:
    array = feature if isinstance(feature, np.ndarray) else np.frombuffer(b"".join(feature), np.uint8)
    if array.size != math.prod(shape):
        raise DataError(f"The feature `{key}` of {name()} has {_described(array)}, which are not of shape {shape}.")
    return array.reshape(shape)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
