import asyncio
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rudel.cluster.pins import Target
from rudel.cluster.wheels import cached_wheels, fetch_wheels, look_up
from rudel.errors import HostError

RASPBERRY_PI = Target("aarch64", "3.11", (2, 36))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where wheels for a Raspberry Pi are kept; nothing can be fetched."""
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    folder = tmp_path / "wheels" / "aarch64-cp311"
    folder.mkdir(parents=True)
    return folder


def wheel(folder: Path, name: str, requires: str = "") -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: thing\n{requires}\n")
    return path


def test_wheels_in_the_cache_are_not_fetched(cache: Path) -> None:
    path = wheel(cache, "thing-1.0-cp311-cp311-manylinux_2_28_aarch64.whl")
    (found,) = asyncio.run(fetch_wheels(RASPBERRY_PI, {"thing": "1.0"}, lambda text: None))
    assert (found.path, found.size) == (path, path.stat().st_size)
    assert found.unpacked == len("Metadata-Version: 2.1\nName: thing\n\n")


def test_wheels_that_do_not_fit_do_not_count(cache: Path) -> None:
    wheel(cache, "thing-1.0-cp311-cp311-manylinux_2_38_aarch64.whl")
    wheel(cache, "thing-2.0-cp312-cp312-manylinux_2_17_aarch64.whl")
    (cache / "rubbish.whl").write_bytes(b"")
    assert cached_wheels(RASPBERRY_PI) == {}


def test_a_version_without_a_wheel_is_told_with_the_kind_of_host(cache: Path) -> None:
    sentence = r"There is no wheel of thing 1\.0, .*, for aarch64, Python 3\.11, glibc 2\.36: give the host Python 3\."
    with pytest.raises(HostError, match=sentence):
        asyncio.run(fetch_wheels(RASPBERRY_PI, {"thing": "1.0"}, lambda text: None))
    assert list(cache.iterdir()) == []


def test_what_is_not_installed_here_is_looked_up_in_its_wheel(cache: Path) -> None:
    wheel(cache, "thing-1.0-py3-none-any.whl", "Requires-Dist: click>=8\nRequires-Dist: rich; extra == 'all'\n")
    found = asyncio.run(look_up(Requirement("Thing>=0.5"), RASPBERRY_PI))
    assert found == ("1.0", ["click>=8", "rich; extra == 'all'"])
    with pytest.raises(HostError, match="There is no wheel of Thing>=2"):
        asyncio.run(look_up(Requirement("Thing>=2"), RASPBERRY_PI))


def test_a_cache_that_cannot_be_written_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("RUDEL_CACHE", str(cache / "file"))
    with pytest.raises(
        HostError, match=r"cannot be kept in `.*/file/wheels/.* \(Not a directory\): .* set RUDEL_CACHE"
    ):
        asyncio.run(fetch_wheels(RASPBERRY_PI, {"thing": "1.0"}, lambda text: None))


def test_a_python_without_ensurepip_can_set_up_hosts() -> None:
    """As that of Debian without the package python3-venv."""
    code = "import sys; sys.modules['ensurepip'] = None; from rudel.cluster import wheels; wheels._bundled_pip()"
    subprocess.run([sys.executable, "-c", code], check=True)
