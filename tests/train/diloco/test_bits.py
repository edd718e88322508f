"""Packed numbers come back, in few bits, and what does not fit is a ValueError."""

import numpy as np
import pytest

from rudel.train.diloco.bits import Reader, pack, unpack


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers_come_back(width: int, count: int) -> None:
    values = np.random.default_rng(width).integers(0, 2**width, count).astype(np.uint8)
    packed = pack(values, width)
    assert len(packed) == (count if width == 8 else width * -(-count // 8))
    reader = Reader(packed)
    np.testing.assert_array_equal(unpack(reader, count, width), values)
    reader.end()


def test_what_follows_the_end_is_refused() -> None:
    reader = Reader(b"abc")
    reader.take(2)
    with pytest.raises(ValueError, match="goes on after its end, by 1 bytes"):
        reader.end()
