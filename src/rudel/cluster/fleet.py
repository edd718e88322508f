"""Workers as a strategy sees them: names, addresses, calls; whether Rudel started them or somebody else's Dask.

A strategy registers handlers on the workers (`install`), follows who is there (`members`, `changed`) and calls.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from rudel.errors import ClusterError

_LEAVING_SECONDS = 2.0


class Fleet:
    """The workers of a Dask client.

    Args:
        client: an asynchronous `distributed.Client`, or a synchronous one whose loop runs elsewhere.
        names: what to call workers, by address; others are called by their address.
        borrowed: whether they are somebody else's, who gets them back as they were.
    """

    def __init__(self, client: Any, names: Mapping[str, str] | None = None, borrowed: bool = False) -> None:
        self._client, self._borrowed = client, borrowed
        self._names = names or {}
        self._direct: dict[str, bool] = {}
        self._callers: dict[str, Any] = {}

    async def members(self) -> dict[str, str]:
        """Addresses of the workers that are there now, by name."""
        try:
            found = await self._client.scheduler.identity(n_workers=-1)
        except OSError as error:
            raise ClusterError(f"The Dask scheduler does not answer any more ({error}).") from error
        return {
            self._names.get(address, str(worker.get("name", address))): address
            for address, worker in found["workers"].items()
        }

    async def install(self, plugin: Any) -> None:
        """Sets a plugin up on all workers, also on those that come later.

        Raises:
            ClusterError: a worker cannot: mostly because it has no Rudel, or another one.
        """
        try:
            answers = await self._client.scheduler.register_worker_plugin(
                plugin=_dumped(plugin), name=plugin.name, idempotent=False
            )
        except Exception as error:
            raise ClusterError(
                f"The workers cannot load Rudel ({error}): install it there, in this version."
            ) from error
        for address, answer in answers.items():
            if answer["status"] == "error":
                raise ClusterError(
                    f"The worker {self._names.get(address, address)} cannot load Rudel ({_reason(answer)}): install it "
                    "there, in the same version as here."
                )

    async def uninstall(self, name: str) -> None:
        """Takes a plugin away from borrowed workers, as far as they are there; who is silent is not waited for."""
        if not self._borrowed:
            return
        with contextlib.suppress(OSError, ValueError):
            await asyncio.wait_for(self._client.scheduler.unregister_worker_plugin(name=name), _LEAVING_SECONDS)

    async def call(self, address: str, operation: str, *, timeout: float | None = None, **message: Any) -> Any:
        """Calls a handler on a worker, directly where it can be reached, else by way of the scheduler.

        Raises:
            OSError: the connection was lost or cannot be made.
            TimeoutError: there was no answer in time.
            Exception: what the handler raised.
        """
        return await asyncio.wait_for(self._call(address, operation, message), timeout)

    async def _call(self, address: str, operation: str, message: dict[str, Any]) -> Any:
        from distributed.core import rpc

        if address not in self._direct:
            self._direct[address] = await self._reachable(address)
        if not self._direct[address]:
            return await self._client.scheduler.proxy(worker=address, msg={"op": operation, **message})
        caller = self._callers.get(address)
        if caller is None:
            caller = rpc(address, timeout=5, connection_args=self._client.security.get_connection_args("client"))
            self._callers[address] = caller
        if caller.comms and all(comm.closed() for comm in caller.comms):  # Dask would try for seconds to connect anew
            raise ConnectionResetError(f"the connection to {address} broke off")
        return await getattr(caller, operation)(**message)

    def forget(self, address: str) -> None:
        """Drops the connections to a worker that was lost; the next call makes new ones."""
        from distributed.core import Status

        self._direct.pop(address, None)
        caller = self._callers.pop(address, None)
        if caller:
            for comm in list(caller.comms):
                comm.abort()
            caller.comms.clear()
            caller.status = Status.closed  # or else it complains when it is collected

    async def close(self) -> None:
        """Closes the connections to all workers."""
        callers, self._callers = self._callers, {}
        await asyncio.gather(*(caller.close_rpc() for caller in callers.values()), return_exceptions=True)

    async def _reachable(self, address: str) -> bool:
        from distributed.comm.core import connect

        arguments = self._client.security.get_connection_args("client")
        try:
            comm = await connect(address, timeout=5, **arguments)
        except OSError:
            return False
        comm.abort()
        return True


def _dumped(plugin: Any) -> Any:
    from distributed.protocol.pickle import dumps

    return dumps(plugin)


def _reason(answer: Any) -> str:
    from distributed.core import clean_exception

    error = clean_exception(**answer)[1]
    return f"{type(error).__name__}: {error}"
