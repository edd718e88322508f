"""Workers that examine pictures for a conversion: lost, missing, or without what they need."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from PIL import Image

from rudel.cluster import calls
from rudel.cluster.calls import Calls
from rudel.cluster.examine_images import ImageWorkers, image_workers
from rudel.data.images.convert import convert
from rudel.data.images.examined_image import NOT_AN_IMAGE, Refused
from rudel.errors import ClusterError


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Dask cluster of somebody else's, with two workers."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn")
    random = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (root / name).mkdir()
        for number in range(150):
            coarse = Image.fromarray(random.integers(0, 255, (4, 5, 3), dtype=np.uint8))
            coarse.resize((50, 40)).save(root / name / f"{number:03}.jpg")
    Image.new("RGB", (2000, 2000), "teal").save(root / "ant" / "large.bmp")  # 12 MB, more than Dask likes to send
    (root / "bee" / "text.jpg").write_text("no picture")
    return root


def contents_of(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tfrecord")}


def test_the_records_are_those_that_one_computer_makes(cluster: Any, drawn: Path, tmp_path: Path) -> None:
    alone = convert(drawn, tmp_path / "alone", max_side=45)
    with image_workers(scheduler=cluster.scheduler_address) as workers:
        assert workers is not None
        assert workers.threads == 4
        together = convert(drawn, tmp_path / "together", max_side=45, spread=workers)
    assert together.left_out == alone.left_out
    assert contents_of(together.path) == contents_of(alone.path)


def test_files_come_back_in_their_order(cluster: Any) -> None:
    with Client(cluster, set_as_default=False) as client:
        found = ImageWorkers(client)([b"x", b"y" * 999], None)
    assert found == [Refused(NOT_AN_IMAGE), Refused(NOT_AN_IMAGE)]


def test_nobody_comes_back() -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match="All workers are lost, and none came back in 0 s"),
    ):
        ImageWorkers(client, timeout=0)([b"x"], None)


def test_a_worker_without_pillow(cluster: Any, drawn: Path) -> None:
    def hide() -> None:
        import sys

        sys.modules["PIL"] = None  # type: ignore[assignment]

    def show() -> None:
        import sys

        del sys.modules["PIL"]

    with Client(cluster, set_as_default=False) as client:
        client.run(hide)
        try:
            with pytest.raises(ClusterError, match="install Rudel there, with Pillow"):
                ImageWorkers(client)([(drawn / "ant/000.jpg").read_bytes()], None)
        finally:
            client.run(show)


def test_here_nobody_is_needed() -> None:
    with image_workers() as workers:
        assert workers is None


def test_what_a_lost_worker_had_is_done_by_another(cluster: Any, drawn: Path, tmp_path: Path) -> None:
    alone = convert(drawn, tmp_path / "alone", max_side=45)
    killed = threading.Event()

    def progress(done: int, total: int) -> None:
        if not killed.is_set():
            killed.set()
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

    with image_workers(scheduler=cluster.scheduler_address) as workers:
        together = convert(drawn, tmp_path / "together", max_side=45, spread=workers, progress=progress)
    assert killed.is_set()
    assert contents_of(together.path) == contents_of(alone.path)


def test_results_that_are_long_on_their_way_are_waited_for(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __reduce__(self) -> tuple[Any, ...]:
            time.sleep(0.6)  # as a slow link makes it
            return int, (3,)

    monkeypatch.setattr(calls, "_GLANCE_SECONDS", 0.2)
    with Client(cluster, set_as_default=False) as client, ThreadPoolExecutor(2) as threads:
        call = Calls(client, "examine images", "continues")
        assert list(threads.map(lambda _: call(Slow), range(2))) == [3, 3]
