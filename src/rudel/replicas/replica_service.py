"""A replica as seen over the network: what a Dask worker does for a coordinator; see `rudel.cluster.guest`."""

import asyncio
import contextlib
import functools
import os
import platform
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rudel.cache import cache_folder, cache_place
from rudel.cluster.guest import Gone, Guest
from rudel.cores import usable_cores
from rudel.errors import ClusterError
from rudel.limits import memory_left
from rudel.replicas.replica import Replica
from rudel.replicas.replica_messages import Answer, Merge, Setup, Snapshot, packed_answer, unpacked_request
from rudel.shipping import pieces
from rudel.shipping.host_packages import LOADED_BYTES, versions_here

_OPERATIONS = (
    "describe", "probe", "missing", "piece", "load", "prepare", "rehearse", "restore", "join", "exchange",
)  # fmt: skip


def replica_guest(backend: str = "jax", purpose: str = "a training") -> Guest:
    """The service of replicas, as it is installed on workers.

    Args:
        backend: of Keras, by which they are to train.
        purpose: what for.
    """
    return Guest(functools.partial(Service, backend), _OPERATIONS, purpose)


class Service:
    """The service of a worker for a coordinator; one training at a time.

    Args:
        backend: of Keras, by which it is to train.
    """

    def __init__(self, backend: str = "jax") -> None:
        self._backend = backend
        self._replica: Replica | None = None
        self._send: Callable[[bytes], None] | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._lock = asyncio.Lock()

    async def describe(self) -> dict[str, Any]:
        """Describes this worker: versions, backend and JAX's platform, cores, memory; whether it has a replica."""
        return {**await asyncio.to_thread(_describe, self._backend), "prepared": self._replica is not None}

    async def missing(self, names: Sequence[str]) -> list[str]:
        """Those of these pieces that are not in this host's cache."""
        return await asyncio.to_thread(pieces.missing, names)

    async def piece(self, name: str, content: bytes) -> None:
        """Puts a piece into this host's cache.

        Raises:
            ClusterError: the cache cannot be written.
        """
        try:
            await asyncio.to_thread(pieces.keep, name, content)
        except OSError as error:
            raise _cannot_keep(error) from error

    async def probe(self, content: bytes, back: int = 0) -> int | bytes:
        """Takes bytes that say how fast the link is; returns how many, or as many as are to come back."""
        return (os.urandom(1 << 16) * (back // (1 << 16) + 1))[:back] if back else len(content)

    async def prepare(self, setup: dict[str, Any]) -> dict[str, float]:
        """Makes the replica and compiles its program, after ending another one.

        Returns:
            Seconds that compiling took, seconds of a step, and seconds and bytes that an exchange takes.
        """
        async with self._lock:
            await self._close()
            self._loop = asyncio.get_running_loop()
            replica = await asyncio.to_thread(Replica, Setup(**setup), self._publish, threading.get_ident())
            self._replica = replica
            return {
                "compile_seconds": replica.compile_seconds,
                "step_seconds": replica.step_seconds,
                "exchange_seconds": replica.exchange_seconds,
                "exchange_bytes": replica.exchange_bytes,
            }

    async def rehearse(self, seconds: float, steps: int = 0, step: float = 0.0) -> Any:
        """Lets the replica, which has no snapshot yet, take steps for so long; returns the seconds of a step.

        Where rounds of so many steps are requested, returns what `Replica.rehearse_rounds` does.
        """
        replica = self._of()
        if steps:
            return await asyncio.to_thread(replica.rehearse_rounds, seconds, steps, step)
        return await asyncio.to_thread(replica.rehearse, seconds)

    async def load(self, owned: Sequence[tuple[str, Sequence[int]]]) -> list[str]:
        """Loads pieces from this host's cache, by name and range of examples; returns those that it does not have.

        Raises:
            ClusterError: they are to be on disk, and it is full.
        """
        return await asyncio.to_thread(_load, self._of(), owned)

    async def restore(self, snapshot: dict[str, Any]) -> None:
        """Makes the replica end what it did and take over a snapshot."""
        async with self._lock:
            replica = self._of()
            await asyncio.to_thread(replica.restore, Snapshot(**snapshot))
            self._drop_answers()

    async def join(self, round: int, merges: Sequence[dict[str, Any]]) -> None:
        """Lets the replica, after these merges of rounds that it was not part of, begin with this round."""
        async with self._lock:
            replica = self._of()
            await asyncio.to_thread(replica.join, round, [Merge(**fields) for fields in merges])

    async def exchange(self, request: bytes) -> bytes:
        """Hands over what `messages.packed_request` packed, and returns the answer of its round, packed; for workers to
        which there is no line.
        """
        self._send = None
        return await asyncio.shield(self._answer(self._take(request)))

    def listen(self, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Sends packed answers as soon as the replica has them, from its thread; returns what takes packed requests."""
        self._send = send
        return self._take_from_line

    def _take_from_line(self, request: bytes) -> None:
        try:
            self._take(request)
        except Gone:  # the caller hears of it otherwise
            pass
        except Exception as error:
            self._publish(-1, error)

    def _take(self, request: bytes) -> int:
        """Gives the replica what a request holds; returns the round of which the answer is wanted."""
        number, plans, merges = unpacked_request(request)
        self._of().give(plans, merges)
        return number

    def _publish(self, number: int, answer: Answer | Exception) -> None:
        packed = packed_answer(number, answer)
        if self._send:
            with contextlib.suppress(ConnectionError):  # the other side knows
                self._send(packed)
        else:
            self._loop.call_soon_threadsafe(self._deliver, number, packed)

    async def close(self) -> None:
        """Ends the training and frees its memory."""
        async with self._lock:
            await self._close()

    def _answer(self, number: int) -> asyncio.Future[Any]:
        return self._answers.setdefault(number, asyncio.get_running_loop().create_future())

    def _deliver(self, number: int, packed: bytes) -> None:
        future = self._answer(number)
        self._answers = {n: f for n, f in self._answers.items() if n >= number - 1}
        if not future.done():
            future.set_result(packed)

    def _of(self) -> Replica:
        if self._replica is None:
            raise Gone
        return self._replica

    async def _close(self) -> None:
        replica, self._replica = self._replica, None
        if replica:
            await asyncio.to_thread(replica.close)
        self._drop_answers()

    def _drop_answers(self) -> None:
        """Tells who waits for an answer that there will be none."""
        dropped, self._answers = self._answers, {}
        for future in dropped.values():
            if not future.done():
                future.set_exception(Gone())
                future.exception()  # else asyncio logs that it was never retrieved


def _describe(backend: str) -> dict[str, Any]:
    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "backend": backend,
        "platform": _platform() if backend == "jax" else backend,
        "cores": usable_cores(),
        "memory": _free_memory() - LOADED_BYTES[backend],
        "disk": _free_bytes(),
        "versions": versions_here(backend),
    }


def _platform() -> str:
    """JAX's name of what it computes on."""
    import jax

    device = jax.local_devices()[0]
    return device.platform if device.platform != "gpu" else device.client.platform_version.split()[0].lower()


def _free_memory() -> int:
    """Bytes of memory that are free for this process, on the computer or within its control group."""
    import psutil

    available, left = psutil.virtual_memory().available, memory_left()
    return available if left is None else min(available, left)


def _free_bytes() -> int:
    """Bytes that are free on the disk of the cache folder, which need not exist yet."""
    return shutil.disk_usage(cache_place()).free


def _load(replica: Replica, owned: Sequence[tuple[str, Sequence[int]]]) -> list[str]:
    failed = []
    for name, (first, last) in owned:
        try:
            rows = pieces.read(name)
        except (OSError, ValueError):
            failed.append(name)
        else:
            try:
                replica.shard.write((first, last), rows)
            except OSError as error:
                raise _cannot_keep(error) from error
    return failed


def _cannot_keep(error: OSError) -> ClusterError:
    return ClusterError(
        f"{platform.node()} cannot keep data in {cache_folder()} ({error.strerror}): make room there, or set "
        "RUDEL_CACHE there."
    )
