"""Files of arrays, damaged anywhere."""

from pathlib import Path

import numpy as np
import pytest

from rudel.data.arrays_file import read_arrays
from rudel.data.npz import read_npz
from rudel.data.pictures import read_input
from rudel.errors import DataError


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_byte_that_is_wrong_anywhere_is_one_kind_of_error(save: object, tmp_path: Path) -> None:
    path, errors = tmp_path / "file.npz", 0
    assert callable(save)
    save(path, x=np.arange(40.0), y=np.arange(4))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:
            read_npz(path)
        except ValueError as error:
            errors += bool(str(error))
    assert errors > len(whole) / 4
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"\w"):
        read_npz(path)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz")


def test_labels_may_be_names_of_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", x=np.arange(4), y=np.array(["dog", "cow", "cat", "dog"]))
    examples, left_out = read_arrays(tmp_path / "file.npz", ("cat", "dog"), ())
    assert (examples.x.tolist(), examples.y.tolist(), left_out) == ([0, 2, 3], [1, 0, 1], {"cow": 1})


def test_arrays_are_read_by_their_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", x=np.arange(3), y=np.arange(2))
    np.save(tmp_path / "file.npy", np.arange(5))
    assert {name: array.tolist() for name, array in read_npz(tmp_path / "file.npz", ("x", "z")).items()} == {
        "x": [0, 1, 2]
    }
    assert {name: array.tolist() for name, array in read_npz(tmp_path / "file.npy").items()} == {"": [0, 1, 2, 3, 4]}


def test_a_label_for_all_examples_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", x=np.zeros((3, 4)), y=np.int32(3))
    with pytest.raises(DataError, match=r"`y` in .* is a single value: there must be one per example"):
        read_arrays(tmp_path / "file.npz", (), (4,))


def test_several_arrays_under_the_name_of_one_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "file.npy").open("wb") as file:
        np.savez(file, x=np.zeros((3, 4)))
    with pytest.raises(DataError, match=r"file\.npy is an \.npz file, whatever its name says"):
        read_input(tmp_path / "file.npy", (4,))
