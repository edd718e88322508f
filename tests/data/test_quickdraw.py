import contextlib
import hashlib
import io
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest
from processes import LONG, started

from rudel.cache import cache_folder
from rudel.data.http_range import Version, retry_after
from rudel.data.npy import parse_header
from rudel.data.quickdraw import ATTRIBUTION, CATEGORIES, load
from rudel.errors import DataError, DownloadError, OptionError
from rudel.retry_policy import RetryPolicy

HASTY = RetryPolicy(timeout=5.0, attempts=3, first_delay=0.0, longest_delay=0.0)
STALLING = RetryPolicy(timeout=0.1, attempts=2, first_delay=0.0)
HEADER = 128
THIRTEEN = [
    "airplane",
    "alarm clock",
    "apple",
    "banana",
    "bicycle",
    "bird",
    "book",
    "cat",
    "dog",
    "fish",
    "flower",
    "house",
    "rainbow",
]


def drawings(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, 784), np.uint8)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def old_npy(array: np.ndarray, header_bytes: int = 80) -> bytes:
    """As NumPy wrote it when Quick, Draw! was published: a header of 80 bytes."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {array.shape}, }}".encode()
    length = header_bytes - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + header.ljust(length - 1) + b"\n" + array.tobytes()


def rows_of(loaded, label: int) -> np.ndarray:
    return loaded.x[loaded.y == label].reshape(-1, 784)


def cached(folder: Path, ending: str) -> Path:
    (file,) = folder.glob(f"quickdraw/*/*.{ending}")
    return file


def test_only_the_first_drawings_travel(server, remote):
    files = {"cat": drawings(500, 1), "alarm clock": drawings(400, 2)}
    server.remotes = {name: remote(npy(array)) for name, array in files.items()}
    loaded = load(["cat", "alarm clock"], 50, server.url, retry=HASTY)
    assert loaded.x.shape == (100, 28, 28)
    assert (loaded.x.dtype, loaded.y.dtype) == (np.uint8, np.int32)
    assert loaded.counts == (50, 50)
    np.testing.assert_array_equal(rows_of(loaded, 0), files["cat"][:50])
    np.testing.assert_array_equal(rows_of(loaded, 1), files["alarm clock"][:50])
    assert [request.length for request in server.log] == [HEADER + 50 * 784] * 2
    assert server.sent == 2 * (HEADER + 50 * 784)


@pytest.mark.parametrize("header_bytes", [80, 96, 128, 1040])
def test_headers_of_any_length(server, remote, header_bytes):
    array = drawings(60)
    server.remotes["cat"] = remote(old_npy(array, header_bytes))
    loaded = load(["cat"], 1, server.url, retry=HASTY)
    np.testing.assert_array_equal(rows_of(loaded, 0), array[:1])
    loaded = load(["cat"], 30, server.url, retry=HASTY)
    np.testing.assert_array_equal(rows_of(loaded, 0), array[:30])
    assert server.sent <= header_bytes + 30 * 784 + 48


def test_a_long_header_without_etag_or_date(server, remote):
    array = drawings(60)
    server.remotes["cat"] = remote(old_npy(array, 4000), etag=None)
    np.testing.assert_array_equal(rows_of(load(["cat"], 3, server.url, retry=HASTY), 0), array[:3])


def test_classes_with_fewer_drawings_than_asked_for(server, remote):
    server.remotes = {"cat": remote(npy(drawings(7, 1))), "dog": remote(npy(drawings(20, 2)))}
    loaded = load(["cat", "dog"], 10, server.url, retry=HASTY)
    assert loaded.counts == (7, 10)
    assert loaded.y.tolist() == [0] * 7 + [1] * 10
    np.testing.assert_array_equal(rows_of(loaded, 1), drawings(20, 2)[:10])


def test_a_slash_after_the_address_is_the_same_source(server, remote):
    server.remotes["cat"] = remote(npy(drawings(20)))
    load(["cat"], 10, server.url, retry=HASTY)
    load(["cat"], 10, server.url + "/", retry=HASTY)
    assert len(server.log) == 1


def test_a_server_without_ranges_sends_only_the_beginning(server, remote):
    server.ranges = False
    array = drawings(40_000)
    server.remotes["cat"] = remote(npy(array))
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=HASTY), 0), array[:10])
    np.testing.assert_array_equal(rows_of(load(["cat"], 20, server.url, retry=HASTY), 0), array[:20])
    server.shutdown()
    server.server_close()
    assert server.sent < array.nbytes


def test_a_server_that_sends_small_parts_only(server, remote):
    server.most_bytes = 1000
    array = drawings(20)
    server.remotes["cat"] = remote(npy(array))
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=HASTY), 0), array[:10])
    assert server.sent <= HEADER + 10 * 784


@pytest.mark.parametrize("stop_after", [0, 5, 127, 128, 1000, 7000])
def test_a_truncated_answer_is_continued(server, remote, fault, stop_after):
    array = drawings(20)
    server.remotes["cat"] = remote(npy(array), faults=[fault(stop_after=stop_after)])
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=HASTY), 0), array[:10])
    assert [request.first for request in server.log] == [0, stop_after]
    assert server.sent == HEADER + 10 * 784


def test_answers_that_always_break_off_are_enough_while_they_bring_something(server, remote, fault):
    array = drawings(20)
    server.remotes["cat"] = remote(npy(array), faults=[fault(stop_after=500)] * 15)
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=HASTY), 0), array[:10])


def test_answers_that_always_break_off_at_the_same_byte_end_in_an_error(server, remote, fault):
    server.remotes["cat"] = remote(npy(drawings(20)), etag=None, faults=[fault(stop_after=500)] * 15)
    with pytest.raises(DownloadError, match=r"`127.0.0.1:\d+` closed the connection while sending .* 3 times in a row"):
        load(["cat"], 10, server.url, retry=HASTY)
    assert len(server.log) == 3


def test_busy_and_broken_servers_are_asked_again(server, remote, fault):
    array = drawings(20)
    busy = fault(status=429, headers={"Retry-After": "3600"})
    server.remotes["cat"] = remote(npy(array), faults=[fault(status=503), busy])
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=HASTY), 0), array[:10])
    assert len(server.log) == 3


def test_a_server_that_stays_broken(server, remote, fault):
    server.remotes["cat"] = remote(npy(drawings(20)), faults=[fault(status=503)] * 9)
    with pytest.raises(DownloadError, match=r"HTTP 503 .* 3 times in a row: .*`data='DIR'`\.$"):
        load(["cat"], 10, server.url, retry=HASTY)
    assert len(server.log) == 3


def test_pauses_grow_and_respect_what_the_server_asks_for():
    retry = RetryPolicy(first_delay=0.5, longest_delay=60.0)
    assert [retry.delay(n) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert retry.delay(1, requested=7.0) == 7.0
    assert retry.delay(30, requested=3600.0) == 60.0
    assert retry_after("12") == 12.0
    assert 80 < retry_after(formatdate(time.time() + 90, usegmt=True)) <= 90
    assert retry_after("") == retry_after("soon") == retry_after(formatdate(0, usegmt=True)) == 0.0


def test_a_missing_class_is_an_error_at_once(server, remote):
    server.remotes["cat"] = remote(npy(drawings(20)))
    with pytest.raises(DownloadError, match=r"full/numpy_bitmap/hot%20dog\.npy` could not be fetched \(HTTP 404"):
        load(["cat", "hot dog"], 10, server.url, retry=HASTY)
    assert [request.name for request in server.log].count("hot dog") == 1


@pytest.mark.parametrize("stop_after", [0, 900])
def test_a_stalled_connection_is_opened_again(server, remote, fault, stop_after):
    array = drawings(20)
    server.remotes["cat"] = remote(npy(array), faults=[fault(stop_after=stop_after, stall=True)])
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=STALLING), 0), array[:10])
    assert [request.first for request in server.log] == [0, stop_after]


def test_a_connection_that_stalls_for_good():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(DownloadError, match=rf"`127.0.0.1:{port}` stopped answering for 0.1 s .* 2 times in a row"):
            load(["cat"], 10, f"http://127.0.0.1:{port}", retry=STALLING)


def test_no_network():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DownloadError, match=rf"`127.0.0.1:{port}` could not be reached \(.* refused\).*`data='DIR'`"):
        load(["cat"], 10, f"http://127.0.0.1:{port}", retry=HASTY)


def test_a_certificate_that_is_not_accepted(monkeypatch):
    reason = ssl.SSLCertVerificationError(1, "certificate verify failed")
    reason.verify_message = "certificate is not yet valid"

    class Opener:
        def open(self, *_, **__):
            raise urllib.error.URLError(reason)

    monkeypatch.setattr(urllib.request, "build_opener", Opener)
    with pytest.raises(
        DownloadError, match=r"`storage.googleapis.com` was not accepted \(certificate is not yet valid"
    ):
        load(["cat"], 10, retry=HASTY)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html><title>Welcome to our Wi-Fi</title>", "is not an .npy file, it begins with b'<!DOCTYPE html"),
        (npy(np.zeros((20, 784), np.float32)), "holds float32 instead of uint8"),
        (npy(np.zeros((20, 28, 28), np.uint8)), r"has the shape \(20, 28, 28\)"),
        (npy(np.zeros((20, 100), np.uint8)), r"has the shape \(20, 100\)"),
        (npy(np.asfortranarray(drawings(20))), "column after column"),
        (npy(np.zeros((0, 784), np.uint8)), "holds no drawing"),
        (npy(np.array([{"a": 1}] * 2000, object)), "holds object"),
        (b"\x93NUMPY\x07\x00" + bytes(1000), r"has version 7.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + bytes(1000), "has a header of 2,147,483,659 bytes"),
        (b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 1000, "has a damaged .npy header"),
        (npy(drawings(20))[:5000], "is truncated at 5,000 bytes"),
        (b"\x93NUM", "is truncated at 4 bytes"),
    ],
)
def test_files_without_drawings(server, remote, tmp_path, own_cache, content, message):
    server.remotes["cat"] = remote(content)
    with pytest.raises(DownloadError, match=message):
        load(["cat"], 10, server.url, retry=HASTY)
    assert len(server.log) == 1
    (tmp_path / "cat.npy").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(["cat"], 10, tmp_path)
    array = drawings(20, 3)
    server.remotes["cat"] = remote(npy(array), etag='"mended"')
    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, retry=HASTY), 0), array[:10])


def test_the_cache_is_used_and_grows_by_what_is_missing(server, remote):
    array = drawings(100)
    server.remotes["cat"] = remote(npy(array))
    for count in (10, 10, 4, 30, 30, 100, 200, 1000):
        loaded = load(["cat"], count, server.url, retry=HASTY)
        np.testing.assert_array_equal(rows_of(loaded, 0), array[:count])
    asked = [(request.first, request.length) for request in server.log]
    assert asked == [(0, HEADER + 10 * 784), (HEADER + 10 * 784, 20 * 784), (HEADER + 30 * 784, 70 * 784)]
    assert [request.if_range for request in server.log] == [None, '"1"', '"1"']


@pytest.mark.parametrize("change", ["etag", "date", "size", "date of a weak etag", "no validators"])
@pytest.mark.parametrize("server_obeys", [True, False])
def test_a_file_that_changed_is_fetched_anew(server, remote, change, server_obeys):
    old, new = drawings(50, 1), drawings(51 if change == "size" else 50, 2)
    validators = {
        "etag": ({"etag": '"1"'}, {"etag": '"2"'}),
        "date": ({"etag": None, "modified": 1e9}, {"etag": None, "modified": 1.1e9}),
        "size": ({"etag": '"1"'}, {"etag": '"1"'}),
        "date of a weak etag": ({"etag": 'W/"1"', "modified": 1e9}, {"etag": 'W/"2"', "modified": 1.1e9}),
        "no validators": ({"etag": None}, {"etag": None}),
    }
    server.obeys_if_range = server_obeys
    server.remotes["cat"] = remote(npy(old), **validators[change][0])
    load(["cat"], 10, server.url, retry=HASTY)
    server.remotes["cat"] = remote(npy(new), **validators[change][1])
    np.testing.assert_array_equal(rows_of(load(["cat"], 30, server.url, retry=HASTY), 0), new[:30])


def test_a_file_that_became_shorter_is_fetched_anew(server, remote):
    server.remotes["cat"] = remote(npy(drawings(50, 1)))
    load(["cat"], 40, server.url, retry=HASTY)
    server.obeys_if_range = False
    server.remotes["cat"] = remote(npy(drawings(20, 2)))
    loaded = load(["cat"], 50, server.url, retry=HASTY)
    np.testing.assert_array_equal(rows_of(loaded, 0), drawings(20, 2))


def test_a_changed_file_with_fewer_bytes_needs_no_second_attempt(server, remote):
    server.remotes["cat"] = remote(npy(drawings(50, 1)))
    load(["cat"], 40, server.url, retry=HASTY)
    server.remotes["cat"] = remote(npy(drawings(20, 2)), etag='"2"')
    loaded = load(["cat"], 50, server.url, retry=RetryPolicy(timeout=5.0, attempts=1))
    np.testing.assert_array_equal(rows_of(loaded, 0), drawings(20, 2))


def test_a_file_that_changes_between_two_connections_is_not_mixed(server, remote, fault):
    old, new = drawings(50, 1), drawings(50, 2)
    server.remotes["cat"] = remote(npy(old), faults=[fault(stop_after=5000)])

    def change(done: int, total: int) -> None:
        if done == 5000:
            server.remotes["cat"] = remote(npy(new), etag='"2"')

    np.testing.assert_array_equal(rows_of(load(["cat"], 10, server.url, change, HASTY), 0), new[:10])


@pytest.mark.parametrize("condition", ["strong", "date"])
def test_a_stopped_download_goes_on_at_the_very_byte(server, remote, fault, condition):
    array = drawings(50)
    validators = {"etag": '"1"'} if condition == "strong" else {"etag": 'W/"1"', "modified": 1e9}
    server.remotes["cat"] = remote(npy(array), **validators, faults=[fault(stop_after=9000)])

    class UserError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert total == HEADER + 20 * 784
        if done == 9000:
            raise UserError

    with pytest.raises(UserError):
        load(["cat"], 20, server.url, stop, HASTY)
    np.testing.assert_array_equal(rows_of(load(["cat"], 20, server.url, retry=HASTY), 0), array[:20])
    assert [request.first for request in server.log] == [0, 9000]
    assert server.log[1].length == HEADER + 20 * 784 - 9000


def start_loading(url: str, count: int) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Another process that loads `count` cats, and tells how far it is on its standard output."""
    code = (
        "import sys; from rudel.data.quickdraw import load\n"
        "loaded = load(['cat'], int(sys.argv[2]), sys.argv[1], lambda done, total: print(done, flush=True))\n"
        "print('sum', loaded.x.sum())"
    )
    return started([sys.executable, "-c", code, url, str(count)], stdout=subprocess.PIPE)


