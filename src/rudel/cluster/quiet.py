"""Dask's scheduler and worker without their background traffic and work, which cost a small computer on Wi-Fi much.

Neither opens a port for HTTP, so that nothing answers without a certificate. Profiling, work stealing and frequent
self-observation are off: each is a wake-up of a processor that has training to do. Memory is not limited here, since a
process that trains holds what it holds. A silent connection is kept for long, because a Wi-Fi that comes back in half a
minute should find its cluster as it left it; who trains decides sooner by itself whom to wait for.

These are settings of a whole process: they hold while one of its blocks of `quiet` lasts.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dask.config
from distributed import Scheduler, Worker
from distributed.versions import get_versions

from rudel.cluster.transport import SCHEME
from rudel.counted_context import CountedContext

if TYPE_CHECKING:
    from distributed.security import Security

DASHBOARD_PORT = 8787

_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")
_log = logging.getLogger(__name__)


class _Aside(logging.Handler):
    """Passes what Dask logs on to Rudel's log, as information: which hosts are lost, Rudel reports itself."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.info("%s: %s", record.name, record.getMessage(), exc_info=record.exc_info)


_ROUTES = "distributed.scheduler.http.routes"

_SETTINGS = {
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.tick.limit": "60s",
    "distributed.comm.timeouts.connect": "30s",
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "300s",
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
}


@contextlib.contextmanager
def quiet(log: logging.Handler) -> Iterator[None]:
    """Inside the block, Dask works in this process as the module says, and its log goes to one handler alone."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers[:], logger.propagate = [log], False
    loggers[0].setLevel(logging.WARNING)
    try:
        with dask.config.set(_SETTINGS):
            yield
    finally:
        for logger, (level, handlers, propagates) in zip(loggers, before, strict=True):
            added = [handler for handler in logger.handlers if handler is not log]
            logger.handlers[:], logger.propagate = handlers + added, propagates
            logger.setLevel(level)


QUIET_DRIVER = CountedContext(lambda: quiet(_Aside()))
"""What a driver is in while its cluster runs."""


HEARTBEAT_SECONDS = 10.0
"""Seconds between a worker's heartbeats to the scheduler; each costs a small computer milliseconds."""


_OF_A_HOST = (
    *("register-worker", "heartbeat_worker", "keep-alive", "worker-status-change", "close-stream"),
    *("task-finished", "task-erred", "long-running", "reschedule"),
    *("add-keys", "release-worker-data", "request-refresh-who-has"),
)
"""Operations that a host may call on the scheduler."""

_OF_ANOTHER_HOST = ("get_data",)
"""Operations that a host may call on the worker of another: it may fetch results of tasks."""


class GuardedScheduler(Scheduler):
    """A scheduler for which hosts are workers and not clients, and to which they report seldom.

    Which versions have to be alike, Rudel checks before a host takes part. Dask would warn of the last number of
    Python's version, and of packages that training does not use; so the scheduler takes all versions for its own.
    """

    def handle_comm(self, comm: Any) -> Any:
        """Answers a connection."""
        comm.allow(_OF_A_HOST)
        return super().handle_comm(comm)

    async def add_worker(self, comm: Any, *, versions: Any, **about: Any) -> None:
        """Takes a worker in."""
        await super().add_worker(comm, versions=get_versions(), **about)

    def heartbeat_worker(self, *arguments: Any, **options: Any) -> Any:
        """Answers a worker, and tells it when to report again."""
        answer = super().heartbeat_worker(*arguments, **options)
        return answer | {"heartbeat-interval": HEARTBEAT_SECONDS}


class QuietScheduler(GuardedScheduler):
    """A scheduler without an HTTP server."""

    def start_http_server(self, *arguments: object, **options: object) -> None:
        """Opens no port."""


def scheduler_with(security: "Security", dashboard: bool) -> Scheduler:
    """A scheduler that listens on all networks, by IPv4 and IPv6 at one port.

    Args:
        security: of the driver.
        dashboard: whether it has the dashboard, on this computer alone.
    """
    listening = {"protocol": SCHEME, "host": "", "port": 0, "security": security}
    if not dashboard:
        with dask.config.set({_ROUTES: []}):
            return QuietScheduler(**listening, dashboard=False, dashboard_address=None)
    return GuardedScheduler(**listening, dashboard=True, dashboard_address=f"127.0.0.1:{DASHBOARD_PORT}")


class QuietWorker(Worker):
    """A worker without an HTTP server, which obeys the driver alone."""

    def handle_comm(self, comm: Any) -> Any:
        """Answers a connection."""
        comm.allow(_OF_ANOTHER_HOST)
        return super().handle_comm(comm)

    def start_http_server(self, *arguments: object, **options: object) -> None:
        """Opens no port."""
