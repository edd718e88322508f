"""Undocumented parts of Dask distributed that Rudel uses: how messages reach workers, and are read."""

import inspect
import ssl
import struct
from typing import Any

import msgpack
from distributed import Scheduler, Worker
from distributed.comm import registry, tcp
from distributed.comm.core import CommClosedError, connect
from distributed.core import Server, Status, clean_exception, rpc
from distributed.protocol import core as protocol
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import Serialize, Serialized
from distributed.protocol.utils import msgpack_opts, unpack_frames
from tornado.iostream import IOStream, SSLIOStream, StreamClosedError

from rudel.internals import mentions, require

__all__ = [
    "TLS", "CommClosedError", "Serialized", "Status", "TLSConnector", "TLSListener", "close_at_once", "connect",
    "detached", "error_of", "is_broken", "msgpack_opts", "read_frames", "register", "rpc", "serialize_plugin",
]  # fmt: skip


def _message_has_known_form() -> bool:
    """Whether messages mark what is not plain data as Rudel expects, and lay it out so."""
    frames = protocol.dumps({"value": Serialize(1), "set": {1}, "status": Status.closed})
    header: Any = msgpack.loads(frames[1], use_list=False, **msgpack_opts)
    return header["num-sub-frames"] == len(frames) - 2 and msgpack.loads(frames[0], **msgpack_opts) == {
        "value": {"__Serialized__": 1},
        "set": {"__Set__": True, "as-list": [1]},
        "status": {
            "__Enum__": True, "__name__": Status.__name__, "__module__": Status.__module__, "name": Status.closed.name,
        },
    }  # fmt: skip


require(
    "distributed",
    {
        "rpc.comms": "comms" in rpc.__init__.__code__.co_names,
        "rpc.close_rpc": hasattr(rpc, "close_rpc"),
        "Status.closed": hasattr(Status, "closed"),
        "Worker.plugin_add": hasattr(Worker, "plugin_add") and hasattr(Worker, "plugin_remove"),
        "Worker.start_http_server": hasattr(Worker, "start_http_server"),
        "Server.handle_comm": hasattr(Worker, "handle_comm") and mentions(Server.listen, "handle_comm"),
        "Scheduler.proxy": hasattr(Scheduler, "proxy"),
        "Scheduler.add_worker": "versions" in inspect.signature(Scheduler.add_worker).parameters,
        "Scheduler.heartbeat_worker": hasattr(Scheduler, "heartbeat_worker"),
        "comm.registry.backends": isinstance(getattr(registry, "backends", None), dict),
        "TCP._finalizer": mentions(tcp.TCP.abort, "_finalizer", "stream", "_closed"),
        "IOStream.io_loop": mentions(IOStream.__bases__[0].__init__, "io_loop"),
        "comm.tcp.read_bytes_rw": hasattr(tcp, "read_bytes_rw"),
        "comm.tcp.convert_stream_closed_error": hasattr(tcp, "convert_stream_closed_error"),
        "TLS.read": mentions(tcp.TLS.read, "stream", "read_bytes_rw", "unpack_frames", "_closed", "deserialize"),
        "TLS._read_extra": mentions(getattr(tcp.TLS, "_read_extra", None), "_extra", "getpeercert"),
        "TLSConnector.connect": mentions(tcp.TLSConnector.connect, "prefix", "comm_class"),
        "TLSListener._prepare_stream": mentions(getattr(tcp.TLSListener, "_prepare_stream", None), "wait_for_handshake")
        and mentions(getattr(tcp.TLSListener, "_handle_stream", None), "_prepare_stream", "prefix", "comm_class"),
        "TLSBackend._connector_class": hasattr(tcp.TLSBackend, "_connector_class"),
        "TLSBackend._listener_class": hasattr(tcp.TLSBackend, "_listener_class"),
        "protocol.dumps": _message_has_known_form(),
    },
)

TLS, TLSConnector = tcp.TLS, tcp.TLSConnector
_LENGTH = struct.Struct("Q")


def serialize_plugin(plugin: object) -> bytes:
    """A plugin as a worker's operation `plugin-add` takes it."""
    return dumps(plugin)


def error_of(answer: dict[str, Any]) -> Any:
    """The error in a worker's answer of status "error"."""
    return clean_exception(**answer)[1]


def is_broken(caller: rpc) -> bool:
    """Whether all connections of an `rpc` are closed; Dask would try for seconds to connect again."""
    return bool(caller.comms) and all(comm.closed() for comm in caller.comms)


def close_at_once(caller: Any) -> None:
    """Closes the connections of an `rpc` without waiting for the other side."""
    for comm in list(caller.comms):
        comm.abort()
    caller.comms.clear()
    caller.status = Status.closed  # otherwise it warns when it is collected


def detached(comm: Any) -> Any:
    """The socket of a connection on which nobody reads or writes at the moment, which Dask then forgets.

    Returns:
        The socket, not blocking; None where the connection has none, as one within a process.
    """
    stream = getattr(comm, "stream", None)
    if not isinstance(stream, IOStream) or not hasattr(stream.socket, "recv"):
        return None
    stream.set_close_callback(None)
    stream.io_loop.remove_handler(stream.fileno())
    connection, comm.stream, comm._closed = stream.socket, None, True
    comm._finalizer.detach()
    return connection


async def read_frames(comm: Any) -> list[Any]:
    """The parts of the next message on a connection, as `distributed.protocol.dumps` makes them; nothing is unpickled.

    Raises:
        CommClosedError: the connection was lost.
    """
    stream = comm.stream
    if stream is None:
        raise CommClosedError(f"in {comm}: closed")
    try:
        (length,) = _LENGTH.unpack(await stream.read_bytes(_LENGTH.size))
        frames, lengths = unpack_frames(await tcp.read_bytes_rw(stream, length), partial=True)
        return [*frames, *[await tcp.read_bytes_rw(stream, each) for each in lengths]]
    except (StreamClosedError, ssl.SSLError) as error:
        comm.stream, comm._closed = None, True
        tcp.convert_stream_closed_error(comm, error)
        raise
    except BaseException:
        comm.abort()
        raise


class TLSListener(tcp.TLSListener):
    """Dask's, which calls `refuse` for a connection that does not become one, in the place of logging it."""

    def refuse(self, address: str) -> None:
        """Takes note of a connection from this address without a certificate of the cluster.

        Args:
            address: with scheme and port.
        """

    async def _prepare_stream(self, stream: SSLIOStream, address: str) -> SSLIOStream | None:
        try:
            await stream.wait_for_handshake()
        except OSError:
            # Who gives up in the middle, as Dask does to try again when a computer is busy, is no stranger.
            gave_up = isinstance(stream.error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
            if isinstance(stream.error, ssl.SSLError) and not gave_up:
                self.refuse(address)
            return None
        return stream


def register(scheme: str, connector: type[tcp.TLSConnector], listener: type[TLSListener]) -> None:
    """Lets Dask connect and listen by these classes at addresses that begin with the scheme."""
    kind = type("Backend", (tcp.TLSBackend,), {"_connector_class": connector, "_listener_class": listener})
    registry.backends[scheme] = kind()