def test_a_killed_download_goes_on_from_its_last_record(server, remote, fault, own_cache):
    array = drawings(3000)
    server.remotes["cat"] = remote(npy(array), faults=[fault(stop_after=2_000_000, stall=True)])
    with start_loading(server.url, 3000) as process:
        assert process.stdout
        for line in process.stdout:
            if int(line) == 2_000_000:
                break
        process.send_signal(signal.SIGKILL)
    assert cached(own_cache, "part").stat().st_size >= 1 << 20
    recorded = json.loads(cached(own_cache, "json").read_text())["bytes"]
    assert 1 << 20 <= recorded <= 2_000_000
    np.testing.assert_array_equal(rows_of(load(["cat"], 3000, server.url, retry=HASTY), 0), array)
    assert server.log[1].first == recorded
    assert server.log[1].length == HEADER + array.nbytes - recorded


def test_two_processes_at_once_fetch_once(server, remote):
    array = drawings(2000)
    server.remotes["cat"] = remote(npy(array))
    with start_loading(server.url, 2000) as one, start_loading(server.url, 2000) as other:
        for process in (one, other):
            output, _ = process.communicate(timeout=LONG)
            assert output.splitlines()[-1] == f"sum {array.sum()}"
    assert [request.length for request in server.log] == [HEADER + array.nbytes]


