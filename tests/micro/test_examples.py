"""Inputs of the user's for `rudel micro check`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudel.errors import CompileError
from rudel.micro.examples import read_examples


def test_arrays_come_in_their_order_without_the_answers(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", second=np.ones(2), y=np.zeros(2), first=np.zeros((2, 3), np.int8))
    np.save(tmp_path / "one.npy", np.arange(4.0))
    assert [array.shape for array in read_examples(tmp_path / "some.npz")] == [(2,), (2, 3)]
    assert [array.tolist() for array in read_examples(tmp_path / "one.npy")] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_what_holds_no_numbers_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, x=np.array(["one", "two"]))
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        CompileError, match=r"some\.npz` (cannot be read as .* or \.npz: |has arrays that are not numbers)"
    ):
        read_examples(path)
    with pytest.raises(CompileError, match=r"none\.npy` cannot be read"):
        read_examples(tmp_path / "none.npy")


@pytest.mark.parametrize("arrays", [{}, {"y": np.zeros(3)}])
def test_a_file_without_inputs_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "some.npz", **arrays)
    with pytest.raises(CompileError, match=r"some\.npz` has no inputs: save one array for each input of the model\."):
        read_examples(tmp_path / "some.npz")
