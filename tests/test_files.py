"""Files that are wholly there or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rudel.files import write_json, written_atomically

_WRITE = """
import os, sys
from pathlib import Path
from rudel.files import write_json
os.umask(int(sys.argv[2], 8))
write_json(Path(sys.argv[1]), {})
"""


@pytest.mark.parametrize(("mask", "mode"), [("022", 0o644), ("077", 0o600), ("002", 0o664), ("0", 0o666)])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path, mask: str, mode: int) -> None:
    file = tmp_path / "file.json"
    subprocess.run([sys.executable, "-c", _WRITE, str(file), mask], check=True)
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_the_umask_of_the_process_is_never_touched(tmp_path: Path) -> None:
    """It belongs to all threads: files that another one creates meanwhile would be writable for everybody."""
    called = []

    def watch(frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            called.append(function)

    sys.setprofile(watch)
    try:
        write_json(tmp_path / "file.json", {})
    finally:
        sys.setprofile(None)
    assert os.fsync in called
    assert os.umask not in called


def test_a_block_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def write() -> None:
        with written_atomically(file) as new:
            new.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"old"


def test_links_laid_in_wait_are_not_followed(tmp_path: Path) -> None:
    """Whatever lies at the final place is replaced, and not written through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    (tmp_path / "file").symlink_to(elsewhere)
    with written_atomically(tmp_path / "file") as new:
        new.write(b"ours")
    assert elsewhere.read_bytes() == b"theirs"
    assert (tmp_path / "file").read_bytes() == b"ours"
