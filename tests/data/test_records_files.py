import functools
import gzip
import io
import json
import os
import re
import resource
import sys
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import fsspec
import numpy as np
import pytest
from full_disk import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st

import rudel
from rudel.data.records import index_cache, uniform
from rudel.data.records.byte_sources import LocalSource, open_source, read_blocks
from rudel.data.records.collection import Collection
from rudel.data.records.index import OVERHEAD, walk
from rudel.data.records.shard_files import find_shards
from rudel.data.records.writer import framed, shard_name, write_examples, write_records
from rudel.errors import DataError

CONTENTS = [b"first", b"", b"a third of some length" * 5, b"\0" * 40, b"last"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, contents: Sequence[bytes], name: str = "a.tfrecord") -> Path:
    assert write_records(folder / name, contents) == len(contents)
    return folder / name


def read_all(*paths: Path | str, skip_corrupt: bool = False) -> list[bytes]:
    records = Collection([str(path) for path in paths], skip_corrupt)
    return records.contents(np.arange(len(records)))


def starts(contents: Sequence[bytes]) -> list[int]:
    return [sum(len(content) + OVERHEAD for content in contents[:i]) for i in range(len(contents) + 1)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=60), st.integers(16, 200), st.randoms())
def test_any_contents_are_found_and_read_in_any_order(tmp_path_factory, contents, window, random) -> None:
    path = written(tmp_path_factory.mktemp("any"), contents)
    source = open_source(str(path))
    source.window = window  # so small that records reach over windows, and whole windows lie within records
    index = walk(source)
    assert index.lengths.tolist() == [len(content) for content in contents]
    assert index.begins.tolist() == [start + 12 for start in starts(contents)[:-1]]
    numbers = [random.randrange(len(contents)) for _ in range(100)]
    assert Collection([str(path)]).contents(np.array(numbers)) == [contents[number] for number in numbers]


def test_records_of_several_files_are_numbered_in_order(tmp_path: Path) -> None:
    contents = [bytes([i]) * (i * 37 % 5000) for i in range(200)]
    paths = [written(tmp_path, contents[i : i + 40], f"{i:03}.tfrecord") for i in range(0, 200, 40)]
    records = Collection([str(path) for path in paths])
    numbers = np.random.default_rng(0).permutation(200)
    assert records.contents(numbers) == [contents[number] for number in numbers]
    assert records.name(41) == f"the record at byte {len(contents[40]) + OVERHEAD:,} of {paths[1]}"


def test_each_damaged_byte_is_told_with_its_file_and_place(tmp_path: Path) -> None:
    path = written(tmp_path, CONTENTS)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        damaged = int(np.searchsorted(starts(CONTENTS), place, "right")) - 1
        with pytest.raises(DataError, match=r"a\.tfrecord.*skip_corrupt=True") as raised:
            read_all(path)
        assert f"byte {starts(CONTENTS)[damaged]:,}" in str(raised.value) or damaged == 0
        records = Collection([str(path)], skip_corrupt=True)
        kept = records.contents(np.arange(len(records)))
        assert (kept, records.skipped) == ([*CONTENTS[:damaged], *CONTENTS[damaged + 1 :]], 1)


def test_a_file_that_is_cut_short_is_told_and_the_whole_records_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, CONTENTS)
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        complete = int(np.searchsorted(starts(CONTENTS), size, "right")) - 1
        if size == starts(CONTENTS)[complete]:
            assert read_all(path) == CONTENTS[:complete]
            continue
        with pytest.raises(DataError, match=r"a\.tfrecord is truncated|a\.tfrecord is no TFRecord"):
            read_all(path)
        if complete:
            assert read_all(path, skip_corrupt=True) == CONTENTS[:complete]
        else:
            with pytest.raises(DataError, match="all 1 are damaged"):
                read_all(path, skip_corrupt=True)


