"""Files that are wholly there or not at all."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_disk import full_disk

from rudel.errors import RudelError
from rudel.files import expanded, write_json, written_atomically, written_together

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


@pytest.mark.parametrize("folder", ["/", ""])
def test_a_folder_without_a_name_is_not_written(folder: str) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory"), written_atomically(Path(folder)):
        pass


def test_links_laid_in_wait_are_not_followed(tmp_path: Path) -> None:
    """Whatever lies at the final place is replaced, and not written through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    (tmp_path / "file").symlink_to(elsewhere)
    with written_atomically(tmp_path / "file") as new:
        new.write(b"ours")
    assert elsewhere.read_bytes() == b"theirs"
    assert (tmp_path / "file").read_bytes() == b"ours"


def test_pipes_and_devices_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with written_atomically(pipe) as file:
        file.write(b"new")
    assert os.read(reader, 100) == b"new"
    os.close(reader)
    (null := tmp_path / "null").symlink_to(os.devnull)
    write_json(null, {})
    assert pipe.is_fifo()
    assert null.is_char_device()


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_standard_output_may_be_a_file(tmp_path: Path, mode: str) -> None:
    (tmp_path / "file").write_bytes(b"earlier\n")
    code = "from pathlib import Path; from rudel.files import write_json\n"
    code += "print('before'); write_json(Path('/dev/stdout'), {}); print('after')"
    with (tmp_path / "file").open(mode) as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "file").read_bytes().decode() == "earlier\n" * (mode == "ab") + "before\n{}\nafter\n"
    assert Path("/dev/stdout").is_symlink()


def test_files_take_their_places_together_or_not_at_all(tmp_path: Path) -> None:
    first, last, outdated = (tmp_path / name for name in ("first", "last", "outdated"))
    for path in (first, last, outdated):
        path.write_bytes(b"old")

    def write(size: int) -> None:
        with written_together([first, last], replaced=[outdated]) as files:
            files[0].write(b"new")
            files[1].write(bytes(size))  # few enough for the buffer: they are written when the block ends

    with full_disk(1000), pytest.raises(OSError, match="File too large"):
        write(1001)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("first", "last", "outdated"), b"old"
    )
    write(2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"first": b"new", "last": bytes(2)}


def test_json_holds_names_of_files_that_are_not_utf_8(tmp_path: Path) -> None:
    name = os.fsdecode(b"B\xe4ume/\xc3\xa4")
    write_json(tmp_path / "file.json", {name: name})
    assert json.loads((tmp_path / "file.json").read_text(encoding="utf-8")) == {name: name}


def test_a_name_that_begins_with_a_tilde_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, new = tmp_path / "~nobody-here", tmp_path / "~nobody-there"
    file.touch()
    for path in ("~nobody-here", "./~nobody-here", Path("./~nobody-here"), file):
        assert expanded(path) == expanded(expanded(path)) == file
    with pytest.raises(RudelError) as refused:
        expanded(new.name)
    assert str(refused.value).endswith(f"write {new.name} without `~`, or as {new}.")
    assert expanded(new) == expanded(f"./{new.name}") == new


@pytest.mark.parametrize("path", [3, b"run", None])
def test_what_is_not_a_path_is_refused(path: Any) -> None:
    with pytest.raises(RudelError, match=r"A path is a text or a pathlib\.Path, not"):
        expanded(path)
