"""Streams on several hosts: pieces are read when a host needs them, and live on its disk where memory is short."""

import json
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.errors import ClusterError, DataError
from rudel.loop.model_state import ModelState
from rudel.replicas.host_checks import belongs_on_disk, check_disk, check_memory
from rudel.shipping.host_examples import Leaf, Shard

random = np.random.default_rng(11)
X = random.normal(size=(1280, 6)).astype("float32")
Y = (X[:, 0] > 0).astype("int64") + 2 * (X[:, 1] > 0)
SHORT = rudel.Diloco(round_steps=16)


def network() -> Any:
    set_seed(2)
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4, activation="softmax")]
    )
    model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def describe_little_memory() -> None:
    from rudel.replicas import replica_service as service

    original = service._describe
    little = {"memory": 260e6}  # less than what a worker takes before it has a model
    service._describe = lambda backend: original(backend) | little


def files_without_names() -> int:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return sum("(deleted)" in os.readlink(link) for link in links if os.path.lexists(link))  # noqa: PTH115


def test_a_stream_is_learned_as_well_as_arrays_and_each_host_gets_its_part(
    crew: Any, listed: Any, tmp_path: Path
) -> None:
    validation = (X[:256], Y[:256])
    settings = {"validation": validation, "epochs": 20, "client": crew.client, "strategy": SHORT}
    in_memory = rudel.fit(network(), X, Y, **settings).history["val_accuracy"]
    before = {path.name for path in crew.folder.glob("cache/pieces/*")}
    stream = listed(X, Y)
    streamed = rudel.fit(network(), stream, run=tmp_path, **settings).history["val_accuracy"]
    assert min(in_memory[-1], streamed[-1]) > 0.9
    assert max(streamed) > max(in_memory) - 0.04, "the best of both, as merges that come late let the last ones sway"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["hosts"], summary["workers_lost"]) == (["a", "b"], 0)
    shipped = [indices for indices in stream.asked if 1 < len(indices) <= 40]
    assert sorted(np.concatenate(shipped)) == sorted([*range(32), *range(1280)]), (
        "the model's first batch, and all once"
    )
    assert len({path.name for path in crew.folder.glob("cache/pieces/*")} - before) == 32
    stream.asked.clear()
    rudel.fit(network(), stream, steps=64, client=crew.client, strategy=SHORT)
    assert sum(len(indices) for indices in stream.asked) < 40, "hosts that have their part are not sent it again"


def test_hosts_with_little_memory_keep_their_part_on_disk(crew: Any, listed: Any, monkeypatch: Any) -> None:
    crew.only("a")
    monkeypatch.setattr("rudel.replicas.host_checks._SPARE_BYTES", 200e6)
    crew.client.run(describe_little_memory)
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.extend(crew.client.run(files_without_names).values())

    history = rudel.fit(
        network(), listed(X, Y), validation=(X, Y), epochs=10, client=crew.client, strategy=SHORT, callbacks=[Look()]
    )
    crew.kill("a")
    assert seen
    assert min(seen) >= 2, "inputs and labels"
    assert history.history["val_accuracy"][-1] > 0.9


def test_batches_of_a_generator_are_evaluated_in_their_order(crew: Any) -> None:
    model = network()
    model.compile(keras.optimizers.SGD(0.0), model.loss)
    batches = [(X[:32] * scale, Y[:32]) for scale in (1, 2, 3)]
    expected = [rudel.evaluate(model, *batch)["loss"] for batch in batches]
    settings = {"validation_data": iter(batches), "validation_steps": 1, "client": crew.client, "strategy": SHORT}
    history = rudel.fit(model, X, Y, epochs=3, **settings)
    np.testing.assert_allclose(history.history["val_loss"], expected, rtol=1e-5)


def test_an_example_that_cannot_be_read_is_told(crew: Any, listed: Any) -> None:
    def fail(indices: np.ndarray) -> None:
        if 700 in indices and len(indices) > 1:
            raise DataError("shard.tfrecord is truncated at byte 1,234.")

    with pytest.raises(DataError, match=r"^shard\.tfrecord is truncated at byte 1,234\.$"):
        rudel.fit(network(), listed(X + 1, Y, before=fail), client=crew.client, strategy=SHORT)


def test_data_that_does_not_fit_in_memory_goes_to_disk_and_what_does_not_fit_there_is_told() -> None:
    host = {"name": "raspi1", "memory": 1e9, "disk": 20e9}
    state = ModelState([np.empty(1000, np.float32)], [], [np.empty(2000, np.float32)], [])
    assert not belongs_on_disk(host, state, 0.2e9, 0.8e9)
    assert belongs_on_disk(host, state, 0.7e9, 0.9e9)
    assert belongs_on_disk(host, state, 0.2e9, 1.1e9)
    check_memory(host, state, 0)
    check_disk(host, 19e9)
    with pytest.raises(ClusterError, match=r"raspi1 has 20.0 GB free on its disk, and its share .* takes 21.0 GB"):
        check_disk(host, 21e9)


def test_a_shard_on_disk_takes_room_where_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    shard = Shard(10**9, [Leaf((1000,), "uint8"), Leaf((), "int32")], 4, 0, 0, True, on_disk=True)
    rows = [np.full((8, 1000), 7, np.uint8), np.arange(8, dtype=np.int32)]
    shard.write((500_000_000, 500_000_008), rows)
    shard.blank()
    for array, part in zip(shard.arrays, rows, strict=True):
        np.testing.assert_array_equal(array[500_000_000:500_000_008], part)
        assert not array[500_000_100:500_000_108].any()
    assert not list(tmp_path.iterdir())
