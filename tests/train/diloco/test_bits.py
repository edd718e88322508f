"""Packed numbers and elements come back, in few bits, and nothing worse than a ValueError comes of rubbish."""

import numpy as np
import pytest

from rudel.train.diloco.bits import Reader, pack, pack_elements, unpack, unpack_elements


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers_come_back(width: int, count: int) -> None:
    values = np.random.default_rng(width).integers(0, 2**width, count).astype(np.uint8)
    packed = pack(values, width)
    assert len(packed) == (count if width == 8 else width * -(-count // 8))
    reader = Reader(packed)
    np.testing.assert_array_equal(unpack(reader, count, width), values)
    reader.end()


@pytest.mark.parametrize("width", range(1, 5))
@pytest.mark.parametrize("density", [1.0, 0.5, 0.1, 0.01, 0.001])
def test_elements_come_back_in_a_byte_each_where_they_are_dense(density: float, width: int) -> None:
    random, size = np.random.default_rng(width), 200_000
    indices = np.flatnonzero(random.random(size) < density)
    codes = random.integers(0, 2**width, len(indices)).astype(np.uint8)
    packed = pack_elements(indices, codes, width)
    reader = Reader(packed)
    found, read = unpack_elements(reader, size, width)
    reader.end()
    np.testing.assert_array_equal(found, indices)
    np.testing.assert_array_equal(read, codes)
    assert len(packed) <= 4 + len(indices) + size // (2 ** (8 - width) - 1)


@pytest.mark.parametrize(
    "indices", [[], [0], [2**31 - 2], [62, 63, 64, 128, 300], [5, 6, 7], list(range(0, 2**31 - 1, 2**27 + 1))], ids=len
)
def test_extreme_indices_come_back(indices: list[int]) -> None:
    packed = pack_elements(np.array(indices, np.int64), np.ones(len(indices), np.uint8), 1)
    reader = Reader(packed)
    found, codes = unpack_elements(reader, 2**31 - 1, 1)
    assert found.tolist() == indices
    assert codes.tolist() == [1] * len(indices)
    reader.end()


@pytest.mark.parametrize("length", range(20))
def test_a_message_cut_short_is_refused(length: int) -> None:
    packed = pack_elements(np.arange(0, 200, 7), np.zeros(29, np.uint8), 2)
    with pytest.raises(ValueError, match=r"^The message ends early: "):
        unpack_elements(Reader(packed[:length]), 200, 2)


def test_an_index_beyond_the_vector_is_refused() -> None:
    packed = pack_elements(np.arange(0, 200, 7), np.zeros(29, np.uint8), 2)
    assert unpack_elements(Reader(packed), 197, 2)[0][-1] == 196
    with pytest.raises(ValueError, match="it holds an index beyond an array of 196"):
        unpack_elements(Reader(packed), 196, 2)


def test_rubbish_gives_valid_indices_or_a_value_error() -> None:
    random = np.random.default_rng(0)
    refused = 0
    for length in range(2000):
        rubbish = length.to_bytes(4, "little") + random.bytes(length)
        try:
            found, codes = unpack_elements(Reader(rubbish), 20_000, 2)
        except ValueError:
            refused += 1
        else:
            assert len(found) == len(codes) <= length
            assert np.all(np.diff(found, prepend=-1) > 0)
            assert np.all(found < 20_000)
            assert np.all(codes < 4)
    assert 1000 < refused < 1999
    for length in range(200):
        with pytest.raises(ValueError, match="message"):
            unpack_elements(Reader(b"\xff\xff\xff\x7f" + random.bytes(length)), 2**31 - 1, 2)


def test_what_follows_the_end_is_refused() -> None:
    reader = Reader(b"abc")
    reader.take(2)
    with pytest.raises(ValueError, match="goes on after its end, by 1 bytes"):
        reader.end()
