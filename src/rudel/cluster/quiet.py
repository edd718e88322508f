"""Dask's scheduler and worker without what a small computer on Wi-Fi can do without.

Neither opens a port for HTTP, so that nothing answers without a certificate. Profiling, work stealing and frequent
self-observation are off: each is a wake-up of a processor that has training to do. Memory is not limited here, since a
process that trains holds what it holds. A silent connection is kept for long, because a Wi-Fi that comes back in half a
minute should find its cluster as it left it; who trains decides sooner by itself whom to wait for.
"""

from typing import Any

import dask
from distributed import Scheduler, Worker

dask.config.set(
    {
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.system-monitor.disk": False,
        "distributed.admin.tick.interval": "2s",
        "distributed.admin.tick.limit": "60s",
        "distributed.comm.timeouts.connect": "30s",
        "distributed.comm.timeouts.tcp": "120s",
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.scheduler.http.routes": [],
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.worker-ttl": "300s",
        "distributed.worker.http.routes": [],
        "distributed.worker.profile.enabled": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.terminate": False,
    }
)


class QuietScheduler(Scheduler):
    """A scheduler without an HTTP server."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Opens no port."""


class QuietWorker(Worker):
    """A worker without an HTTP server."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Opens no port."""