def test_a_hole_of_zeros_costs_only_what_it_covers(tmp_path: Path) -> None:
    contents = [os.urandom(10_000) for _ in range(100)]
    path = written(tmp_path, contents)
    with path.open("r+b") as file:
        file.seek(starts(contents)[20] + 5_000)
        file.write(bytes(30_000))
    records = Collection([str(path)], skip_corrupt=True)
    assert records.contents(np.arange(len(records))) == [*contents[:20], *contents[24:]]
    # the first one's content, and a stretch without lengths
    assert records.skipped == 2


def test_what_is_no_set_of_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zipped.tfrecord").write_bytes(gzip.compress(framed(b"content")))
    (tmp_path / "text.tfrecord").write_text("This is not made of records, but long enough.")
    (tmp_path / "empty.tfrecord").touch()
    for name, message in (
        ("zipped", "compressed by gzip"),
        ("text", "is no TFRecord file"),
        ("empty", "There is no record in .*the files are empty"),
    ):
        with pytest.raises(DataError, match=message):
            read_all(tmp_path / f"{name}.tfrecord")
    with pytest.raises(DataError, match="There is no"):
        find_shards(tmp_path / "absent", "train")


def test_a_file_that_changes_while_it_is_in_use_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path, CONTENTS)
    records = Collection([str(path)])
    os.truncate(path, 60)
    with pytest.raises(DataError, match="wrong checksum"):
        records.contents(np.arange(len(CONTENTS)))
    records = Collection([str(written(tmp_path, [b"all as long"] * 1000))])
    assert records.rows(np.arange(1000)) is not None
    os.truncate(path, 60)
    with pytest.raises(DataError, match="changed its size while it is in use"):
        records.rows(np.arange(1000))


def test_records_of_one_length_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uniform, "_MOST_MAPPED", 1 << 20)  # so little that pages are given back all the time
    contents = [os.urandom(700) for _ in range(3000)]
    paths = [written(tmp_path, contents[i : i + 1000], f"{i}.tfrecord") for i in range(0, 3000, 1000)]
    paths.append(written(tmp_path, [], "none.tfrecord"))
    records = Collection([str(path) for path in paths])
    for seed in range(20):
        numbers = np.random.default_rng(seed).permutation(3000)[:500]
        rows = records.rows(numbers)
        assert rows is not None
        assert [row.tobytes() for row in rows] == [contents[number] for number in numbers]
    written(tmp_path, [b"another length"], "none.tfrecord")
    assert Collection([str(path) for path in paths]).rows(np.arange(3)) is None
    damaged = bytearray(paths[1].read_bytes())
    damaged[5 * 716 + 100] ^= 1
    paths[1].write_bytes(damaged)
    with pytest.raises(DataError, match=r"1000\.tfrecord is damaged: the record at byte 3,580 has a wrong checksum"):
        Collection([str(path) for path in paths[:3]]).rows(np.arange(3000))


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = written(tmp_path, [b"old"])

    def failing():
        yield b"new"
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError):
        write_records(path, failing())
    with pytest.raises(DataError, match="`thing` is object"):
        write_examples(tmp_path, [{"label": 1}, {"thing": object()}], shards=2)
    assert [child.name for child in tmp_path.iterdir() if child.is_file()] == ["a.tfrecord"]
    assert read_all(path) == [b"old"]


def test_the_folder_to_write_may_be_a_text_that_begins_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_examples("~/things", [{"label": 1}]) == [tmp_path / "things" / "train-00000-of-00001.tfrecord"]
    with pytest.raises(DataError, match=r"cannot be written to 2\.0 shards"):
        write_examples("~/others", [{"label": 1}], shards=cast("Any", 2.0))
    assert [child.name for child in tmp_path.iterdir()] == ["things"]


