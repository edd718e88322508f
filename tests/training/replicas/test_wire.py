"""Arrays travel bit by bit, and what is no message of arrays is refused."""

import json
import random

import ml_dtypes
import numpy as np
import pytest

from rudel.shipping import array_bytes

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    "array",
    [
        RANDOM.normal(size=(3, 1, 5)).astype("float32"),
        np.array(-0.0, np.float64),
        np.array([np.nan, np.inf, -np.inf, 1e-45], np.float32),
        np.array([1, -2, 3.5]).astype(ml_dtypes.bfloat16),
        np.array([1, -2, 3.5]).astype(ml_dtypes.float8_e4m3fn),
        np.array([[True], [False]]),
        np.array([2**63, 2**64 - 1], np.uint64),
        np.empty((0, 4), np.int8),
        np.zeros((1000, 1000), np.float32),
        RANDOM.integers(0, 256, (6, 4)).astype("uint8")[::2].T,
        np.arange(4, dtype=">i4"),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_comes_out_as_it_went_in(array: np.ndarray) -> None:
    before, found, after = array_bytes.unpack(array_bytes.pack([np.array(7), array, np.array([8.0])]))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert (before, after) == (7, 8.0)
    assert found.flags.writeable


def test_no_arrays_are_a_message_too() -> None:
    assert array_bytes.unpack(array_bytes.pack([])) == []


def test_zeros_take_no_room() -> None:
    assert len(array_bytes.pack([np.zeros((1000, 1000), np.float32)])) < 100


@pytest.mark.parametrize("count", [1, 1000])
def test_objects_are_refused(count: int) -> None:
    with pytest.raises(TypeError):
        array_bytes.pack([np.array([None] * count)])


def test_what_is_cut_anywhere_is_refused() -> None:
    message = array_bytes.pack([np.arange(5, dtype=np.float32), np.ones((2, 2), np.int16)])
    for length in range(len(message)):
        with pytest.raises(ValueError, match="message of arrays"):
            array_bytes.unpack(message[:length])
    with pytest.raises(ValueError, match="message of arrays"):
        array_bytes.unpack(message + b"\0")


@pytest.mark.parametrize(
    "header",
    [
        5, None, [5], [[]], [["float32", [2]]], [["float32", [-1], False]], [["float32", [-1], True]], [["O", [1],
        False]],
        [["O", [1], True]], [["no such type", [1], False]], [["finfo", [1], False]], [[3, [1], False]],
        [["float32", ["1"], False]], [["float32", [1.5], True]], [["float32", [10**30], True]],
        [["float32", [10**30], False]], [["float32", [10**13], True]], [["float32", 3, False]],
    ],
    ids=str,
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_refused(header: object) -> None:
    text = json.dumps(header).encode()
    with pytest.raises(ValueError, match="message of arrays"):
        array_bytes.unpack(len(text).to_bytes(4, "little") + text + bytes(8))


def test_rubbish_is_refused_or_read_but_never_anything_else() -> None:
    chance = random.Random(1)
    message = array_bytes.pack([np.arange(50, dtype=np.float32), np.ones(3, np.uint8)])
    for _ in range(3000):
        damaged = bytearray(message)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            arrays = array_bytes.unpack(bytes(damaged))
        except ValueError:
            continue
        assert all(isinstance(array, np.ndarray) for array in arrays)
