import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import rudel
from rudel.cluster.own_wheel import build_own_wheel


def test_the_wheel_is_what_runs_here_and_pip_takes_it(tmp_path: Path) -> None:
    wheel = build_own_wheel()
    (tmp_path / wheel.name).write_bytes(wheel.content)
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "there", tmp_path / wheel.name], check=True)
    here, there = Path(rudel.__file__).parent, tmp_path / "there" / "rudel"
    files = {path.relative_to(here) for path in here.rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    assert {path.relative_to(there) for path in there.rglob("*.*") if path.suffix != ".pyc"} == files
    assert all((there / file).read_bytes() == (here / file).read_bytes() for file in files)
    (found,) = metadata.distributions(path=[str(tmp_path / "there")])
    assert found.version == rudel.__version__
    assert found.requires == metadata.requires("rudel")
    assert (tmp_path / "there" / "bin" / "rudel").exists()


def test_the_same_source_makes_the_same_bytes() -> None:
    assert build_own_wheel() == build_own_wheel()


def test_nothing_is_in_it_that_python_makes_by_itself(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(build_own_wheel().content)
    with zipfile.ZipFile(tmp_path / "wheel") as archive:
        assert archive.testzip() is None
        assert not [name for name in archive.namelist() if "__pycache__" in name or name.endswith(".pyc")]
