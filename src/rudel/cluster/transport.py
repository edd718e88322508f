"""Dask's connections within a cluster of Rudel's own: mutual TLS, on which a host cannot make the driver run anything.

Dask unpickles what it reads, so whoever may send a message may run code. Certificates say who is the driver and who is
a host (`certificates.py`), and on a connection to a host, messages are read as plain data: whatever is pickled in them
is dropped, or, by the scheduler, passed on unopened to the clients that requested it. A host that has connected may
only ask for what its worker needs (`allow`). Addresses begin with `rudel://`.

Limit: hosts read the results of each other's tasks as Dask does; only clients of the user's own start tasks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from rudel.cluster.certificates import Plain, is_of_a_host
from rudel.internals.dask import (
    TLS,
    CommClosedError,
    Serialized,
    Status,
    TLSConnector,
    TLSListener,
    msgpack_opts,
    read_frames,
    register,
)

SCHEME = "rudel"

_MOST_NAMED = 3


class Connection(TLS):
    """A connection that may read plain data only, and answer some requests only."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_of_a_host = is_of_a_host(self.extra_info["peercert"])
        self.is_plain = self.is_of_a_host
        self._allowed: frozenset[str] | None = None

    def allow(self, operations: Iterable[str]) -> None:
        """Refuses all operations but these from now on, if the other end is a host."""
        if self.is_of_a_host:
            self._allowed = frozenset(operations)

    async def read(self, deserializers: Sequence[str] | None = None) -> Any:
        """See `distributed.comm.Comm`.

        Raises:
            CommClosedError: the connection was lost, or the host sent or asked for what it may not.
        """
        if not self.is_plain:
            return await super().read(deserializers)
        frames = await read_frames(self)
        try:
            return self._permitted(plain(frames, passed_on=not self.deserialize))
        except Exception as error:
            self.abort()
            raise CommClosedError(f"in {self}: a message that is not permitted: {error}") from error

    def _permitted(self, message: object) -> Any:
        """The message; of a stream of them, those that are allowed.

        Raises:
            PermissionError: a request is not.
        """
        if self._allowed is None:
            return message
        if isinstance(message, list | tuple):
            return tuple(each for each in message if not isinstance(each, dict) or each.get("op") in self._allowed)
        if isinstance(message, dict) and message.get("op") not in self._allowed:
            raise PermissionError(f"the operation {message.get('op')!r} of a host")
        return message


def plain(frames: Sequence[Any], passed_on: bool) -> Any:
    """Reads a message of Dask's as plain data: nothing in it is unpickled, and no class or module is looked up.

    Args:
        frames: its parts, as `distributed.protocol.dumps` makes them.
        passed_on: whether parts that are serialised stay as they are, for somebody else to open.

    Returns:
        The message, with None in the place of what is pickled. Exceptions are their texts.

    Raises:
        Exception: the message is damaged.
    """

    def read(found: dict[Any, Any]) -> Any:
        if "__Pickled__" in found:
            return None
        if "__Serialized__" in found:
            return _unopened(frames, found["__Serialized__"]) if passed_on else None
        if "__Enum__" in found:
            return Status[found["name"]] if found["__name__"] == Status.__name__ else None
        if "__Set__" in found:
            return set(found["as-list"])
        if "exception" in found and not isinstance(found["exception"], Serialized):  # bytes would be unpickled
            text = found.get("exception_text")
            found |= {"exception": text if isinstance(text, str) else "an error", "traceback": None}
        return found

    return msgpack.loads(frames[0], object_hook=read, use_list=False, **msgpack_opts)


def _unopened(frames: Sequence[Any], offset: int) -> Serialized:
    header: Any = msgpack.loads(frames[offset], use_list=False, **msgpack_opts)
    return Serialized(header, frames[offset + 1 : offset + 1 + header["num-sub-frames"]])


class _Connector(TLSConnector):
    prefix = f"{SCHEME}://"
    comm_class = Connection

    async def connect(self, address: str, deserialize: bool = True, **arguments: Any) -> Connection:
        comm = await super().connect(address, deserialize, **arguments)
        wanted = arguments["plain"]
        comm.is_plain = wanted is Plain.ALL or (wanted is Plain.HOSTS and comm.is_of_a_host)
        return comm


class Listener(TLSListener):
    """Counts who is refused, by address, in the place of a line for each."""

    prefix = f"{SCHEME}://"
    comm_class = Connection

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.refused: Counter[str] = Counter()

    def refuse(self, address: str) -> None:
        """Counts one."""
        self.refused[address.removeprefix(self.prefix).rpartition(":")[0].strip("[]")] += 1


register(SCHEME, _Connector, Listener)


def refused_by(server: Any) -> str:
    """A sentence on the connections that a Dask server has refused; empty if there were none.

    >>> from types import SimpleNamespace
    >>> refused_by(SimpleNamespace(listeners=[SimpleNamespace(refused=Counter({"10.0.0.9": 7, "::1": 1}))]))
    '8 connections without a certificate of this cluster were refused, from 10.0.0.9 (7) and ::1 (1).'
    """
    refused = sum((listener.refused for listener in server.listeners), Counter())
    if not refused:
        return ""
    named = [f"{address} ({count:,})" for address, count in refused.most_common(_MOST_NAMED)]
    if (others := len(refused) - _MOST_NAMED) > 0:
        named.append(f"{others:,} other addresses")
    count, where = refused.total(), " and ".join([", ".join(named[:-1]), named[-1]] if named[1:] else named)
    connections = "1 connection" if count == 1 else f"{count:,} connections"
    were = "was" if count == 1 else "were"
    return f"{connections} without a certificate of this cluster {were} refused, from {where}."
