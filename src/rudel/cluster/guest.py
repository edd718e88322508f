"""The service that a training installs on a worker, for as long as its driver sends heartbeats.

A worker serves one driver at a time: a second one is refused as long as the first is alive. The driver renews its claim
every few seconds. Once it has fallen silent, another driver may replace it, and a worker that hears nothing for minutes
frees what was installed by itself: a driver that was killed leaves nothing on workers that belong to somebody else. One
that never renews its claim gave up while it installed: that is freed within seconds.

Limit: whoever can reach a Dask worker can install anything on it; this is for those who share one in good faith.
"""

import asyncio
import logging
import os
import platform
import secrets
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from distributed.diagnostics.plugin import WorkerPlugin

from rudel.cluster.hosts import local_user
from rudel.cluster.line import Line
from rudel.errors import RudelError

if TYPE_CHECKING:
    from distributed import Worker

RENEW_SECONDS = 2.0
"""Time between two renewals of a driver's claim."""

SILENT_SECONDS = 10.0
"""A driver that was not heard of for so long may be replaced by another."""

ABANDONED_SECONDS = 120.0
"""After so long without a word from the driver, a worker frees what was installed on it."""

_log = logging.getLogger(__name__)


class Gone(ConnectionError):  # noqa: N818  # like ConnectionError's other kinds, it says what happened
    """The service that a driver had installed on a worker is not there any more."""

    def __init__(self) -> None:
        super().__init__("the worker was restarted, or had not heard of the driver for long")


class Service(Protocol):
    """The operations of a guest on a worker: methods that are called by name, and `close`.

    One that has a method `listen` can be sent bytes over a line: it is called with what sends bytes back, from any
    thread, and returns what is called with those that come.
    """

    async def close(self) -> None:
        """Ends whatever it does, and frees its memory."""


class Guest(WorkerPlugin):
    """A service on a worker that belongs to one driver; see the module.

    Args:
        make: makes the service, on the worker; pickled.
        operations: names of the service's methods that the driver calls.
        purpose: what it is for, to stand in a sentence: `a training`.
    """

    def __init__(self, make: Callable[[], Service], operations: Sequence[str], purpose: str) -> None:
        self.name = f"rudel-{secrets.token_hex(8)}"
        self.holder = {
            "purpose": purpose,
            "user": local_user(),
            "host": platform.node(),
            "process": os.getpid(),
        }
        self._make, self._operations = make, tuple(operations)
        self._silent, self._abandoned = SILENT_SECONDS, ABANDONED_SECONDS
        self._limit = self._silent  # until it is renewed, as a driver does at once that has not given up
        self._service: Service | None = None
        self._line: Line | None = None
        self._heard = 0.0

    async def setup(self, worker: "Worker") -> None:
        """Called by Dask on the worker; nothing becomes of it where this guest, or another driver's, is in use."""
        key = next(key for key, plugin in worker.plugins.items() if plugin is self)
        while other := _guest_of(worker):
            if other.name == self.name or other.quiet_for < self._silent:
                del worker.plugins[key]
                return
            _log.warning("replacing %s, which was not heard of for %.0f s", other.holder, other.quiet_for)
            await worker.plugin_remove(other.name)
        worker.plugins[self.name] = worker.plugins.pop(key)
        self._heard, self._service = time.monotonic(), self._make()
        self.operations = {name: getattr(self._service, name) for name in self._operations}
        worker.handlers.update(rudel_renew=self._renew, rudel_call=self._call, rudel_line=self._open_line)
        self._watchdog = asyncio.create_task(self._watch(worker))

    async def teardown(self, worker: "Worker") -> None:
        """Called by Dask on the worker, when the guest is removed or the worker ends."""
        service, self._service = self._service, None
        if service is None:
            return
        for name in ("rudel_renew", "rudel_call", "rudel_line"):
            worker.handlers.pop(name, None)
        self._hang_up()
        if self._watchdog is not asyncio.current_task():
            self._watchdog.cancel()
        await service.close()

    @property
    def quiet_for(self) -> float:
        """Seconds since the driver was heard of."""
        return time.monotonic() - self._heard

    @property
    def is_in_use(self) -> bool:
        """Whether its service is there."""
        return self._service is not None

    async def _renew(self, guest: str) -> dict[str, Any]:
        """Renews the claim of a driver, if it is the one of this guest; says whose it is otherwise."""
        if guest != self.name:
            return {"holder": self.holder, "quiet_for": self.quiet_for}
        self._heard, self._limit = time.monotonic(), self._abandoned
        return {"result": None}

    async def _call(self, guest: str, operation: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Calls a method of the service; errors are data, so that they cannot be taken for those of the network."""
        answer = await self._renew(guest)
        if guest != self.name:
            return answer
        try:
            return {"result": await self.operations[operation](**message)}
        except Gone:
            return None
        except RudelError as error:
            return {"error": type(error).__name__, "text": str(error)}
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error), "traceback": traceback.format_exc()}

    async def _open_line(self, comm: Any, guest: str) -> None:
        """Makes a line to the service of the connection on which this was requested, in the place of another one.

        The first message on it says whether it is one: it has the text of the guest's name.
        """
        from rudel.internals.dask import detached

        if guest != self.name or not (connection := detached(comm)):
            comm.abort()
            return
        self._hang_up()
        service: Any = self._service
        line = Line(connection, lambda message: receive(message), lambda: None)
        receive = service.listen(line.send)
        self._line = line
        line.send(self.name.encode())

    def _hang_up(self) -> None:
        if self._line:
            self._line.close()
        self._line = None

    async def _watch(self, worker: "Worker") -> None:
        """Frees the worker when the driver has been silent for too long."""
        while (left := self._limit - self.quiet_for) > 0:
            await asyncio.sleep(left)
        _log.warning("freeing the worker: %s was not heard of for %.0f s", self.holder, self.quiet_for)
        await worker.plugin_remove(self.name)


def _guest_of(worker: "Worker") -> Guest | None:
    """The guest of a worker that is in use, if there is one."""
    return next((p for p in worker.plugins.values() if isinstance(p, Guest) and p.is_in_use), None)
