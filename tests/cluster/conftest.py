import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rudel.lab import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, lab_machine: None) -> Iterator[Lab]:
    """Two computers with an SSH server each, on a quick network without a way to anywhere else."""
    state = tmp_path_factory.mktemp("lab")
    with Lab(nodes=2, cpu=1.0, rate=1000, latency=0.0, prefix="htest", subnet="10.94.0", state=state) as lab:
        yield lab


@pytest.fixture
def homes(lab: Lab) -> Iterator[dict[str, Path]]:
    """The home folders of the computers, by their names; what a test leaves there is put aside.

    Removed, it would delay what comes next: without a journal, ext4 looks through all that was removed in the last five
    seconds for every file that it makes.
    """
    folders = {name: Path(lab.settings.state) / name / "home" for name in lab.hosts}
    before = {name: {path.name for path in home.iterdir()} for name, home in folders.items()}
    yield folders
    for name, home in folders.items():
        for path in home.iterdir():
            if path.name not in before[name]:
                path.rename(Path(tempfile.mkdtemp(dir=home.parent)) / path.name)


@pytest.fixture
def configured(lab: Lab, tmp_path: Path) -> Callable[..., Path]:
    """Writes an SSH configuration of the lab with some options of the first computer changed, and says where."""

    def write(**changed: str | None) -> Path:
        text = ""
        for node in lab.settings.nodes:
            options = {
                "HostName": node.address,
                "User": "pi",
                "IdentityFile": str(lab.key),
                "UserKnownHostsFile": str(lab.known_hosts),
                "HostKeyAlias": node.name,
            }
            options |= changed if node.name == lab.hosts[0] else {}
            lines = [f"  {key} {value}\n" for key, value in options.items() if value is not None]
            text += f"Host {node.name}\n{''.join(lines)}"
        path = tmp_path / "ssh_config"
        path.write_text(text)
        return path

    return write


def set_rights(effective: int | None = None) -> int:
    """Gives this thread these rights (capabilities of Linux, bit by bit), if any are named; returns those it had.

    A thread that it begins has the same.
    """
    libc = ctypes.CDLL(None)
    header, rights = (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()  # version 3; the first is effective
    assert libc.capget(header, rights) == 0
    had = rights[0]
    if effective is not None:
        rights[0] = effective
        assert libc.capset(header, rights) == 0
    return had


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process may not look into: for the length of a test, root may open only what is open to it."""
    folder = tmp_path / "closed"
    folder.mkdir(0)
    if os.geteuid() != 0:
        yield folder
    else:
        had = set_rights()
        set_rights(had & ~0b110)  # without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
        try:
            yield folder
        finally:
            set_rights(had)
    folder.chmod(0o700)
