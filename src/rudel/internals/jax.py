"""Undocumented parts of JAX that Rudel uses."""

import functools
import importlib
import sys
from typing import Any

from rudel.internals import require


def backend_has_started() -> bool:
    """Whether JAX has started its backend in this process; imports nothing."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None:
        return False
    require("jax", {"xla_bridge.backends_are_initialized": hasattr(bridge, "backends_are_initialized")})
    return bridge.backends_are_initialized()


def let_gloo_listen(address: str) -> None:
    """Lets the collectives of CPUs listen at this address, for the processes that JAX connects from now on.

    JAX takes what the name of the computer means, which on Debian is 127.0.1.1, where no other computer can connect.
    """
    library: Any = importlib.import_module("jaxlib._jax")
    made = getattr(library, "make_gloo_tcp_collectives", None)
    require("jaxlib", {"_jax.make_gloo_tcp_collectives": made is not None or sys.platform != "linux"})
    if made is not None:  # JAX has it on Linux and macOS
        library.make_gloo_tcp_collectives = functools.partial(made, hostname=address)
