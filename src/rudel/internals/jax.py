"""Undocumented parts of JAX that Rudel uses."""

import functools
import importlib
import os
import secrets
import sys
from typing import Any

from rudel.internals import mentions, require

_forked_after_start: set[int] = set()


def backend_has_started() -> bool:
    """Whether JAX has started its backend in this process; imports nothing."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None:
        return False
    require("jax", {"xla_bridge.backends_are_initialized": hasattr(bridge, "backends_are_initialized")})
    return bridge.backends_are_initialized()


def note_fork() -> None:
    """Takes note, in a child that has just been forked, of whether its parent had started JAX's backend."""
    if backend_has_started():
        _forked_after_start.add(os.getpid())


def was_forked_after_start() -> bool:
    """Whether this process is a fork of one that had started JAX, for whose threads JAX waits here for ever."""
    return os.getpid() in _forked_after_start


def keep_programs_whole() -> None:
    """Lets JAX write a compiled program beside its place in the compilation cache and rename it, over what is there.

    JAX writes it in place: who reads it meanwhile finds a part of it, and what a killed process has left stays for
    ever, with a warning by each process that reads it. A cache of limited size has a lock, and stays as it is.
    """
    library: Any = importlib.import_module("jax._src.lru_cache")
    cache = library.LRUCache
    if hasattr(cache.put, "__wrapped__"):
        return
    parts = mentions(cache.put, "eviction_enabled", "path", "_CACHE_SUFFIX", "write_bytes")
    require("jax", {"lru_cache.LRUCache.put": parts})
    put_in_place, suffix = cache.put, library._CACHE_SUFFIX

    @functools.wraps(put_in_place)
    def put(self: Any, key: str, value: bytes) -> None:
        if self.eviction_enabled:
            return put_in_place(self, key, value)
        beside = self.path / f".{key}.{secrets.token_hex(8)}.tmp"
        try:
            beside.write_bytes(value)
            beside.replace(self.path / f"{key}{suffix}")
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    cache.put = put


def let_gloo_listen(address: str) -> None:
    """Lets the collectives of CPUs listen at this address, for the processes that JAX connects from now on.

    JAX takes what the name of the computer means, which on Debian is 127.0.1.1, where no other computer can connect.
    """
    library: Any = importlib.import_module("jaxlib._jax")
    made = getattr(library, "make_gloo_tcp_collectives", None)
    require("jaxlib", {"_jax.make_gloo_tcp_collectives": made is not None or sys.platform != "linux"})
    if made is not None:  # JAX has it on Linux and macOS
        library.make_gloo_tcp_collectives = functools.partial(made, hostname=address)
