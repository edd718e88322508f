"""`rudel cache`: what Rudel keeps is listed and removed, and nothing else."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rudel.data.images.image_sets import find_photographs
from rudel.data.images.images_dataset import Images


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that also holds files of others, some under names that Rudel uses as well."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("RUDEL_CACHE", str(cache))
    for name in ("photographs/holiday/beach.jpg", "play/hamlet.txt", "records/abbey road.flac", "letter.txt"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("theirs")
    for name in ("jax/jit_run-0123-cache", f"play/{'ab' * 16}/model.js", f"records/{'0' * 32}.npz"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(bytes(1000))
    return cache


def photographs(folder: Path) -> Path:
    random = np.random.default_rng(0)
    for kind in ("ant", "bee"):
        (folder / kind).mkdir(parents=True)
        for number in range(5):
            pixels = random.integers(0, 255, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{number}.png")
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


THEIRS = {"photographs/holiday/beach.jpg", "play/hamlet.txt", "records/abbey road.flac", "letter.txt"}


def test_what_is_kept_is_listed(rudel: Callable[..., Any], cache: Path, tmp_path: Path) -> None:
    source = photographs(tmp_path / "photographs")
    kept = Path(find_photographs(str(source)).folder)
    listed = json.loads(rudel("cache", "list", "--json").out)
    sizes = {one["name"]: one["bytes"] for one in listed["kept"]}
    of_photographs = sum(path.stat().st_size for path in kept.iterdir())
    assert sizes == {f"photographs/{kept.name}": of_photographs, "jax": 1000, "play": 1000, "records": 1000}
    assert (listed["path"], listed["bytes"]) == (str(cache), of_photographs + 3000)
    assert listed["kept"][0]["what"] == f"photographs of {source}"
    output = rudel("cache", "list").out
    assert f"photographs/{kept.name}" in output
    assert output.splitlines()[-1].endswith(f"in {cache}")


def test_what_is_of_no_more_use_is_removed(rudel: Callable[..., Any], cache: Path, tmp_path: Path) -> None:
    here, gone = (photographs(tmp_path / name) for name in ("here", "gone"))
    kept, useless = (Path(find_photographs(str(source)).folder) for source in (here, gone))
    earlier = cache / "records" / "0123456789abcdef"
    shutil.copytree(kept, earlier)
    before = files(cache)
    shutil.rmtree(gone)
    done = rudel("cache", "prune")
    assert done.code == 0
    assert sorted(line.split(":")[0] for line in done.out.splitlines()[:-1]) == [
        f"removed photographs/{useless.name}",
        "removed records/0123456789abcdef",
    ]
    assert not useless.exists()
    assert not earlier.exists()
    removed = (f"photographs/{useless.name}/", "records/0123456789abcdef/")
    assert files(cache) == {name for name in before if not name.startswith(removed)}
    assert rudel("cache", "prune").out.startswith("nothing to remove; ")


def test_records_that_users_have_made_are_not_of_the_cache(
    rudel: Callable[..., Any], cache: Path, tmp_path: Path
) -> None:
    """As where the cache is a folder that has others of the same names."""
    source = photographs(tmp_path / "photographs")
    for name in ("records/mine", "photographs/mine"):
        assert rudel("data", "images", str(source), "--out", str(cache / name)).code == 0
    shutil.rmtree(source)
    before = files(cache)
    assert rudel("cache", "prune").out.startswith("nothing to remove; ")
    assert "names what there is" in rudel("cache", "prune", "records/mine").error
    assert files(cache) == before


def test_what_is_named_is_removed(rudel: Callable[..., Any], cache: Path, tmp_path: Path) -> None:
    kept = Path(find_photographs(str(photographs(tmp_path / "photographs"))).folder)
    names = ["jax", "play", "records", f"photographs/{kept.name}"]
    assert rudel("cache", "prune", *names).code == 0
    assert files(cache) == THEIRS
    assert json.loads(rudel("cache", "list", "--json").out)["bytes"] == 0
    for name in ("photographs/holiday", "letter.txt", "..", "/"):
        assert "`rudel cache list` names what there is" in rudel("cache", "prune", name).error
    assert files(cache) == THEIRS


def test_tables_of_frames_are_listed_and_removed(rudel: Callable[..., Any], cache: Path, tmp_path: Path) -> None:
    paths = sorted(map(str, photographs(tmp_path / "photographs").rglob("*.png")))
    Images({"path": paths, "label": [path.split("/")[-2] for path in paths]}, 32)
    (cache / "tables" / "mine.csv").write_text("theirs")
    (table,) = {path for path in (cache / "tables").iterdir() if path.name != "mine.csv"}
    sizes = {one["name"]: one["bytes"] for one in json.loads(rudel("cache", "list", "--json").out)["kept"]}
    assert sizes["tables"] == table.stat().st_size
    assert rudel("cache", "prune", "tables").code == 0
    assert [path.name for path in (cache / "tables").iterdir()] == ["mine.csv"]


def test_what_is_being_written_stays(rudel: Callable[..., Any], cache: Path, tmp_path: Path) -> None:
    kept = Path(find_photographs(str(photographs(tmp_path / "photographs"))).folder)
    lock = os.open(kept / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    before = files(cache)
    assert "is being written by another process" in rudel("cache", "prune", f"photographs/{kept.name}").error
    assert files(cache) == before
    os.close(lock)
    assert rudel("cache", "prune", f"photographs/{kept.name}").code == 0
    assert not kept.exists()


def test_no_cache(rudel: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "nowhere"))
    assert json.loads(rudel("cache", "list", "--json").out)["kept"] == []
    assert rudel("cache", "prune").out.startswith("nothing to remove; ")
