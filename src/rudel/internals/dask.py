"""What Rudel uses of Dask distributed that Dask does not document: how messages reach workers."""

from typing import Any

from distributed import Scheduler, Worker
from distributed.comm.core import connect
from distributed.core import Status, clean_exception, rpc
from distributed.protocol.pickle import dumps

from rudel.internals import require

__all__ = ["close_at_once", "connect", "error_of", "is_broken", "rpc", "serialize_plugin"]


def serialize_plugin(plugin: Any) -> Any:
    """A plugin as a worker's operation `plugin-add` takes it."""
    return dumps(plugin)


def error_of(answer: dict[str, Any]) -> Any:
    """The error in a worker's answer of status "error"."""
    return clean_exception(**answer)[1]


def is_broken(caller: Any) -> bool:
    """Whether all connections of an `rpc` are closed; Dask would try for seconds to connect again."""
    return bool(caller.comms) and all(comm.closed() for comm in caller.comms)


def close_at_once(caller: Any) -> None:
    """Closes the connections of an `rpc` without waiting for the other side."""
    for comm in list(caller.comms):
        comm.abort()
    caller.comms.clear()
    caller.status = Status.closed  # otherwise it warns when it is collected


require(
    "distributed",
    {
        "rpc.comms": "comms" in rpc.__init__.__code__.co_names,
        "rpc.close_rpc": hasattr(rpc, "close_rpc"),
        "Status.closed": hasattr(Status, "closed"),
        "Worker.plugin_add": hasattr(Worker, "plugin_add") and hasattr(Worker, "plugin_remove"),
        "Worker.start_http_server": hasattr(Worker, "start_http_server"),
        "Scheduler.proxy": hasattr(Scheduler, "proxy"),
        "Scheduler.heartbeat_worker": hasattr(Scheduler, "heartbeat_worker"),
    },
)
