"""The workers of a training: names, addresses and calls, on Rudel's own cluster or on any Dask cluster.

A strategy installs a guest on the workers for as long as a block lasts (`installed`), lists the workers (`members`),
and calls the guest's operations. Whatever ends the block, the workers are left as they were: at once by the driver
itself, or by the guest's watchdog if the driver was killed.
"""

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any

from rudel.cluster.guest import RENEW_SECONDS, Gone, Guest
from rudel.cluster.line import Talk
from rudel.cluster.link import acknowledged
from rudel.errors import ClusterError, error_named

TRANSPORT_ERRORS = (OSError,)
"""Errors of calls where the network or the worker failed, and only there: time-outs and Dask's CommClosedError are
OSErrors, while errors of the operation itself come as `RudelError` or `OperationError`."""

_LEAVING_SECONDS = 5.0
_LINE_SECONDS = 10.0
_RENEWAL_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_log = logging.getLogger(__name__)


class OperationError(Exception):
    """An operation failed on a worker by an error that nobody foresaw; its traceback there is a note of this.

    Args:
        host: the worker's name.
        kind, text: of the error.
        traceback: of the error, as text.
    """

    def __init__(self, host: str, kind: str, text: str, traceback: str) -> None:
        super().__init__(f"{kind}: {text} (on {host})")
        self.text = text
        self.add_note(f"On {host}:\n{traceback}")


class NoLineError(Exception):
    """There can be no line to a worker: it is reached through the scheduler only, or not over TCP."""


