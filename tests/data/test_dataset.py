"""Examples in memory."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pandas
import polars
import pytest

import rudel
from rudel.data.dataset import as_numbers
from rudel.errors import DataError

ORDER = np.array([3, 0, 2, 1])


@pytest.mark.parametrize(
    ("frame", "series"),
    [
        (lambda x: pandas.DataFrame(x, index=ORDER), lambda y: pandas.Series(y, index=ORDER)),
        (lambda x: pandas.DataFrame(x, index=[*"abcd"]), lambda y: pandas.Series(y, index=ORDER + 0.5)),
        (polars.DataFrame, polars.Series),
    ],
)
def test_rows_of_frames_are_taken_by_their_positions(frame: Callable[..., Any], series: Callable[..., Any]) -> None:
    x, y = np.arange(8.0).reshape(4, 2), np.array([*"wxyz"])
    plain = rudel.Examples({"a": x, "b": [y]}, y, x[:, 0])
    framed = rudel.Examples({"a": frame(x), "b": [series(y)]}, series(y), series(x[:, 0]))
    for rows in (np.array([2, 0]), np.array([True, False, False, True]), slice(1, 3)):
        for (name, ours), (_, theirs) in zip(
            framed.take(rows).named_arrays(), plain.take(rows).named_arrays(), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs, name)
    for ours, theirs in zip(rudel.split(framed, 0.25), rudel.split(plain, 0.25), strict=True):
        np.testing.assert_array_equal(ours.y, theirs.y)


def test_a_tuple_of_arrays_is_not_split() -> None:
    arrays: Any = (np.zeros((9, 2)), np.zeros(9))
    with pytest.raises(DataError, match=r"not a tuple: give arrays as rudel\.Examples\(x, y\)"):
        rudel.split(arrays, 0.5)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["Int64", "boolean"], "int64"),
        (["UInt8", "uint8[pyarrow]"], "uint8"),
        (["Float32", "float32[pyarrow]"], "float32"),
        (["int16", "bool"], "int16"),
        (["Int64", "Float32"], "float64"),
    ],
)
def test_frames_of_numbers_of_any_dtypes_are_numbers(dtypes: list[str], expected: str) -> None:
    rows = np.array([[3, 0], [1, 1], [2, 1]])
    frame = pandas.DataFrame(rows, index=ORDER[:3]).astype(dict(enumerate(dtypes))).set_axis(["same", "same"], axis=1)
    x = rudel.Examples(frame).x
    assert x.dtype == expected
    np.testing.assert_array_equal(x, rows)
    np.testing.assert_array_equal(as_numbers(frame, "A source gives"), rows)
    gap = frame.astype("object")
    gap.iloc[1] = None
    with pytest.raises(DataError, match=r"^A source gives object values in the column `same`: give numbers"):
        as_numbers(gap, "A source gives")
    with pytest.raises(DataError, match=r"^A source gives object values in the column `b`: give numbers"):
        as_numbers(pandas.DataFrame({"a": [1.5], "b": ["x"]}), "A source gives")


@pytest.mark.parametrize("dtype", ["U", "S", "object"])
def test_text_is_refused_with_the_layers_that_make_numbers_of_it(dtype: str) -> None:
    with pytest.raises(DataError, match=r"as integers from 0\. Keras' StringLookup or TextVectorization, called on"):
        as_numbers(np.array([["a b"], ["b c"]], dtype), "A source gives")


def test_dtypes_of_few_bits_are_numbers_and_structures_are_not() -> None:
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        assert as_numbers(np.zeros(2, dtype), "A source gives").dtype == dtype
    for array, kind in ((np.zeros(2, [("a", "f4")]), "structured"), (np.zeros(2, "V4"), r"\|V4")):
        with pytest.raises(DataError, match=f"^A source gives {kind} values: give numbers"):
            as_numbers(array, "A source gives")


def test_masked_values_are_refused() -> None:
    plain = np.arange(4.0)
    for x, y, name in (
        (np.ma.masked_greater(plain, 2), None, "x"),
        ({"a": plain}, [np.ma.masked_equal(plain, 0)], r"y\[0\]"),
    ):
        with pytest.raises(
            DataError, match=rf"^`{name}` holds masked values, which would count like others: give `fil"
        ):
            rudel.Examples(x, y)
    assert len(rudel.Examples(np.ma.masked_greater(plain, 9))) == 4


def test_arrays_stay_where_they_are(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(4.0))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert rudel.Examples(x).x is x
