"""What a host with a certificate of the cluster cannot make the driver or another host do."""

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed.comm.core import CommClosedError, connect, listen
from distributed.core import rpc
from distributed.protocol.serialize import ToPickle, to_serialize
from processes import LONG

from rudel.cluster.background import Background
from rudel.cluster.certificates import ENGINE, Authority, Identity
from rudel.cluster.quiet import QuietWorker, scheduler_with
from rudel.cluster.transport import refused_by


class Evil:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> Any:
        return os.makedirs, (self._folder, 0o777, True)


class Attacked:
    """A scheduler and a worker of a cluster, and a host that has got a certificate and does with it what it likes."""

    def __init__(self, background: Background, folder: Path) -> None:
        self.run, self.folder = background.run, folder
        authority = Authority()
        self.driver, self.host = authority.issue("driver", is_driver=True), authority.issue("host")
        self.scheduler: Any = self.run(self._start())
        other = authority.issue("other").security()
        self.worker: Any = self.run(self._work(other))

    async def _start(self) -> Any:
        return await scheduler_with(self.driver.security(), False)

    async def _work(self, security: Any) -> Any:
        address = f"rudel://[::1]:{self.scheduler.port}"
        return await QuietWorker(address, security=security, host="[::1]", nthreads=1, memory_limit=0)

    async def close(self) -> None:
        await self.worker.close()
        await self.scheduler.close()

    @property
    def has_fallen(self) -> bool:
        """Whether something was unpickled."""
        return self.folder.exists()

    async def answer_to(self, port: int, *messages: Any, by: Identity | None = None, at: str = "127.0.0.1") -> Any:
        """Sends messages by plain Dask; returns the last answer, or None where the connection was closed."""
        arguments = (by or self.host).security().get_connection_args("worker")
        comm = await connect(f"tls://{at}:{port}", timeout=LONG, **arguments)
        answer = None
        try:
            for message in messages:
                await comm.write(message)
                answer = await asyncio.wait_for(comm.read(), LONG)
        except CommClosedError:
            return None
        finally:
            comm.abort()
        return answer

    @contextlib.asynccontextmanager
    async def answering(self, answer: Any) -> AsyncIterator[str]:
        """A host that gives this answer to whatever it is asked; yields its address."""

        async def handle(comm: Any) -> None:
            with contextlib.suppress(CommClosedError):
                while True:
                    await comm.read()
                    await comm.write(answer)

        made: Any = listen("tls://127.0.0.1:0", handle, **self.host.security().get_listen_args("worker"))
        async with made as listener:
            yield f"rudel://127.0.0.1:{listener.contact_address.rpartition(':')[2]}"


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Attacked]:
    with Background("attacked") as background:
        made = Attacked(background, tmp_path / "made by a host")
        yield made
        background.run(made.close())


def pickles(folder: Path) -> list[Any]:
    """A pickle in all the ways in which Dask sends one."""
    evil = Evil(folder)
    error = {"status": "uncaught-error", "exception_text": "Evil()", "traceback": None}
    return [
        {"op": "heartbeat_worker", "address": ToPickle(evil)},
        {"op": "heartbeat_worker", "address": to_serialize(evil)},
        {"op": "heartbeat_worker"} | error | {"exception": pickle.dumps(evil)},
        {"op": "heartbeat_worker"} | error | {"exception": to_serialize(pickle.dumps(evil))},
        {"op": "heartbeat_worker"} | error | {"exception": ToPickle(evil), "traceback": pickle.dumps(evil)},
    ]


@pytest.mark.parametrize("which", range(5))
def test_what_a_host_sends_to_the_scheduler_is_not_run(attacked: Attacked, which: int) -> None:
    attacked.run(attacked.answer_to(attacked.scheduler.port, pickles(attacked.folder)[which]))
    assert not attacked.has_fallen


def test_the_same_is_run_where_the_driver_sends_it(attacked: Attacked) -> None:
    """So that the tests beside this one can fail."""
    attacked.run(attacked.answer_to(attacked.scheduler.port, pickles(attacked.folder)[0], by=attacked.driver))
    assert attacked.has_fallen


@pytest.mark.parametrize("role", [ENGINE, "client", "scheduler"])
@pytest.mark.parametrize("which", range(5))
def test_what_a_host_answers_to_the_driver_is_not_run(attacked: Attacked, which: int, role: str) -> None:
    async def ask() -> None:
        async with attacked.answering(pickles(attacked.folder)[which]) as address:
            caller = rpc(address, connection_args=attacked.driver.security().get_connection_args(role))
            with contextlib.suppress(Exception):  # those that are errors
                await caller.anything()
            await caller.close_rpc()

    attacked.run(ask())
    assert not attacked.has_fallen