class Fleet:
    """The workers of a Dask client.

    Args:
        client: an asynchronous `distributed.Client`, or a synchronous one whose loop runs elsewhere.
        proxied: whether the scheduler passes calls on to workers that cannot be reached from here. It is useless where
            the scheduler is in this process, and errors of the network come back as text.
    """

    def __init__(self, client: Any, proxied: bool) -> None:
        self._client, self._proxied = client, proxied
        self._guest: Guest | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._names: dict[str, str] = {}
        self._direct: dict[str, bool] = {}
        self._given: set[str] = set()
        self._ready: set[str] = set()
        self._callers: dict[str, Any] = {}
        self._calls: set[asyncio.Task[Any]] = set()
        self._talks: dict[str, Talk] = {}

    async def members(self) -> dict[str, str]:
        """Addresses of the workers that are there now, by name.

        Raises:
            ClusterError: the scheduler does not answer.
        """
        try:
            found = await self._client.scheduler.identity(n_workers=-1)
        except OSError as error:
            raise ClusterError(f"The Dask scheduler does not answer any more ({error}).") from error
        members = {str(worker.get("name", address)): address for address, worker in found["workers"].items()}
        self._names |= {address: name for name, address in members.items()}
        return members

    async def install(self, guest: Guest, addresses: Iterable[str]) -> None:
        """Installs a guest on workers, and on any others when they are called; renews the claim to them all.

        Args:
            guest: what to install.
            addresses: of the workers; those that are lost meanwhile are passed over.

        Raises:
            ClusterError: somebody else uses one of them, or it has no Rudel, or another one.
        """
        self._guest = guest
        self._renewing = asyncio.create_task(self._renew(guest.name))
        wanted = sorted(addresses)
        for first in wanted[:1]:  # before the others, so that of two drivers who begin at once, one is not refused
            await self._install_if_there(first, guest)
        others = (self._install_if_there(address, guest) for address in wanted[1:])
        results = await asyncio.gather(*others, return_exceptions=True)
        for error in filter(None, results):
            raise error

    async def uninstall(self) -> None:
        """Ends all calls, removes the guest from workers, as far as they answer, and closes the connections to them."""
        guest, self._guest = self._guest, None
        going_on = [*self._calls, *filter(None, [self._renewing])]
        for task in going_on:  # a call that went on would install the guest again
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)
        if guest:
            await asyncio.gather(*(self._remove(address, guest) for address in self._given))
        self._given.clear()
        self._ready.clear()
        for address in list(self._talks):
            self._hang_up(address)
        callers, self._callers = self._callers, {}
        await asyncio.gather(*(caller.close_rpc() for caller in callers.values()), return_exceptions=True)

    async def call(self, address: str, operation: str, *, timeout: float | None = None, **message: Any) -> Any:
        """Calls an operation of the guest on a worker, directly where it can be reached, else through the scheduler.

        Raises:
            OSError: the connection was lost or cannot be made; `Gone` where the guest is not there any more.
            TimeoutError: there was no answer in time.
            RudelError: the operation raised it, or the worker is used by somebody else.
            OperationError: the operation failed by another error.
            CancelledError: the guest was uninstalled meanwhile.
        """
        task = asyncio.create_task(self._call(self._present(), address, operation, message))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        async with asyncio.timeout(timeout):
            return await task

    async def ask(self, address: str, message: bytes) -> bytes:
        """Sends bytes to the guest's service on a worker over a line, and returns those that come next from there.

        Raises:
            NoLineError: there can be none to this worker: call an operation instead.
            OSError: the connection was lost or cannot be made.
            CancelledError: the guest was uninstalled meanwhile.
        """
        talk = self._talks.get(address)
        if talk is None:
            talk = self._talks[address] = await self._open_line(address)
        return await talk.ask(message)

    async def _open_line(self, address: str) -> Talk:
        from rudel.internals.dask import connect, detached

        guest = self._present()
        if not self._direct.get(address, not self._proxied):
            raise NoLineError
        comm = await connect(address, timeout=5, **self._client.security.get_connection_args("client"))
        await comm.write({"op": "rudel_line", "guest": guest.name, "reply": False})
        connection = detached(comm)
        if connection is None:
            comm.abort()
            raise NoLineError
        talk = Talk(connection)
        try:
            async with asyncio.timeout(_LINE_SECONDS):
                name = await talk.next()
            if name != guest.name.encode():
                raise Gone
        except BaseException:
            talk.close()
            raise
        return talk

    def _hang_up(self, address: str) -> None:
        if talk := self._talks.pop(address, None):
            talk.close()

    def is_ready(self, address: str) -> bool:
        """Whether the guest is on a worker, as far as is known."""
        return address in self._ready

    def delivered(self) -> int | None:
        """Bytes that workers have received over the open connections, TLS included; None where no kernel says so."""
        comms = [comm for caller in list(self._callers.values()) for comm in list(caller.comms)]
        sockets = [getattr(getattr(comm, "stream", None), "socket", None) for comm in comms]  # none once it is closed
        known = [count for socket in sockets if socket and (count := acknowledged(socket)) is not None]
        return sum(known) if known else None

    def forget(self, address: str) -> None:
        """Drops the connections to a worker that was lost; the next call makes new ones."""
        self._direct.pop(address, None)
        self._given.discard(address)
        self._ready.discard(address)
        self._hang_up(address)
        self._disconnect(address)

    def _disconnect(self, address: str) -> None:
        from rudel.internals.dask import close_at_once

        caller = self._callers.pop(address, None)
        if caller:
            close_at_once(caller)

    def _present(self) -> Guest:
        """The guest.

        Raises:
            CancelledError: it was uninstalled meanwhile.
        """
        if self._guest is None:
            raise asyncio.CancelledError
        return self._guest

    async def _call(self, guest: Guest, address: str, operation: str, message: dict[str, Any]) -> Any:
        if address not in self._ready:
            await self._install(address, guest)
        answer = await self._send(address, "rudel_call", guest=guest.name, operation=operation, message=message)
        if answer is None:  # Dask's answer where there is no such handler
            self._ready.discard(address)
            raise Gone
        if "holder" in answer:
            raise self._busy(address, answer["holder"])
        if "error" in answer:
            raise error_of(answer, self._name_of(address))
        return answer["result"]

    async def _install(self, address: str, guest: Guest) -> None:
        """Installs the guest on a worker, unless it is there; waits until it is clear whether another's driver lives.

        Raises:
            OSError: the worker cannot be reached.
            ClusterError: somebody else uses it, or it cannot load Rudel.
        """
        began = heard = math.inf
        while True:
            await self._add(address, guest)
            asked = time.monotonic()
            began = min(began, asked)  # what a driver that is gone now has sent before has mostly been read by then
            answer = await self._send(address, "rudel_renew", guest=guest.name)
            if answer is None:  # it was freed in between
                continue
            if "result" in answer:
                self._ready.add(address)
                return
            quiet_for, answered = answer["quiet_for"], time.monotonic()
            if quiet_for < asked - began:  # heard of since, however long the answer took
                if heard < asked - quiet_for - RENEW_SECONDS / 2:  # twice: not only of what TCP delivered late, at once
                    self._given.discard(address)
                    raise self._busy(address, answer["holder"])
                heard = min(heard, answered - quiet_for)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _add(self, address: str, guest: Guest) -> None:
        from rudel.internals.dask import serialize_plugin

        self._given.add(address)
        name = f"{guest.name}-{secrets.token_hex(4)}"  # Dask would tear down what has the same one
        try:
            answer = await self._send(address, "plugin-add", plugin=serialize_plugin(guest), name=name)
        except TRANSPORT_ERRORS:
            raise
        except Exception as error:  # the worker cannot unpickle it
            raise _no_rudel(self._name_of(address), f"{type(error).__name__}: {error}") from error
        if answer["status"] == "error":
            raise _no_rudel(self._name_of(address), _reason(answer))

    async def _install_if_there(self, address: str, guest: Guest) -> None:
        with contextlib.suppress(*TRANSPORT_ERRORS):
            await self._install(address, guest)

    async def _remove(self, address: str, guest: Guest) -> None:
        self._disconnect(address)  # a call that was given up has closed its connection, though the worker is there
        try:
            async with asyncio.timeout(_LEAVING_SECONDS):
                await self._send(address, "plugin-remove", name=guest.name)
        except TRANSPORT_ERRORS as error:
            _log.info("%s does not answer (%s): it frees itself after a while", self._name_of(address), error)

    async def _renew(self, guest: str) -> None:
        """Renews the claim of a guest of this name to all workers from time to time."""

        async def renew(address: str) -> None:
            try:
                async with asyncio.timeout(_RENEWAL_SECONDS):
                    await self._send(address, "rudel_renew", guest=guest)
            except TRANSPORT_ERRORS as error:  # the next call to it fails, too
                _log.info("the claim to %s was not renewed: %s", self._name_of(address), error)

        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await asyncio.gather(*map(renew, self._ready))

    async def _send(self, address: str, op: str, **message: Any) -> Any:
        """Sends a message to a worker, and returns its answer.

        Raises:
            OSError: the connection was lost or cannot be made.
        """
        from rudel.internals.dask import is_broken, rpc

        if address not in self._direct:
            self._direct[address] = not self._proxied or await self._reachable(address)
        if not self._direct[address]:
            return await self._client.scheduler.proxy(worker=address, msg={"op": op, **message})
        caller = self._callers.get(address)
        if caller is None:
            caller = rpc(address, timeout=5, connection_args=self._client.security.get_connection_args("client"))
            self._callers[address] = caller
        if is_broken(caller):
            raise ConnectionResetError(f"the connection to {address} was closed")
        return await getattr(caller, op)(**message)

    def _name_of(self, address: str) -> str:
        return self._names.get(address, address)

    def _busy(self, address: str, holder: dict[str, Any]) -> ClusterError:
        return ClusterError(
            f"{self._name_of(address)} is in use: {holder['purpose']} of {holder['user']}@{holder['host']} (process "
            f"{holder['process']}) runs on it. Wait until that has ended, or use other hosts."
        )

    async def _reachable(self, address: str) -> bool:
        from rudel.internals.dask import connect

        arguments = self._client.security.get_connection_args("client")
        try:
            comm = await connect(address, timeout=5, **arguments)
        except OSError:
            return False
        comm.abort()
        return True


