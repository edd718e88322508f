"""Lines of labs in /etc/hosts, in a file beside it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rudel.errors import LabError
from rudel.lab import names_file

OLD = "127.0.0.1 localhost # me\n\n# the end"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text(OLD)
    path.chmod(0o604)
    return path


def test_a_lab_comes_and_goes(file: Path) -> None:
    names_file.add("zoo", ["10.77.0.1 zoo1"], file)
    names_file.add("pond", ["10.78.0.1 pond1"], file)
    names_file.add("zoo", ["10.77.0.1 zoo1", "10.77.0.2 zoo2"], file)
    assert names_file.labs(file) == ["pond", "zoo"]
    assert file.read_text().count("zoo1") == 1
    names_file.remove("zoo", file)
    assert names_file.labs(file) == ["pond"]
    names_file.remove("pond", file)
    names_file.remove("pond", file)
    assert file.read_text() == OLD + "\n"
    assert file.stat().st_mode & 0o777 == 0o604
    assert list(file.parent.iterdir()) == [file]


def test_many_labs_at_once_lose_no_line(file: Path) -> None:
    labs = [chr(ord("a") + number) for number in range(20)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda lab: names_file.add(lab, [f"10.0.0.1 {lab}1"], file), labs))
        assert sorted(names_file.labs(file)) == labs
        list(pool.map(lambda lab: names_file.remove(lab, file), labs[1:]))
    assert names_file.labs(file) == ["a"]


def test_a_name_that_means_something_else_is_refused(file: Path) -> None:
    names_file.check_free(["me", "raspi1"], file)
    file.write_text("192.168.1.20 pi raspi1\n")
    with pytest.raises(LabError, match=r"`raspi1` has an address in .* already: give the lab another prefix"):
        names_file.check_free(["raspi1"], file)


def test_ends_of_lines_and_other_bytes_stay_as_they_are(file: Path) -> None:
    old = b"127.0.0.1 localhost\r\n# caf\xe9\r\n"
    file.write_bytes(old)
    names_file.add("zoo", ["10.77.0.1 zoo1"], file)
    assert file.read_bytes().startswith(old)
    names_file.check_free(["raspi1"], file)
    assert names_file.labs(file) == ["zoo"]
    names_file.remove("zoo", file)
    assert file.read_bytes() == old


def test_a_link_stays_one(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    names_file.add("zoo", ["10.77.0.1 zoo1"], link)
    assert link.is_symlink()
    assert names_file.labs(file) == ["zoo"]
