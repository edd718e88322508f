"""Several processes train as one does; a job that is sent to hosts arrives as it was."""

import asyncio
import enum
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import cloudpickle
import jax
import keras
import numpy as np
import pytest
from processes import LONG

import rudel
from rudel.cluster.fleet import Fleet
from rudel.data.stream import Stream
from rudel.errors import ClusterError, DataError, ModelError, OptionError
from rudel.loop.model_state import first_line
from rudel.loop.schedule import plan_schedule
from rudel.mesh.hosts import member_service as service
from rudel.mesh.hosts.attempt import Attempt, Heard
from rudel.mesh.hosts.channel import SLICE, Messages, framed, slices
from rudel.mesh.hosts.endings import EndError, end_of, reason_of
from rudel.mesh.hosts.hosts_engine import HostsEngine
from rudel.mesh.hosts.job_parcel import pack, unpack
from rudel.mesh.hosts.join import connect
from rudel.mesh.hosts.lifecycle import is_of_a_connection
from rudel.mesh.hosts.member_messages import Acted, Interrupted, Joined, Moment, Order, Refused
from rudel.mesh.hosts.member_service import Member
from rudel.mesh.hosts.processes import Processes
from rudel.runs.checkpoint import Checkpoint
from rudel.session.job import Job
from rudel.session.session import Session
from rudel.session.training_display import Display
from rudel.shipping import pieces

SETTINGS = {"batch_size": 32, "epochs": 3, "seed": 1, "validation": 0.25}

SCRIPT = """
import json, os, sys
import numpy as np
import rudel
from rudel.backend import keras_on_jax, set_seed

joined = rudel.join()
keras = keras_on_jax(light=True)
set_seed(7)
blobs = np.load(sys.argv[1])
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3, activation="softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
settings = json.loads(sys.argv[3])
history = rudel.fit(model, blobs["x"], blobs["y"], run=sys.argv[2], **settings)
number, refused = joined.number, {}
for case, changed in {
    "run": {"run": sys.argv[2], "strategy": "mesh"},
    "seed": {"seed": number},
    "validation": {"validation": (blobs["x"][number:], blobs["y"][number:])},
    "options": {"strategy": rudel.Mesh(layouts=["kernel=-,data"] if number else None)},
}.items():
    try:
        rudel.fit(model, blobs["x"], blobs["y"], **(settings | changed))
    except rudel.RudelError as error:
        refused[case] = f"{type(error).__name__}: {error}"
print(json.dumps({"number": joined.number, "history": history.history, "refused": refused}), flush=True)


class Fall(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and joined.number == 1:
            os.kill(os.getpid(), 9)

rudel.fit(model, blobs["x"], blobs["y"], callbacks=[Fall()], **settings)
"""


