"""The process that `asking.py` starts: it finds JAX's devices, and whether a training could begin.

Every finding is a line of JSON of its own, so that a driver that crashes or hangs takes with it only what comes after.
`python -m rudel.doctor.answering`
"""

import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rudel.doctor.problems import first_line, problem

MARK = "rudel:"
"""Begins every line of ours; on standard error, it divides what JAX said when it began from what comes later."""

_PLUGINS = re.compile(r"(jax[-_](cuda|rocm)|libtpu)", re.IGNORECASE)


def findings() -> Iterator[tuple[str, Any]]:
    """Everything, by its name, in the order in which it is to be known.

    `plugins` of JAX, as they are installed; `broken`, why JAX cannot be imported, or `refused`, why it does not begin,
    or `devices`; and what `keras`, `single` (a training on this computer), `jax` (Keras on JAX) and `cluster` lack.
    """
    yield "plugins", _plugins()
    yield _devices()
    print(MARK, file=sys.stderr, flush=True)
    for name, check in _CHECKS.items():
        yield name, problem(check)


def _plugins() -> list[str]:
    names = (distribution.name or "" for distribution in importlib.metadata.distributions())
    return sorted({name for name in names if _PLUGINS.match(name)})


def _devices() -> tuple[str, Any]:
    broken = problem(lambda: __import__("numpy"), lambda: __import__("jax"))  # JAX does not say that it was NumPy
    if broken:
        return "broken", broken
    import jax

    try:
        devices = jax.local_devices()
        return "devices", [[d.platform, d.device_kind, (d.memory_stats() or {}).get("bytes_limit")] for d in devices]
    except Exception as error:
        return "refused", first_line(error)


def _keras() -> None:
    from rudel.backend import keras_here

    keras_here(light=True)


def _single() -> None:
    from rudel.training.places import check_place

    check_place(on=None, cluster=None, client=None, strategy=None)


def _jax() -> None:
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)


def _cluster() -> None:
    from rudel.cluster import certificates, quiet, ssh  # noqa: F401  # which import Dask and all that it takes


_CHECKS: dict[str, Callable[[], None]] = {"keras": _keras, "single": _single, "jax": _jax, "cluster": _cluster}


if __name__ == "__main__":
    for _name, _found in findings():
        print(MARK + json.dumps({_name: _found}), flush=True)
