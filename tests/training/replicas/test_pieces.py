"""A host keeps pieces by their content, notices damage, and makes room."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from rudel.shipping import pieces


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    return tmp_path / "pieces"


def rows(number: int = 0, size: int = 1000) -> list[np.ndarray]:
    random = np.random.default_rng(number)
    return [random.integers(0, 256, (size, 4)).astype("uint8"), np.arange(size, dtype=np.int32)]


def kept(number: int = 0) -> str:
    name, content = pieces.encode(rows(number))
    pieces.keep(name, content)
    return name


def test_comes_back_as_it_went_in() -> None:
    name = kept()
    found = pieces.read(name)
    for a, b in zip(found, rows(), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


def test_the_same_rows_have_the_same_name_and_others_another() -> None:
    assert pieces.encode(rows(1))[0] == pieces.encode(rows(1))[0] != pieces.encode(rows(2))[0]


def test_only_what_is_not_there_is_missing() -> None:
    there = kept(1)
    other = pieces.encode(rows(2))[0]
    assert pieces.missing([there, other]) == [other]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_damage_is_noticed_and_the_piece_is_missing_then(cache: Path, damage: str) -> None:
    name = kept()
    content = bytearray((cache / name).read_bytes())
    content[len(content) // 2] ^= 1
    (cache / name).write_bytes({"cut": content[:-1], "empty": b""}.get(damage, content))
    with pytest.raises(ValueError, match="damaged"):
        pieces.read(name)
    assert pieces.missing([name]) == [name]
    pieces.keep(*pieces.encode(rows()))
    assert np.array_equal(pieces.read(name)[0], rows()[0])


def test_what_was_damaged_on_its_way_is_not_kept() -> None:
    name, content = pieces.encode(rows())
    with pytest.raises(ValueError, match="damaged"):
        pieces.keep(name, content[:-1])
    assert pieces.missing([name]) == [name]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    for use in (pieces.read, lambda name: pieces.missing([name]), lambda name: pieces.keep(name, b"")):
        with pytest.raises(ValueError, match=r"name|damaged"):
            use(name)


def test_those_that_were_not_used_for_longest_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [kept(number) for number in range(4)]
    for age, name in enumerate(reversed(names)):
        os.utime(cache / name, (1e9 - age, 1e9 - age))
    pieces.read(names[0])  # used just now
    size = (cache / names[0]).stat().st_size
    monkeypatch.setattr(pieces, "LARGEST_CACHE", 3.5 * size)
    new = kept(9)
    assert pieces.missing([*names, new]) == [names[1], names[2]]


def test_pieces_that_are_there_do_not_make_room_for_those_that_are_missing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, other = kept(1), kept(2)
    for age, name in enumerate((other, there)):
        os.utime(cache / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(pieces, "LARGEST_CACHE", 2.5 * (cache / there).stat().st_size)
    new = pieces.encode(rows(3))[0]
    assert pieces.missing([there, new]) == [new]
    kept(3)
    assert pieces.missing([there, new, other]) == [other]


def _keep_many(folder: str, numbers: range, limit: float) -> None:
    os.environ["RUDEL_CACHE"] = folder
    pieces.LARGEST_CACHE = int(limit)  # type: ignore[misc]
    for number in numbers:
        pieces.keep(*pieces.encode(rows(number)))


def test_workers_on_one_host_share_a_cache_that_is_full(tmp_path: Path) -> None:
    limit = 3 * len(pieces.encode(rows())[1])
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_keep_many, args=(str(tmp_path), range(first, first + 150), limit))
        for first in (0, 1000)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