def test_many_threads_at_once_fetch_once(server, remote):
    array = drawings(100)
    server.remotes["cat"] = remote(npy(array))
    with ThreadPoolExecutor(6) as pool:
        for loaded in pool.map(lambda n: load(["cat"], n, server.url, retry=HASTY), [10, 50, 100] * 2):
            np.testing.assert_array_equal(rows_of(loaded, 0), array[: len(loaded.x)])
    assert sum(request.length for request in server.log) == HEADER + 100 * 784


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def as_if_right(file: Path) -> None:
    """Something that is no drawings, though its checksum is right."""
    content = b"no drawings" * 1000
    file.write_bytes(content)
    record_path = file.with_suffix(".json")
    record = json.loads(record_path.read_text())
    record |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    record_path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("ending", "spoil"),
    [
        ("part", flip_a_bit),
        ("part", lambda file: file.write_bytes(file.read_bytes()[:-100])),
        ("part", lambda file: file.write_bytes(b"")),
        ("part", lambda file: file.unlink()),
        ("part", lambda file: file.write_bytes(b"garbage" * 10_000)),
        ("part", as_if_right),
        ("json", lambda file: file.write_bytes(b"\xff\x00garbage")),
        ("json", lambda file: file.write_text("[" * 100_000)),
        ("json", lambda file: file.write_text('{"bytes": 8}')),
        ("json", lambda file: file.write_text("[]")),
        ("json", lambda file: file.write_text(file.read_text().replace('"bytes": ', '"bytes": -'))),
        ("json", lambda file: file.write_text(file.read_text().replace('"sha256": "', '"sha256": "0'))),
        ("json", lambda file: file.unlink()),
    ],
)
def test_a_corrupt_cache_is_repaired(server, remote, own_cache, ending, spoil):
    array = drawings(30)
    server.remotes["cat"] = remote(npy(array))
    load(["cat"], 20, server.url, retry=HASTY)
    spoil(cached(own_cache, ending))
    for count in (20, 20, 25):
        loaded = load(["cat"], count, server.url, retry=HASTY)
        np.testing.assert_array_equal(rows_of(loaded, 0), array[:count])
    assert [request.first for request in server.log] == [0, 0, HEADER + 20 * 784]


