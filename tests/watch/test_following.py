import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudel.files import written_atomically
from rudel.watch.following import Following


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def replace(path: Path, text: str) -> None:
    with written_atomically(path) as file:
        file.write(text.encode())


def test_a_file_that_comes_later(path: Path) -> None:
    log = Following(path)
    assert log.new_lines() == (False, [])
    assert log.changed == 0
    add(path, '{"a": 1}\n')
    assert log.new_lines() == (True, [{"a": 1}])
    assert log.new_lines() == (False, [])
    assert log.changed == path.stat().st_mtime


def test_a_line_counts_when_it_is_whole(path: Path) -> None:
    log = Following(path)
    add(path, '{"a": 1}\n{"a": ')
    assert log.new_lines() == (True, [{"a": 1}])
    add(path, "2}")
    assert log.new_lines() == (False, [])
    add(path, '\n{"a": 3}\n')
    assert log.new_lines() == (False, [{"a": 2}, {"a": 3}])
    assert log.damaged == 0


def test_a_file_in_the_place_of_another(path: Path) -> None:
    log = Following(path)
    add(path, '{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    log.new_lines()
    replace(path, '{"a": 1}\n')
    add(path, '{"b": 2}\n{"b": 3}\n{"b": 4}\n')
    assert log.new_lines() == (True, [{"a": 1}, {"b": 2}, {"b": 3}, {"b": 4}])


def test_a_file_replaced_twice_between_two_looks_whose_number_might_be_given_again(path: Path) -> None:
    log = Following(path)
    add(path, '{"a": 1}\n')
    log.new_lines()
    for number in range(2, 20):
        replace(path, f'{{"a": {number}}}\n')
    assert log.new_lines() == (True, [{"a": 19}])


def test_a_file_that_was_cut_short(path: Path) -> None:
    log = Following(path)
    add(path, '{"a": 1}\n{"a": 2}\n')
    log.new_lines()
    with path.open("r+") as file:
        file.truncate(9)
    assert log.new_lines() == (True, [{"a": 1}])


def test_a_file_that_is_removed_and_comes_back(path: Path) -> None:
    log = Following(path)
    add(path, '{"a": 1}\n')
    log.new_lines()
    path.unlink()
    assert log.new_lines() == (True, [])
    assert log.new_lines() == (False, [])
    add(path, '{"a": 9}\n')
    assert log.new_lines() == (True, [{"a": 9}])


def test_lines_that_are_none_are_passed_over_and_counted(path: Path) -> None:
    log = Following(path)
    path.write_bytes(b'{"a": 1}\n{"a": \n[3]\n\xff\xfe\n\n{"a": NaN, "b": Infinity}\n')
    assert log.new_lines() == (True, [{"a": 1}, {"a": None, "b": None}])
    assert log.damaged == 3


@settings(max_examples=60)
@given(st.lists(st.dictionaries(st.text(), st.integers()), max_size=6), st.lists(st.integers(1, 30), max_size=40))
def test_however_a_file_is_cut_into_writes_each_line_comes_once(
    tmp_path_factory: pytest.TempPathFactory, documents: list[dict[str, int]], lengths: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    content = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents).encode()
    log, found = Following(path), []
    with path.open("ab", buffering=0) as file:
        for length in [*lengths, len(content)]:
            file.write(content[:length])
            content = content[length:]
            found += log.new_lines()[1]
    log.close()
    assert found == documents
