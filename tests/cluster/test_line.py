"""Messages over a connection that was Dask's: whole, in order, both ways at once, of any size, from any thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from distributed.comm.core import connect, listen
from processes import LONG

from rudel.cluster.certificates import Authority
from rudel.cluster.line import Line, Talk
from rudel.internals.dask import detached

Ends = tuple[Line, "asyncio.Queue[bytes | None]", Any]


@asynccontextmanager
async def line_and_comm(scheme: str) -> AsyncIterator[Ends]:
    """The listener's end of a connection as a line, with what comes there, None last, and the other as Dask's."""
    security = Authority().issue("driver", is_driver=True).security()
    serving, listening = (
        (security.get_connection_args("client"), security.get_listen_args("worker")) if scheme != "tcp" else ({}, {})
    )
    came: asyncio.Queue[bytes | None] = asyncio.Queue()
    lines: asyncio.Queue[Line] = asyncio.Queue()

    async def take(comm: Any) -> None:
        await comm.read()
        lines.put_nowait(Line(detached(comm), came.put_nowait, lambda: came.put_nowait(None)))

    listener: Any = listen(f"{scheme}://127.0.0.1:0", take, **listening)
    async with listener:
        comm = await connect(listener.contact_address, **serving)
        await comm.write({"op": "anything"})
        yield await lines.get(), came, comm


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), LONG))


SCHEMES = pytest.mark.parametrize("scheme", ["tcp", "tls"])


@SCHEMES
def test_messages_of_any_size_go_both_ways_at_once(scheme: str) -> None:
    messages = [bytes([size % 251]) * size for size in (0, 1, 3, 4, 5, 70_000, 30_000_000, 2, 1 << 18, 9)]

    async def work() -> None:
        async with line_and_comm(scheme) as (line, came, comm):
            talk = Talk(detached(comm))
            sending = threading.Thread(target=lambda: [line.send(message) for message in messages])
            sending.start()
            for message in messages:
                talk._line.send(message)
            assert [await talk.next() for _ in messages] == messages
            assert [await came.get() for _ in messages] == messages
            sending.join()
            talk.close()
            assert await came.get() is None
            with pytest.raises(ConnectionError):
                line.send(b"too late")

    run(work)


@SCHEMES
def test_who_waits_for_an_answer_hears_of_the_end(scheme: str) -> None:
    async def work() -> None:
        async with line_and_comm(scheme) as (line, came, comm):
            talk = Talk(detached(comm))
            asking = asyncio.ensure_future(talk.ask(b"a question"))
            assert await came.get() == b"a question"
            line.close()
            for ask in (asking, talk.ask(b"another")):
                with pytest.raises(ConnectionError):
                    await ask
            assert talk.closed

    run(work)


def test_a_connection_within_a_process_cannot_be_a_line() -> None:
    async def work() -> None:
        async def take(comm: Any) -> None:
            await comm.close()

        listener: Any = listen("inproc://", take)
        async with listener:
            comm = await connect(listener.contact_address)
            assert detached(comm) is None
            await comm.close()

    run(work)
