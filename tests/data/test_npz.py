"""Files of arrays, damaged anywhere."""

from pathlib import Path

import numpy as np
import pytest

from rudel.data.npz import read_npz


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


def test_arrays_are_read_by_their_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", x=np.arange(3), y=np.arange(2))
    np.save(tmp_path / "file.npy", np.arange(5))
    assert {name: array.tolist() for name, array in read_npz(tmp_path / "file.npz", ("x", "z")).items()} == {
        "x": [0, 1, 2]
    }
    assert {name: array.tolist() for name, array in read_npz(tmp_path / "file.npy").items()} == {"": [0, 1, 2, 3, 4]}