def test_bytes_after_the_last_record_do_not_count(server, remote, own_cache):
    array = drawings(30)
    server.remotes["cat"] = remote(npy(array))
    load(["cat"], 20, server.url, retry=HASTY)
    part = cached(own_cache, "part")
    part.write_bytes(part.read_bytes() + b"half-written" * 1000)
    np.testing.assert_array_equal(rows_of(load(["cat"], 30, server.url, retry=HASTY), 0), array)
    assert server.log[1].first == HEADER + 20 * 784


def test_an_etag_garbled_in_the_cache_is_never_sent(server, remote, own_cache):
    array = drawings(30)
    server.remotes["cat"] = remote(npy(array))
    load(["cat"], 20, server.url, retry=HASTY)
    record = cached(own_cache, "json")
    record.write_text(record.read_text().replace(r"\"1\"", r"\"1\n\""))
    np.testing.assert_array_equal(rows_of(load(["cat"], 30, server.url, retry=HASTY), 0), array)
    assert Version(etag='"ä"').condition is None


def test_a_cache_that_cannot_be_written(server, remote, own_cache):
    server.remotes["cat"] = remote(npy(drawings(30)))
    own_cache.write_text("a file in its place")
    with pytest.raises(DataError, match=r"The cache `.*` cannot be used \(.*\): .*`RUDEL_CACHE`"):
        load(["cat"], 20, server.url, retry=HASTY)
    assert not server.log


