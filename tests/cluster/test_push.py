import asyncio
import os
from pathlib import Path

import pytest

from rudel.cluster.hosts import Host
from rudel.cluster.push import Pushed, push_to_hosts
from rudel.cluster.uploads import part_of
from rudel.errors import HostError
from rudel.lab import Lab


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, an empty folder, and links, one of which goes in circles."""
    root = tmp_path / "things"
    (root / "deep" / "deeper").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "large").write_bytes(os.urandom(3_000_000))
    (root / "deep" / "deeper" / "ä b").write_text("text")
    (root / "deep" / "run").write_text("#!/bin/sh\n")
    (root / "deep" / "run").chmod(0o750)
    (root / "link").symlink_to("large")
    (root / "deep" / "circle").symlink_to("..")
    return root


def pushed(lab: Lab, path: Path, to: str = ".") -> tuple[Pushed, ...]:
    return asyncio.run(push_to_hosts(lab.hosts, path, to, lab.ssh_config))


def test_a_folder_arrives_as_it_is(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    for one in pushed(lab, folder, "~/some/place"):
        assert (one.problem, one.files, one.alike, one.sent) == (None, 4, 0, 6_000_014)
    for home in homes.values():
        there = home / "some" / "place" / "things"
        assert (there / "large").read_bytes() == (there / "link").read_bytes() == (folder / "large").read_bytes()
        assert (there / "deep" / "deeper" / "ä b").read_text() == "text"
        assert (there / "deep" / "run").stat().st_mode & 0o777 == 0o750
        assert (there / "empty").is_dir()
        assert not list(there.rglob("*part"))


def test_only_what_has_changed_is_sent_again(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    pushed(lab, folder)
    (folder / "deep" / "run").write_text("#!/bin/dash\n")
    for one in pushed(lab, folder):
        assert (one.problem, one.files, one.alike, one.sent) == (None, 1, 3, 12)
    for home in homes.values():
        assert (home / "things" / "deep" / "run").read_text() == "#!/bin/dash\n"


def test_a_file_whose_name_is_that_of_another_one_with_a_suffix_arrives_beside_it(
    lab: Lab, homes: dict[str, Path], tmp_path: Path
) -> None:
    contents = {"large": os.urandom(3_000_000), "large.part": b"of the user's own"}
    (tmp_path / "data").mkdir()
    for name, content in contents.items():
        (tmp_path / "data" / name).write_bytes(content)
    pushed(lab, tmp_path / "data")
    for home in homes.values():
        assert {path.name: path.read_bytes() for path in (home / "data").iterdir()} == contents


def test_what_a_broken_off_push_has_left_is_not_sent(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    (folder / part_of("large")).write_bytes(b"half")
    assert [one.files for one in pushed(lab, folder)] == [4, 4]


def test_a_single_file_keeps_its_name(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    pushed(lab, folder / "large")
    assert (homes[lab.hosts[1]] / "large").read_bytes() == (folder / "large").read_bytes()


def test_a_host_that_takes_nothing_does_not_stop_the_others(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    (homes[lab.hosts[0]] / "things").write_text("a file is in the way")
    first, second = pushed(lab, folder)
    assert first.problem is not None
    assert first.problem.startswith(f"On `{lab.hosts[0]}` the folder `./things` could not be made (")
    assert second.problem is None


def test_a_folder_that_may_not_be_written_is_told(lab: Lab, folder: Path) -> None:
    for one in pushed(lab, folder, "/etc"):
        assert f"On `{one.host}` the folder `/etc/things` could not be made (Permission denied)." == one.problem


def test_a_full_disk_is_told(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    (homes[lab.hosts[0]] / "small").mkdir()
    lab.run(lab.hosts[0], "mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", "/home/pi/small", root=True)
    try:
        first, second = pushed(lab, folder, "small")
    finally:
        lab.run(lab.hosts[0], "umount", "/home/pi/small", root=True)
    assert first.problem is not None
    assert "could not be written (the disk is full" in first.problem
    assert second.problem is None


def test_a_folder_that_a_link_names_too_arrives_twice(lab: Lab, homes: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "data/v1").mkdir(parents=True)
    (tmp_path / "data/v1/file").write_text("one")
    (tmp_path / "data/latest").symlink_to("v1")
    (tmp_path / "data/v1/both").symlink_to("../latest")
    pushed(lab, tmp_path / "data")
    for home in homes.values():
        assert [(home / f"data/{name}/file").read_text() for name in ("v1", "latest")] == ["one", "one"]


def test_a_folder_above_keeps_its_own_name(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    pushed(lab, folder / "deep" / "..")
    assert all((home / "things/large").is_file() for home in homes.values())
    with pytest.raises(HostError, match="`/` has no name that it could have on a host: give a folder in it"):
        pushed(lab, Path("/"))


def test_nothing_to_send_is_refused_before_anything_is_reached(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"There is nothing to send at `.*nothing`"):
        asyncio.run(push_to_hosts("nothing.invalid", tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("to", "sentence"),
    [
        ("", "`to=` is empty: name a folder, or leave it out for the home folder"),
        ("~pi/dir", "cannot be sent to `~pi/dir`: give the absolute path of the folder, or `./~pi/dir`"),
    ],
)
def test_a_folder_that_is_not_one_of_the_user_there_is_refused(tmp_path: Path, to: str, sentence: str) -> None:
    with pytest.raises(HostError, match=sentence):
        asyncio.run(push_to_hosts("nothing.invalid", tmp_path, to))


def test_what_may_not_be_read_is_named_before_anything_is_reached(closed: Path) -> None:
    for path, named in ((closed.parent, closed), (closed / "file", closed / "file")):
        with pytest.raises(HostError, match=f"`{named}` cannot be read on this computer .Permission denied.: correct"):
            asyncio.run(push_to_hosts("nothing.invalid", path))


def test_a_file_that_changes_while_it_is_sent_is_sent_again(lab: Lab, homes: dict[str, Path], tmp_path: Path) -> None:
    file, host = tmp_path / "changing", lab.hosts[0]
    file.write_bytes(b"old")
    os.utime(file, (1e9, 1e9))

    def change(host: Host, done: int, total: int) -> None:
        if file.stat().st_mtime == 1e9:
            file.write_bytes(b"new")

    asyncio.run(push_to_hosts(host, file, ssh_config=lab.ssh_config, on_progress=change))
    (again,) = asyncio.run(push_to_hosts(host, file, ssh_config=lab.ssh_config))
    assert (again.files, again.alike) == (1, 0)
    assert (homes[host] / "changing").read_bytes() == file.read_bytes()


def test_a_file_that_is_removed_meanwhile_is_named_for_each_host(
    lab: Lab, homes: dict[str, Path], tmp_path: Path
) -> None:
    gone = tmp_path / "things" / "deep" / "gone"
    gone.parent.mkdir(parents=True)
    for file in (gone, tmp_path / "things" / "first"):
        file.write_text("text")

    def remove(host: Host, done: int, total: int) -> None:
        gone.unlink(missing_ok=True)

    for one in asyncio.run(
        push_to_hosts(lab.hosts, tmp_path / "things", ssh_config=lab.ssh_config, on_progress=remove)
    ):
        assert one.problem is not None
        assert f"`{gone}` cannot be read on this computer (No such file or directory)" in one.problem


def test_names_that_are_not_unicode_arrive_and_are_in_nobodys_way(
    lab: Lab, homes: dict[str, Path], tmp_path: Path
) -> None:
    here, there = os.fsdecode(b"caf\xe9"), os.fsdecode(b"th\xe9")
    (tmp_path / here).write_text("text")
    for home in homes.values():
        (home / there).touch()
    assert [(one.problem, one.files) for one in pushed(lab, tmp_path / here)] == [(None, 1)] * 2
    assert [(one.problem, one.alike) for one in pushed(lab, tmp_path / here)] == [(None, 1)] * 2
    assert all((home / here).read_text() == "text" for home in homes.values())


def test_a_folder_in_the_place_of_a_file_is_told(lab: Lab, homes: dict[str, Path], folder: Path) -> None:
    (homes[lab.hosts[0]] / "run").mkdir()
    first, second = pushed(lab, folder / "deep" / "run")
    assert first.problem is not None
    assert first.problem.startswith(f"On `{lab.hosts[0]}` `./run` is a folder, and a file of that name")
    assert second.problem is None
    assert not list(homes[lab.hosts[0]].glob(".*part"))
