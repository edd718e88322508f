"""The journal gives back the whole records that were written, whatever a kill has left of the last one."""

import resource
from pathlib import Path

import pytest

from rudel.errors import CheckpointError
from rudel.replicas import journal
from rudel.replicas.journal import Journal, Record

RECORDS = [Record({"round": number, "x": [1.5, None]}, [bytes(range(number)), b"", b"abc"]) for number in range(4)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "step-0000000012.npz"
    path.touch()
    return path


def written(checkpoint: Path) -> bytes:
    kept = Journal(checkpoint)
    for record in RECORDS:
        kept.append(record)
    kept.close()
    return journal.path_of(checkpoint).read_bytes()


def test_what_was_written_is_read(checkpoint: Path) -> None:
    assert journal.read(checkpoint) == []
    written(checkpoint)
    assert journal.read(checkpoint) == RECORDS


def test_cut_short_anywhere_it_gives_the_records_before(checkpoint: Path) -> None:
    content = written(checkpoint)
    for length in range(len(content)):
        journal.path_of(checkpoint).write_bytes(content[:length])
        found = journal.read(checkpoint)
        assert found == RECORDS[: len(found)]
        assert len(found) < len(RECORDS)


def test_damaged_anywhere_it_gives_the_records_before(checkpoint: Path) -> None:
    content = written(checkpoint)
    for place in range(len(content)):
        journal.path_of(checkpoint).write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        found = journal.read(checkpoint)
        assert found == RECORDS[: len(found)]
        assert len(found) < len(RECORDS)


def test_journals_of_checkpoints_that_are_gone_go_too(checkpoint: Path) -> None:
    written(checkpoint)
    later = checkpoint.with_name("step-0000000013.npz")
    later.touch()
    Journal(later).close()
    assert journal.read(checkpoint) == RECORDS
    checkpoint.unlink()
    Journal(later).close()
    assert journal.read(checkpoint) == []


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"journal .* could not be written"):
        Journal(tmp_path / "nowhere" / "step-1.npz")


def test_a_record_that_the_disk_takes_only_a_part_of_is_refused_and_later_ones_are_kept(checkpoint: Path) -> None:
    kept = Journal(checkpoint)
    kept.append(RECORDS[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(CheckpointError, match=r"journal .* could not be written"):
            kept.append(Record({}, [bytes(1000)]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for record in RECORDS[1:]:
        kept.append(record)
    kept.close()
    assert journal.read(checkpoint) == RECORDS