def test_a_full_disk_is_not_taken_for_a_broken_network(server, remote, own_cache):
    array = drawings(3000)
    server.remotes["cat"] = remote(npy(array))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
    try:
        with pytest.raises(DataError, match=r"The cache `.*` cannot be used \(File too large\)"):
            load(["cat"], 3000, server.url, retry=HASTY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(server.log) == 1
    np.testing.assert_array_equal(rows_of(load(["cat"], 3000, server.url, retry=HASTY), 0), array)
    assert server.log[1].first >= 1 << 20


def test_one_failure_stops_the_downloads_that_stall(server, remote, fault):
    names = ["cat", "dog", "bird", "fish"]
    stalled = [fault(stop_after=900, stall=True)] * 9
    server.remotes = {name: remote(npy(drawings(30)), faults=list(stalled)) for name in names}
    with pytest.raises(DownloadError, match="HTTP 404"):
        load([*names, "apple"], 20, server.url, retry=RetryPolicy(timeout=0.1, attempts=1000, first_delay=0.0))


def test_progress_counts_what_is_there_and_is_silent_where_nothing_travels(server, remote):
    server.remotes = {"cat": remote(npy(drawings(300, 1))), "dog": remote(npy(drawings(8, 2)))}
    load(["cat"], 100, server.url, retry=HASTY)
    calls: list[tuple[int, int]] = []
    load(["cat"], 100, server.url, lambda *call: calls.append(call), HASTY)
    assert not calls
    load(["cat", "dog"], 100, server.url, lambda *call: calls.append(call), HASTY)
    assert calls[-1] == (2 * HEADER + 108 * 784, 2 * HEADER + 108 * 784)
    assert all(done <= total for done, total in calls)


def test_unknown_classes_are_found_before_the_network_is_used(monkeypatch):
    monkeypatch.setattr(urllib.request, "build_opener", lambda: pytest.fail("the network was used"))
    with pytest.raises(OptionError, match=r"no class `air plane`: the nearest of its 345 is `airplane`\."):
        load(["cat", "air plane"], 10)
    with pytest.raises(OptionError, match="`The Mona Lisa`"):
        load(["mona lisa"], 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": []}, "No class was asked for"),
        ({"classes": "cat"}, "No class was asked for"),
        ({"classes": ["cat", "cat"]}, "`cat` was asked for twice"),
        ({"classes": ["../secret"]}, "`../secret` is not a name of a class"),
        ({"classes": [""]}, "`` is not a name of a class"),
        ({"count": 0}, "`count` is 0"),
        ({"source": "ftp://example.com"}, "`ftp://example.com` is not an address"),
        ({"source": "http://"}, "`http://` is not an address"),
        ({"source": "http://example.com:many"}, "is not an address"),
        ({"source": "http://[example.com"}, "is not an address"),
        ({"source": "http://example.com/?folder=drawings"}, r"has a `\?` or `#`"),
    ],
)
def test_arguments_that_cannot_be_used(arguments, message):
    with pytest.raises(OptionError, match=message):
        load(**{"classes": ["cat"], "count": 10, "source": "http://127.0.0.1:9", "retry": HASTY, **arguments})


