import functools
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from processes import started

import rudel
from rudel.data.photographs import decode
from rudel.data.records.delegation import Delegation
from rudel.data.records.example_features import Features
from rudel.data.records.rows import row_of
from rudel.data.records.writer import write_examples
from rudel.errors import DataError
from rudel.recipes.load import find_recipe

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are for Linux and macOS")

COUNT = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of JPEGs of 40x30 pixels, with labels."""
    rng = np.random.default_rng(0)

    def encoded() -> bytes:
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8)).save(file, "JPEG")
        return file.getvalue()

    folder = tmp_path_factory.mktemp("processes")
    write_examples(folder, ({"image": encoded(), "label": i} for i in range(COUNT)), shards=2)
    return folder


def in_processes(folder: Path, function: Callable[[Any], Any], workers: int = 2) -> rudel.Records:
    return rudel.Records(folder, workers=workers, processes=True).map(function)


def process_of(features: dict[str, Any]) -> tuple[np.int64, np.int64]:
    return np.int64(os.getpid()), features["label"]


process_of.__module__ = "__main__"  # so that it is pickled by value, as functions of scripts are


def where(records: rudel.Records) -> set[int]:
    """The processes that its functions run in."""
    return set(np.unique(records.take(slice(0, COUNT)).x).tolist())


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_from_processes_are_those_from_threads(folder: Path, workers: int) -> None:
    def flipped(features: dict[str, Any]) -> Any:
        pixels = decode(features["image"], 24, 24)
        return {"pixels": pixels[:, ::-1], "mean": np.float32(pixels.mean()), "name": [features["label"]] * 2}

    def pair(value: dict[str, Any]) -> Any:
        return value, value["pixels"].std(axis=(0, 1)), np.float32(0.5)

    indices = np.random.default_rng(1).permutation(COUNT)
    threads = rudel.Records(folder, processes=False).map(flipped).map(pair).take(indices)
    processes = in_processes(folder, flipped, workers).map(pair)
    for _ in range(2):
        taken = processes.take(indices)
        for (name, ours), (other, theirs) in zip(taken.named_arrays(), threads.named_arrays(), strict=True):
            assert name == other
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes()
            assert ours.ctypes.data % 64 == 0
    batches = processes.shuffle(3).batch(16).prefetch(4)
    alone = rudel.Records(folder, processes=False).map(flipped).map(pair).shuffle(3).batch(16)
    for batch, other in zip(batches, alone, strict=True):
        np.testing.assert_array_equal(batch.x["pixels"], other.x["pixels"])


@pytest.mark.parametrize("processes", [False, True])
def test_a_map_function_may_take_other_records(folder: Path, tmp_path: Path, processes: bool) -> None:
    write_examples(tmp_path, ({"place": i} for i in range(COUNT)))
    labels = rudel.Records(folder, workers=2, processes=processes).map(lambda features: features["label"])

    def pair(features: dict[str, Any]) -> np.ndarray:
        return labels.take(np.arange(40) + features["place"] % 80).x

    pairs = rudel.Records(tmp_path, workers=2, processes=False).map(pair)
    wanted = labels.take(slice(None)).x
    found = pairs.take(slice(None)).x
    np.testing.assert_array_equal(found, [wanted[place % 80 : place % 80 + 40] for place in range(COUNT)])


def test_all_records_share_the_processes(folder: Path) -> None:
    pids = set().union(*(where(in_processes(folder, process_of)) for _ in range(8)))
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_rows_that_become_larger(folder: Path) -> None:
    def size_of(side: int) -> Callable[[Any], Any]:
        return lambda features: np.full((side, side), int(features["label"]), np.float32)

    for side in (2, 900, 3):
        pixels = in_processes(folder, size_of(side)).take(slice(0, 30)).x
        np.testing.assert_array_equal(
            pixels[:, -1, -1], rudel.Records(folder, features=["label"]).take(slice(0, 30)).x["label"]
        )


def test_errors_are_those_of_threads(folder: Path) -> None:
    def refusing(features: dict[str, Any]) -> Any:
        if features["label"] == 71:
            raise DataError("a bad label")
        if features["label"] == 72:
            raise ZeroDivisionError("a bug")
        return np.zeros(3 if features["label"] == 73 else 2)

    records = in_processes(folder, refusing)
    threads = rudel.Records(folder, processes=False).map(refusing)
    order = rudel.Records(folder, features=["label"]).in_memory().x["label"]
    for label, kind in ((71, DataError), (72, ZeroDivisionError), (73, DataError)):
        good = [place for place in range(60) if order[place] not in (71, 72, 73)]
        chosen = np.array([*good, int(np.flatnonzero(order == label)[0])])
        messages = []
        for stream in (records, threads):
            with pytest.raises(kind) as error:
                stream.take(chosen)
            messages.append((str(error.value), getattr(error.value, "__notes__", [])))
        assert messages[0] == messages[1]
        assert "the record at byte" in str(messages[0]).lower()
        assert records.take(np.array(good)).x.shape == (len(good), 2)
    assert where(in_processes(folder, process_of)) - {os.getpid()}


def test_a_process_that_is_killed_at_work_is_told_and_an_idle_one_replaced(folder: Path) -> None:
    here = os.getpid()

    def deadly(features: dict[str, Any]) -> Any:
        if features["label"] == 50 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return features["label"]

    records = in_processes(folder, deadly)
    with pytest.raises(DataError, match=r"was killed by SIGKILL: there may be too little memory; .* processes=False"):
        records.take(slice(0, COUNT))
    (idle, *_) = where(in_processes(folder, process_of))
    os.kill(idle, signal.SIGKILL)  # one that has nothing to do
    os.waitid(os.P_PID, idle, os.WEXITED | os.WNOWAIT)
    found = where(in_processes(folder, process_of))
    assert found
    assert not found & {idle, here}


def test_what_cannot_be_pickled_or_is_only_here_runs_in_threads(folder: Path) -> None:
    lock = threading.Lock()

    def locked(features: dict[str, Any]) -> Any:
        with lock:
            return process_of(features)

    assert where(in_processes(folder, locked)) == {os.getpid()}
    here = os.getpid()

    def particular(features: dict[str, Any]) -> Any:
        if os.getpid() != here:
            sys.exit("not here")
        return process_of(features)

    records = in_processes(folder, particular)
    assert where(records) == {here}
    assert where(records) == {here}


def test_functions_of_recipe_files_travel_by_value(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("import os\ndef pid(): return os.getpid()\n")
    recipe = tmp_path / "shapes.py"
    recipe.write_text(
        "import numpy as np\nfrom neighbour import pid\nBY = 2\n"
        "def helper(value): return value * BY\n"
        "def example(features, by): return np.int64(pid()), helper(features['label']) * by\n"
        "def data(): ...\ndef model(dataset): ...\n"
    )
    try:
        function = functools.partial(find_recipe(str(recipe)).module.example, by=5)
        records = in_processes(folder, function)
        assert os.getpid() not in where(records)
        labels = rudel.Records(folder, features=["label"]).take(slice(0, COUNT)).x["label"]
        np.testing.assert_array_equal(records.take(slice(0, COUNT)).y, labels * 10)
    finally:
        sys.path.remove(str(tmp_path))
        importlib.invalidate_caches()


def test_processes_are_for_functions_that_compute_long() -> None:
    def task(delegation: Delegation) -> Any:
        return delegation.task(Features(), (len,), row_of(np.int64(1)))

    several = Delegation(None, 2)
    assert task(several) is None
    several.note(1.9, 1000)
    assert task(several) is None
    several.note(0.2, 100)
    assert task(several)
    several.note(0, 1_000_000)
    assert task(several), "it stays so"
    cheap, single, never = Delegation(None, 2), Delegation(None, 1), Delegation(False, 2)
    cheap.note(9, 1_000_000)
    for other in (single, never):
        other.note(9, 1000)
    assert [task(other) for other in (cheap, single, never)] == [None] * 3


SCRIPT = """
import os, sys, time, warnings
import numpy as np
import rudel

def where(features):
    import sys
    assert not {"jax", "keras"} & sys.modules.keys()
    return np.int64(os.getpid())

records = rudel.Records(sys.argv[1], workers=2, processes=True).map(where)
print(*set(records.take(slice(0, 100)).x.tolist()) - {os.getpid()}, flush=True)
if sys.argv[2] == "stay":
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_processes_end_with_the_one_that_uses_them(folder: Path, tmp_path: Path, killed: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-W", "error", str(script), str(folder), "stay" if killed else "end"]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert pids
        if killed:
            process.kill()
        # they hold the same standard output: its end is theirs
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""
    assert process.returncode == (-signal.SIGKILL if killed else 0)
