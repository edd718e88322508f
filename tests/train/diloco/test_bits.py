"""Packed numbers come back, in few bits, and nothing worse than a ValueError comes of rubbish."""

import numpy as np
import pytest

from rudel.train.diloco.bits import Reader, pack, pack_indices, unpack, unpack_indices


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers_come_back(width: int, count: int) -> None:
    values = np.random.default_rng(width).integers(0, 2**width, count).astype(np.uint8)
    packed = pack(values, width)
    assert len(packed) == width * -(-count // 8)
    reader = Reader(packed)
    np.testing.assert_array_equal(unpack(reader, count, width), values)
    reader.end()


@pytest.mark.parametrize("density", [1.0, 0.5, 0.1, 0.01, 0.001])
def test_indices_come_back_in_little_more_than_their_entropy(density: float) -> None:
    size = 200_000
    indices = np.flatnonzero(np.random.default_rng(0).random(size) < density)
    packed = pack_indices(indices)
    found = unpack_indices(Reader(packed), len(indices), size)
    np.testing.assert_array_equal(found, indices)
    rest = 1 - density
    entropy = size * -(density * np.log2(density) + (rest * np.log2(rest) if rest else 0))
    assert 8 * len(packed) < 1.06 * max(entropy, len(indices)) + 400


def test_bits_follow_a_density_that_changes() -> None:
    random = np.random.default_rng(0)
    mask = np.concatenate([random.random(10_000) < 0.5, random.random(190_000) < 0.01])
    indices = np.flatnonzero(mask)
    entropy = 10_000 + 190_000 * 0.0808
    assert 8 * len(pack_indices(indices)) < 1.08 * entropy


@pytest.mark.parametrize(
    "indices", [[], [0], [2**31 - 2], [0, 2**31 - 2], [5, 6, 7], list(range(0, 2**31 - 1, 2**22 + 1))], ids=len
)
def test_extreme_indices_come_back(indices: list[int]) -> None:
    packed = pack_indices(np.array(indices, np.int64))
    reader = Reader(packed)
    found = unpack_indices(reader, len(indices), 2**31 - 1)
    assert found.tolist() == indices
    reader.end()


@pytest.mark.parametrize("length", range(20))
def test_a_message_cut_short_is_refused(length: int) -> None:
    packed = pack_indices(np.arange(0, 200, 7))
    with pytest.raises(ValueError, match=r"^The message (ends early|is damaged): "):
        unpack_indices(Reader(packed[:length]), 29, 200)


def test_other_counts_and_sizes_are_refused() -> None:
    packed = pack_indices(np.arange(0, 200, 7))
    with pytest.raises(ValueError, match="it holds 29 indices in place of 28"):
        unpack_indices(Reader(packed), 28, 200)
    with pytest.raises(ValueError, match=r"in place of 30\.$"):
        unpack_indices(Reader(packed), 30, 200)
    with pytest.raises(ValueError, match="it holds an index beyond an array of 196"):
        unpack_indices(Reader(packed), 29, 196)


def test_rubbish_gives_valid_indices_or_a_value_error() -> None:
    random = np.random.default_rng(0)
    packed = pack_indices(np.flatnonzero(random.random(5000) < 0.1))
    refused = 0
    for _ in range(2000):
        damaged = np.frombuffer(packed, np.uint8).copy()
        damaged[random.integers(0, len(damaged), 3)] = random.integers(0, 256, 3)
        try:
            found = unpack_indices(Reader(damaged.tobytes()), 500, 5000)
        except ValueError:
            refused += 1
        else:
            assert len(found) == 500
            assert found[0] >= 0
            assert found[-1] < 5000
            assert np.all(np.diff(found) > 0)
    assert refused > 1000
    for length in range(200):
        with pytest.raises(ValueError, match="message"):
            unpack_indices(Reader(random.bytes(length)), 10**9, 2**31 - 1)


def test_what_follows_the_end_is_refused() -> None:
    reader = Reader(b"abc")
    reader.take(2)
    with pytest.raises(ValueError, match="goes on after its end, by 1 bytes"):
        reader.end()