@pytest.mark.parametrize("below", ["", "full/numpy_bitmap"])
def test_a_local_folder(tmp_path, own_cache, below):
    folder = tmp_path / "drawings" / below
    folder.mkdir(parents=True)
    np.save(folder / "cat.npy", drawings(30, 1))
    np.save(folder / "my own class.npy", drawings(5, 2))
    for source in (tmp_path / "drawings", str(tmp_path / "drawings")):
        loaded = load(["my own class", "cat"], 20, source)
        assert loaded.counts == (5, 20)
        np.testing.assert_array_equal(rows_of(loaded, 0), drawings(5, 2))
        np.testing.assert_array_equal(rows_of(loaded, 1), drawings(30, 1)[:20])
    assert not own_cache.exists()


def test_a_local_folder_that_lacks_something(tmp_path):
    with pytest.raises(DataError, match=r"There is no folder `.*nowhere`"):
        load(["cat"], 20, tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"has no drawings of `cat`.*there are none"):
        load(["cat"], 20, tmp_path)
    np.save(tmp_path / "cat.npy", drawings(30))
    with pytest.raises(DataError, match=r"has no drawings of `dog`, `wolf`.*there are cat"):
        load(["dog", "cat", "wolf"], 20, tmp_path)


def test_drawings_are_in_memory_once(server, remote, tmp_path):
    names = ["cat", "dog", "bird", "fish"]
    for seed, name in enumerate(names):
        np.save(tmp_path / f"{name}.npy", drawings(2000, seed))
        server.remotes[name] = remote((tmp_path / f"{name}.npy").read_bytes())
    load(names, 2000, server.url, retry=HASTY)
    for source in (server.url, tmp_path):
        tracemalloc.start()
        loaded = load(names, 2000, source, retry=HASTY)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < loaded.x.nbytes + loaded.y.nbytes * 2 + 3_000_000