@pytest.mark.parametrize("which", range(5))
def test_what_a_host_answers_by_way_of_the_scheduler_is_not_run(attacked: Attacked, which: int) -> None:
    async def ask() -> None:
        async with attacked.answering(pickles(attacked.folder)[which]) as address:
            arguments = attacked.driver.security().get_connection_args(ENGINE)
            caller: Any = rpc(f"rudel://127.0.0.1:{attacked.scheduler.port}", connection_args=arguments)
            with contextlib.suppress(Exception):
                await caller.proxy(worker=address, msg={"op": "anything"})
            await caller.close_rpc()

    attacked.run(ask())
    assert not attacked.has_fallen


def requests(folder: Path) -> list[dict[str, Any]]:
    """What a client of Dask's may ask a scheduler for, as it would."""
    evil = pickle.dumps(Evil(folder))
    return [
        {"op": "register-client", "client": "evil", "versions": {}},
        {"op": "run_function", "function": evil},
        {"op": "feed", "function": evil},
        {"op": "register_scheduler_plugin", "plugin": evil},
        {"op": "register_worker_plugin", "plugin": evil, "name": "evil"},
        {"op": "broadcast", "msg": {"op": "run", "function": evil}},
        {"op": "proxy", "worker": "rudel://127.0.0.1:1", "msg": {}},
        {"op": "terminate"},
        {"op": "identity"},
    ]


@pytest.mark.parametrize("which", range(9))
def test_a_host_is_no_client(attacked: Attacked, which: int) -> None:
    assert attacked.run(attacked.answer_to(attacked.scheduler.port, requests(attacked.folder)[which])) is None
    assert not attacked.has_fallen
    assert attacked.run(attacked.answer_to(attacked.scheduler.port, {"op": "identity"}, by=attacked.driver))["workers"]


def test_a_worker_tells_and_does_not_ask(attacked: Attacked) -> None:
    """On the connection on which it has registered, a client's messages are passed over."""
    answered: list[Any] = []
    attacked.scheduler.stream_handlers["update-graph"] = lambda **message: answered.append("graph")
    attacked.scheduler.stream_handlers["keep-alive"] = lambda **message: answered.append("keep-alive")

    async def talk() -> None:
        for op in ("update-graph", "keep-alive"):
            attacked.worker.batched_stream.send({"op": op})
        async with asyncio.timeout(LONG):
            while "keep-alive" not in answered:
                await asyncio.sleep(0.01)

    attacked.run(talk())
    assert answered == ["keep-alive"]


@pytest.mark.parametrize("op", ["run", "plugin-add", "terminate", "upload_file"])
def test_a_host_does_not_command_another(attacked: Attacked, op: str) -> None:
    port, evil = attacked.worker.port, pickle.dumps(Evil(attacked.folder))
    assert attacked.run(attacked.answer_to(port, {"op": op, "function": evil, "plugin": evil}, at="[::1]")) is None
    assert attacked.run(attacked.answer_to(port, {"op": "ping"}, at="[::1]", by=attacked.driver)) == b"pong"
    assert not attacked.has_fallen


def _client_hello() -> bytes:
    """How a client begins a TLS connection."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def test_strangers_are_counted_and_told_in_one_line(attacked: Attacked, caplog: pytest.LogCaptureFixture) -> None:

    async def wait(reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG):
            while not reached():
                await asyncio.sleep(0.01)

    scheduler = attacked.scheduler
    with caplog.at_level(logging.WARNING):
        for goodbye in (b"", bytes.fromhex("15030300020100")):  # TLS's alert close_notify
            with socket.create_connection(("127.0.0.1", scheduler.port), LONG) as raw:
                raw.sendall(_client_hello() + goodbye)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(1 << 16):
                    pass
        for address, count in (("127.0.0.1", 200), ("::1", 40)):
            for _ in range(count):
                with contextlib.suppress(OSError), socket.create_connection((address, scheduler.port), LONG) as raw:
                    raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    raw.recv(100)
        attacked.run(wait(lambda: "240 conn" in refused_by(scheduler)))
    assert refused_by(scheduler) == (
        "240 connections without a certificate of this cluster were refused, from 127.0.0.1 (200) and ::1 (40)."
    )
    assert caplog.text == ""
    assert refused_by(attacked.worker) == ""