def test_shards_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    write_examples(tmp_path, ({"label": 1} for _ in range(6)), shards=2)
    with full_disk(1000), pytest.raises(OSError, match="File too large"):
        # only the first shard is too long, and both are short enough for a buffer
        write_examples(
            tmp_path, ({"label": 2, "image": bytes(0 if number % 2 else 500)} for number in range(6)), shards=2
        )
    assert len(list(tmp_path.iterdir())) == 2
    assert rudel.Records(tmp_path, features=["label"]).in_memory().x["label"].tolist() == [1] * 6


def test_shards_of_a_split_are_found_by_name(tmp_path: Path) -> None:
    names = [
        *(shard_name("train", i, 3) for i in range(3)),
        shard_name("validation", 0, 1),
        "mnist-test.tfrecord-00000-of-00002",
        "mnist-test.tfrecord-00001-of-00002",
        "whole.tfrecord",
        "labels.txt",
    ]
    for name in names:
        (tmp_path / name).touch()

    def found(paths, split="train"):
        return [Path(path).name for path in find_shards(paths, split)]

    assert found(tmp_path) == names[:3]
    assert found(str(tmp_path), "validation") == names[3:4]
    assert found(tmp_path, "test") == names[4:6]
    assert found(tmp_path, "whole") == names[6:7]
    assert found(tmp_path / "train-*") == names[:3]
    assert found(tmp_path / names[1]) == names[1:2]
    assert found([tmp_path / names[2], tmp_path / names[0]]) == [names[2], names[0]]
    with pytest.raises(DataError, match=r"no records of the split `dev`; it has .*`train`"):
        found(tmp_path, "dev")
    with pytest.raises(DataError, match="No file fits"):
        found(tmp_path / "nothing-*")


def test_a_folder_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "rec [2023]").mkdir()
    (tmp_path / "rec [2023]" / shard_name("train", 0, 1)).touch()
    assert [Path(path).name for path in find_shards(tmp_path / "rec [2023]", "train")] == [shard_name("train", 0, 1)]
    with pytest.raises(DataError, match="The list of records is empty: name files or folders of records"):
        rudel.Records([])


def test_a_set_may_have_more_shards_than_files_may_usually_be_open(tmp_path: Path) -> None:
    write_examples(tmp_path, ({"label": i} for i in range(64)), shards=64)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "first").open("w") as file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno() + 70, hard))
    try:
        records = rudel.Records(tmp_path)
        with (tmp_path / "other").open("w"):
            assert sorted(records.take(slice(None)).x["label"].tolist()) == list(range(64))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(DataError, match="cannot be mapped into memory"):
        LocalSource(str(tmp_path)).mapped()


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    for i in (0, 3):
        (tmp_path / shard_name("train", i, 4)).touch()
    for paths in (tmp_path, tmp_path / "*.tfrecord"):
        with pytest.raises(DataError, match=r"train-00001-of-00004\.tfrecord and 1 more of its set is missing"):
            find_shards(paths, "train")
    (tmp_path / shard_name("train", 0, 1)).touch()
    with pytest.raises(DataError, match="more than one set"):
        find_shards(tmp_path, "train")


@pytest.fixture
def bucket(tmp_path: Path):
    """Two shards in fsspec's memory file system."""
    contents = [bytes([i]) * 1000 * i for i in range(20)]
    files = fsspec.filesystem("memory")
    for shard in range(2):
        path = written(tmp_path, contents[shard * 10 : shard * 10 + 10], shard_name("train", shard, 2))
        files.pipe_file(f"/bucket/{path.name}", path.read_bytes())
    yield contents
    files.rm("/bucket", recursive=True)


def test_records_are_read_from_an_address(tmp_path: Path, bucket: list[bytes]) -> None:
    paths = find_shards("memory://bucket", "train")
    assert paths == [f"memory://bucket/{shard_name('train', i, 2)}" for i in range(2)]
    assert [path.removeprefix("memory://") for path in find_shards("memory://bucket/train-*", "")] == [
        f"/bucket/{shard_name('train', i, 2)}" for i in range(2)
    ]
    remote = Collection(paths)
    numbers = np.random.default_rng(0).permutation(20)
    assert remote.contents(numbers) == [bucket[number] for number in numbers]
    assert (
        remote.fingerprint() == Collection([str(tmp_path / shard_name("train", i, 2)) for i in range(2)]).fingerprint()
    )