def test_the_classes_of_quick_draw():
    assert len(CATEGORIES) == len(set(CATEGORIES)) == 345
    assert list(CATEGORIES) == sorted(CATEGORIES, key=str.casefold)
    assert {"alarm clock", "The Mona Lisa", "t-shirt", "teddy-bear", "zigzag", *THIRTEEN} <= set(CATEGORIES)
    assert all(name == name.strip() and name for name in CATEGORIES)
    assert "Google" in ATTRIBUTION
    assert "CC BY 4.0" in ATTRIBUTION


def test_any_beginning_of_a_header_is_either_too_short_or_read():
    whole = old_npy(drawings(3))
    assert [parse_header(whole[:length]) for length in range(80)] == [None] * 80
    header = parse_header(whole)
    assert header
    assert (header.rows, header.offset, header.end(2), header.end(9)) == (3, 80, 80 + 2 * 784, len(whole))


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("RUDEL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "rudel"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rudel"


def test_without_a_home_folder_rudel_is_imported_and_says_what_to_set_for_a_cache():
    program = (
        "import pwd; pwd.getpwuid = {}.__getitem__\n"
        "import rudel; from rudel.backend import keras_here; from rudel.cache import cache_folder\n"
        "keras_here(light=True)\n"
        "try:\n    cache_folder()\nexcept rudel.RudelError as error:\n    print(error)"
    )
    environment = {name: value for name, value in os.environ.items() if not re.match("HOME$|RUDEL_|XDG_|JAX_", name)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("name one by RUDEL_CACHE.\n")


def test_real_drawings_from_a_folder_and_over_http(server, remote, shared_data):
    folder = shared_data / "quickdraw"
    local = load(THIRTEEN, 1000, folder)
    assert local.counts == (1000,) * 13
    bicycles = np.load(folder / "full" / "numpy_bitmap" / "bicycle.npy", mmap_mode="r")[:1000]
    np.testing.assert_array_equal(rows_of(local, 4), bicycles)
    assert 20 < local.x.mean() < 80
    for name in THIRTEEN:
        server.remotes[name] = remote((folder / "full" / "numpy_bitmap" / f"{name}.npy").read_bytes())
    fetched = load(THIRTEEN, 1000, server.url, retry=HASTY)
    np.testing.assert_array_equal(fetched.x, local.x)
    np.testing.assert_array_equal(fetched.y, local.y)
    assert server.sent == 13 * (HEADER + 1000 * 784)
    assert threading.active_count() < 20
