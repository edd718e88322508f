"""Examples as they travel to hosts."""

from pathlib import Path

import keras
import numpy as np
import pytest
from training.conftest import Listed

from rudel.data.dataset import Examples
from rudel.replicas.example_source import Source
from rudel.shipping import pieces


@pytest.mark.parametrize("kind", [Examples, Listed])
def test_numbers_of_64_bits_travel_in_the_32_that_jax_computes_in(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(40)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    source = Source(kind(x, y), False, model)
    assert source.leaves == [((3,), "float32"), ((), "int32")]
    found = []
    for piece in source.pieces(1):
        pieces.keep(piece.name, piece.content())
        found.append(pieces.read(piece.name))
    for expected, rows in zip((x.astype("float32"), y.astype("int32")), zip(*found, strict=True), strict=True):
        assert {part.dtype for part in rows} == {expected.dtype}
        np.testing.assert_array_equal(np.concatenate(rows), expected)