def test_processes_that_tf_config_names_train_as_one_does_until_one_is_lost(
    blobs: tuple[np.ndarray, np.ndarray], classifier: Callable[..., Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "blobs.npz", x=blobs[0], y=blobs[1])
    (tmp_path / "script.py").write_text(SCRIPT)
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    words = [sys.executable, "script.py", "blobs.npz", "run", json.dumps(SETTINGS)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(config), "JAX_PLATFORMS": "cpu"}
        processes.append(
            subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    try:
        ended = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    errors = [error.decode() for _, error in ended]
    assert [process.returncode for process in processes] == [1, -9], errors
    assert errors[0].rstrip().endswith("to continue from the newest checkpoint."), "JAX has aborted it, or it hung"
    documents = [json.loads(output) for output, _ in ended]
    alone = rudel.fit(classifier(), *blobs, **SETTINGS).history
    for index, process in enumerate(documents):
        assert process["number"] == index
        assert f"2 processes, this is number {index}: TF_CONFIG says so" in errors[index]
        assert process["history"].keys() == alone.keys()
        for name, values in alone.items():
            np.testing.assert_allclose(process["history"][name], values, rtol=1e-4, atol=1e-6)
        refused, differs = process["refused"], "ModelError: The hosts see different models: the {} of process 1 differs"
        assert refused["run"].startswith("RunError: run already holds a run")
        assert refused["seed"].startswith(differs.format("seed"))
        assert refused["validation"].startswith(differs.format("validation data (fingerprint)"))
        assert refused["options"].startswith(differs.format("option layouts"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["strategy"] == "mesh"
    assert "2" in summary["strategy_options"]["devices"]
    assert (tmp_path / "run" / "model.keras").is_file()


def test_of_a_host_that_falls_silent_the_others_are_not_blamed() -> None:
    aborted = ["F1122 07:28:04.6 74 client.h:77] Another task died.", "*** Check failure stack trace: ***", "@ 0x7ff31"]
    end = end_of("a", -6, "", aborted)
    assert end.reason == "the process on a ended with code -6: Another task died."
    assert reason_of(end, ()) == end.reason
    assert reason_of(end, ("b",)) == "b does not answer any more"
    assert reason_of(EndError("b", "b has not answered for 10 s", 3), ("b", "c")) == "b has not answered for 10 s"


SPEAKS = """
import sys
from rudel.mesh.hosts.channel import framed
sys.stdout.buffer.write(framed(bytes(3_000_000)))
print("and that was all", file=sys.stderr)
"""
HOSTILE = """
import os, pickle, sys
class Evil:
    def __reduce__(self):
        return os.mkdir, (sys.argv[1],)
content = pickle.dumps(Evil(), protocol=5)
sys.stdout.buffer.write(len(content).to_bytes(8, "little") + content)
sys.stdout.buffer.flush()
sys.stdin.read()
"""
DOES_NOT_END = "import sys; sys.stdin.read()"


async def member_of(code: str, folder: Path, *arguments: Any) -> Member:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *map(str, arguments), stdin=pipe, stdout=pipe, stderr=pipe
    )
    return Member("token", process, str(folder))


def test_long_messages_travel_in_slices(tmp_path: Path) -> None:
    async def heard() -> tuple[list[int], list[Any], dict[str, Any]]:
        member, messages = await member_of(SPEAKS, tmp_path), Messages()
        sizes, found, answer = [], [], {}
        while "code" not in answer:
            answer = await member.hear(LONG)
            sizes.append(len(answer["content"]))
            found += messages.take(answer["content"])
        await member.say(bytes(10))  # to one that has ended, which is no error
        await member.end()
        return sizes, found, answer

    sizes, found, answer = asyncio.run(heard())
    assert max(sizes) <= SLICE < 1e6
    assert found == [bytes(3_000_000)]
    assert (answer["code"], answer["trouble"]) == (0, ["and that was all"])
    content = framed(Joined(2, "cpu")) + framed(bytes(2 * SLICE))
    assert all(len(part) <= SLICE for part in slices(content))
    messages = Messages()
    assert [m for part in slices(content) for m in messages.take(part)] == [Joined(2, "cpu"), bytes(2 * SLICE)]


class Hostile:
    """A worker whose member says what would be run, if it were unpickled."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def call(self, address: str, operation: str, *, timeout: float | None = None, **message: Any) -> Any:
        answers = {"hear": lambda: self._member.hear(LONG), "stop": self._member.end}
        return await answers[operation]()

    def forget(self, address: str) -> None:
        pass


def test_what_a_host_says_is_not_run(tmp_path: Path) -> None:
    heard: list[Any] = []

    async def follow() -> None:
        fleet = Hostile(await member_of(HOSTILE, tmp_path / "folder", tmp_path / "made by a host"))
        checkpoint = Checkpoint(0, {}, {})
        attempt = Attempt(
            cast(Fleet, fleet), {"a": "tls://127.0.0.1:1"}, b"", [], checkpoint, False, None, heard.append
        )
        try:
            await attempt._follow(0, "a")
        finally:
            await attempt._stop("a")

    with pytest.raises(ClusterError, match="a sent something that is not a message"):
        asyncio.run(follow())
    assert not heard
    assert not (tmp_path / "made by a host").exists()


def listed_out(value: Any) -> Any:
    """The same with lists in the place of tuples."""
    if isinstance(value, dict):
        return {key: listed_out(part) for key, part in value.items()}
    return [listed_out(part) for part in value] if isinstance(value, list | tuple) else value


class Drawn(enum.Enum):
    """Something that is not plain data."""

    ONE = 1


def test_messages_arrive_as_they_were_sent() -> None:
    arrays = [np.arange(6, dtype="int8").reshape(2, 3), np.full((), 0.5), np.zeros((0, 4), "bfloat16")]
    checkpoint = Checkpoint(7, {"trainable/0": arrays[0]}, {"records": [{"loss": math.nan}], "stopped": None})
    order = Order(Processes(1, 2, "[::1]:5", "the list of hosts", "::1"), b"code", checkpoint, True, None)
    moment = Moment("on_epoch_end", 3, {"loss": 0.25}, (arrays, [], [], []), True)
    for message in (order, moment, Acted({"optimizer/1": arrays[0]}, True), Refused("DataError", "so."), Interrupted()):
        (same,) = Messages().take(framed(message))
        np.testing.assert_equal(listed_out(asdict(same)), listed_out(asdict(message)))
    (same,) = Messages().take(framed(moment))
    assert [array.dtype for array in same.state[0]] == [array.dtype for array in arrays]
    for wrong in (Drawn.ONE, {1: 2}, Moment, np.array([None])):
        with pytest.raises((TypeError, ValueError)):
            framed(wrong)
    content = framed(moment)
    for damaged in (content[8:-1], b"", bytes(30), content[8:].replace(b"Moment", b"Menace")):
        with pytest.raises(ValueError, match="not a message"):
            list(Messages().take(len(damaged).to_bytes(8, "little") + damaged))


def test_a_host_that_asks_for_another_method_of_callbacks_is_refused(engine: HostsEngine) -> None:
    with pytest.raises(ClusterError, match="asks for the callback `set_model`"):
        engine._take(cast("Any", None), Heard("a", 0, Moment("set_model", None, {}, None, False)))


def test_an_error_in_a_function_that_jax_called_back_says_its_cause() -> None:
    words = "INTERNAL: CpuCallback error: Traceback (most recent call last):\n  File a\n    b\nValueError: no\nmore\n"
    assert first_line(jax.errors.JaxRuntimeError(words)) == "ValueError: no"
    assert first_line(ValueError("Traceback (most recent call last):")) == "Traceback (most recent call last):"


def test_a_member_ends_with_what_was_installed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    async def left() -> int:
        member = await member_of(DOES_NOT_END, tmp_path / "folder")
        installed = service.Service()
        installed._member = member
        await installed.close()
        code = await asyncio.wait_for(member.process.wait(), LONG)
        assert (await member.hear(0))["code"] == code
        return code

    assert asyncio.run(left()) == -signal.SIGKILL
    assert not (tmp_path / "folder").exists()


def test_only_a_lost_connection_is_tried_again() -> None:
    for words in ("Gloo AllReduce failed: Connection closed by peer", "UNAVAILABLE: heartbeat"):
        assert is_of_a_connection(jax.errors.JaxRuntimeError(words))
    assert is_of_a_connection(ConnectionResetError("reset by peer"))
    assert is_of_a_connection(ValueError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer"))
    assert not is_of_a_connection(ValueError("the connection of two layers is not of this shape"))
    for error in (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), PermissionError("data"), OSError()):
        assert not is_of_a_connection(error)


@pytest.fixture
def engine(blobs: tuple[np.ndarray, np.ndarray], classifier: Callable[..., Any]) -> HostsEngine:
    """The engine of a session, before it runs."""
    made = HostsEngine(None, rudel.Mesh())  # type: ignore[arg-type]  # it does not run
    Session(keras, job_of(classifier(), rudel.Examples(*blobs)), None, None, Display(), 0.0, made)
    return made


def test_an_interrupt_waits_for_the_checkpoint_of_member_0(engine: HostsEngine) -> None:
    attempt = cast("Any", None)
    with engine._session.interrupts:
        os.kill(os.getpid(), signal.SIGINT)
    engine._take(attempt, Heard("b", 1, Interrupted()))
    with pytest.raises(KeyboardInterrupt, match=r"Interrupted after 0 of 24 steps\."):
        engine._take(attempt, Heard("a", 0, Interrupted()))


def test_joining_after_jax_has_begun_is_refused() -> None:
    keras.ops.zeros(1)
    with pytest.raises(OptionError, match=r"call rudel.join\(\) at the top of the script"):
        connect(Processes(0, 2, "127.0.0.1:9", "TF_CONFIG"))


def job_of(model: Any, train: Any, validation: Any = None) -> Job:
    return Job(model, train, validation, plan_schedule(len(train), 8, 1, None, 0, True))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_job_arrives_as_it_was() -> None:
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((2,), name="b")}
    joined = keras.layers.Concatenate()([keras.layers.Lambda(lambda value: value * 2.0)(inputs["a"]), inputs["b"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    model.compile(keras.optimizers.Adam(0.25), loss=squared, metrics=["mae"])
    random = np.random.default_rng(0)
    x = {"a": random.normal(size=(50, 4)).astype("float32"), "b": random.integers(0, 9, (50, 2)).astype("uint8")}
    y, weight = random.normal(size=(50, 1)).astype("float32"), np.linspace(0, 1, 50).astype("float32")
    job = job_of(model, rudel.Examples(x, y, weight), rudel.Examples(x, y))
    content, parts = pack(job, rudel.Mesh())
    for piece in parts:
        pieces.keep(piece.name, piece.content())
    same, options = unpack(content)
    assert options == rudel.Mesh()
    assert same.schedule == job.schedule
    assert isinstance(job.train, rudel.Examples)
    assert isinstance(same.train, rudel.Examples)
    for ours, theirs in zip(job.train.named_arrays(), same.train.named_arrays(), strict=True):
        assert ours[0] == theirs[0]
        np.testing.assert_array_equal(ours[1], theirs[1], strict=True)
    assert isinstance(same.validation, rudel.Examples)
    assert same.validation.sample_weight is None
    same.model.set_weights(model.get_weights())
    assert same.model(x) == pytest.approx(np.asarray(model(x)))
    assert float(same.model.optimizer.learning_rate) == pytest.approx(0.25)


@pytest.mark.usefixtures("own_cache")
def test_modules_that_the_user_registered_with_cloudpickle_stay_registered(
    blobs: tuple[np.ndarray, np.ndarray], classifier: Callable[..., Any]
) -> None:
    own = sys.modules[__name__]
    before = cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(own)
    try:
        pack(job_of(classifier(loss=squared), rudel.Examples(*blobs)), rudel.Mesh())
        assert cloudpickle.list_registry_pickle_by_value() == before | {__name__}
    finally:
        if __name__ in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(own)


def squared(y: Any, predicted: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y - predicted), axis=-1)


@pytest.mark.usefixtures("own_cache")
def test_stream_is_read_by_the_host_and_has_to_be_the_same_there(
    listed: Any, blobs: tuple[np.ndarray, np.ndarray], classifier: Callable[..., Any]
) -> None:
    job = job_of(classifier(), listed(*blobs))
    content, parts = pack(job, rudel.Mesh())
    assert not parts
    found = unpack(content)[0].train
    assert isinstance(found, Stream)
    assert found.fingerprint() == listed(*blobs).fingerprint()
    code, parcel = pickle.loads(content)
    other = cloudpickle.dumps((code, replace(parcel, train=replace(parcel.train, fingerprint="another"))))
    with pytest.raises(DataError, match="sees other data"):
        unpack(other)


@pytest.mark.usefixtures("own_cache")
def test_what_cannot_be_sent_is_named(
    blobs: tuple[np.ndarray, np.ndarray], classifier: Callable[..., Any], tmp_path: Path
) -> None:
    def of_a_function(y: Any, predicted: Any) -> Any:
        return keras.ops.mean(y * 0.0 + predicted * handle.fileno(), axis=-1)

    with (tmp_path / "open").open("w") as handle:
        job = job_of(classifier(loss=of_a_function), rudel.Examples(*blobs))
        with pytest.raises(ModelError, match="cannot be sent to other hosts"):
            pack(job, rudel.Mesh())


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
