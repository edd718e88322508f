"""Checkpoints are whole or absent, and hold what they were given."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import ml_dtypes
import numpy as np
import pytest

from rudel.errors import CheckpointError
from rudel.runs import checkpoint
from rudel.runs.checkpoint import Checkpoint


def made(step: int, size: int = 4) -> Checkpoint:
    arrays = {
        "trainable/0": np.arange(size, dtype=np.float32),
        "trainable/1": np.arange(3).astype(ml_dtypes.bfloat16),
        "non_trainable/0": np.array([1, 2], np.uint32),
        "optimizer/0": np.array(7),
    }
    return Checkpoint(step, arrays, {"records": [{"loss": 0.5}], "stopped": False})


def test_gives_back_what_it_was_given(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(12))
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert (found.step, found.document) == (12, made(12).document)
    for name, array in made(12).arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tobytes() == array.tobytes()


def test_keeps_the_newest_two(tmp_path: Path) -> None:
    for step in (5, 50, 500):
        checkpoint.save(tmp_path, made(step))
    assert [p.name for p in sorted((tmp_path / "checkpoints").iterdir())] == [
        "step-0000000050.npz",
        "step-0000000500.npz",
    ]


@pytest.mark.parametrize("damage", ["cut", "flip", "method", "encrypted", "empty", "rubbish"])
def test_passes_over_a_damaged_one_and_removes_it(tmp_path: Path, damage: str) -> None:
    checkpoint.save(tmp_path, made(1))
    path = checkpoint.save(tmp_path, made(2, size=1000))
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    place = {"flip": 1000, "method": directory + 10, "encrypted": directory + 8}.get(damage)
    if place is not None:
        content[place] ^= 1
    path.write_bytes({"cut": content[:-40], "empty": b"", "rubbish": b"rubbish"}.get(damage, content))
    with pytest.warns(UserWarning, match=r"step-0000000002.npz is damaged; continuing from step 1"):
        found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert not path.exists()


def test_one_that_the_system_refuses_to_open_is_not_taken_for_damaged(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(1))
    refused = checkpoint.path_of(tmp_path, 2)
    refused.mkdir()
    with pytest.raises(CheckpointError, match=r"step-0000000002\.npz cannot be read \(.*Is a directory"):
        checkpoint.newest(tmp_path)
    assert refused.exists()


def test_damage_to_all_is_not_taken_for_a_new_run(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(1)).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be read"):
        checkpoint.newest(tmp_path)


def test_there_is_none_in_an_empty_run(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None


@pytest.fixture
def small_disk(tmp_path: Path, lacking: Callable[[str], NoReturn]):
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        lacking("mounting a small disk needs root: sudo env PATH=$PATH python -m pytest tests/training/runs")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_told_and_harms_nothing(small_disk: Path) -> None:
    checkpoint.save(small_disk, made(1))
    with pytest.raises(CheckpointError, match=r"No space left on device.*older checkpoints are unharmed"):
        checkpoint.save(small_disk, made(2, size=100_000))
    assert [p.name for p in (small_disk / "checkpoints").iterdir()] == ["step-0000000001.npz"]
    found = checkpoint.newest(small_disk)
    assert found is not None
    assert found.step == 1


def test_a_folder_that_cannot_be_written_is_told(small_disk: Path) -> None:
    checkpoint.save(small_disk, made(1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CheckpointError, match="Read-only file system"):
        checkpoint.save(small_disk, made(2))
    assert checkpoint.newest(small_disk) is not None