@contextlib.contextmanager
def installed(cluster: Any, guest: Guest) -> Iterator[Any]:
    """The workers of a cluster, with a guest on all of them while the block lasts.

    Args:
        cluster: a running `rudel.Cluster`, a `rudel.cluster.ssh_cluster.ClientCluster`, or a `ClusterSubset`.
        guest: what to install.

    Raises:
        ClusterError: what `Fleet.install` raises.
    """
    background, fleet = cluster.background, cluster.fleet

    async def install() -> None:
        await fleet.install(guest, (await fleet.members()).values())

    installing = background.start(install())
    try:
        installing.result()
        yield fleet
    finally:
        installing.cancel()
        background.start(fleet.uninstall()).result()


def error_of(answer: dict[str, Any], name: str) -> Exception:
    """The error that an operation raised on a worker.

    Args:
        answer: the error's name, its text, and its traceback unless it is one of Rudel's.
        name: of the worker.
    """
    if "traceback" in answer:
        return OperationError(name, answer["error"], answer["text"], answer["traceback"])
    return error_named(answer["error"])(answer["text"])


def _no_rudel(name: str, reason: str) -> ClusterError:
    return ClusterError(
        f"The worker {name} cannot load Rudel ({reason}): install it there, in the same version as here."
    )


def _reason(answer: Any) -> str:
    from rudel.internals.dask import error_of

    error = error_of(answer)
    return f"{type(error).__name__}: {error}"