def test_the_index_of_a_remote_file_is_kept_until_it_changes(
    bucket: list[bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []
    monkeypatch.setattr(index_cache, "walk", lambda source, skip: walked.append(source.name) or walk(source, skip))
    paths = find_shards("memory://bucket", "train")
    for _ in range(2):
        assert read_all(*paths) == bucket
    assert sorted(walked) == paths, "each once, by whatever thread comes first"
    min((cache / "records").iterdir()).write_bytes(b"PK damaged")
    assert read_all(*paths) == bucket
    assert len(walked) == 3
    fsspec.filesystem("memory").pipe_file("/bucket/" + paths[0].rpartition("/")[2], framed(b"another"))
    assert read_all(*paths) == [b"another", *bucket[10:]]
    assert len(walked) == 4


def test_damage_and_absence_are_told_by_address(bucket: list[bytes]) -> None:
    with pytest.raises(DataError, match=r"memory://bucket/absent\.tfrecord cannot be read"):
        Collection(["memory://bucket/absent.tfrecord"])
    name = f"memory://bucket/{shard_name('train', 1, 2)}"
    files = fsspec.filesystem("memory")
    content = files.cat_file(name)
    files.pipe_file(name, content[:200] + b"!" + content[201:])
    with pytest.raises(DataError, match=rf"{name} is damaged: the record at byte 0 has a wrong checksum"):
        read_all(name)


def test_a_missing_package_is_told_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(DataError, match=r"pip install s3fs$"):
        find_shards("s3://bucket/records", "train")
    with pytest.raises(DataError, match="nothing that reads nowhere://"):
        find_shards("nowhere://bucket/records", "train")


class _Ranges(SimpleHTTPRequestHandler):
    """Sends the parts of files that it is asked for, and lists no folders, as object stores do."""

    def send_head(self) -> Any:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return None
        content = path.read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if found else 200)
        if found:
            begin, last = int(found[1]), min(int(found[2]), len(content) - 1)
            self.send_header("Content-Range", f"bytes {begin}-{last}/{len(content)}")
            content = content[begin : last + 1]
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def test_records_are_read_from_a_web_server(tmp_path: Path) -> None:
    paths = write_examples(tmp_path, ({"label": i} for i in range(100)), shards=2)
    document = {"shards": [{"file": path.name} for path in paths]}
    (tmp_path / "dataset.json").write_text(json.dumps(document))
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Ranges, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}"
            remote = rudel.Records(address)
            numbers = np.random.default_rng(0).permutation(100)
            np.testing.assert_array_equal(
                remote.take(numbers).x["label"], rudel.Records(tmp_path).take(numbers).x["label"]
            )
            with pytest.raises(DataError, match=r"cannot be read \(FileNotFoundError\): check the address"):
                rudel.Records(f"{address}/absent.tfrecord")
        finally:
            server.shutdown()


class _Whole(_Ranges):
    """Sends whole files alone, as `python -m http.server` does."""

    def send_head(self) -> Any:
        del self.headers["Range"]
        return super().send_head()


def test_a_web_server_that_sends_whole_files_alone_is_refused(tmp_path: Path) -> None:
    (path,) = write_examples(tmp_path, ({"label": i} for i in range(100)))
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Whole, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}/{path.name}"
            with pytest.raises(DataError, match=r"cannot be read in parts, .* copy it to this computer"):
                rudel.Records(address)
            source = open_source(address)
            with pytest.raises(DataError, match="cannot be read in parts"):
                read_blocks([(source, 0, 10), (source, 20, 30)])
        finally:
            server.shutdown()
