"""Whether Rudel can run on a host, and on which of its Pythons."""

import sys

from rudel.cluster.hosts import Host
from rudel.cluster.probe import Facts, Interpreter

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 14)
"""The newest for which all packages that Rudel needs have wheels."""

SPACE_FOR_ALL, SPACE_FOR_MINIMAL = 1_200_000_000, 800_000_000
"""Bytes of disk for an environment with all packages, or with those of a worker, and for their wheels meanwhile."""

_MACHINES = ("x86_64", "aarch64")
_GIGABYTE = 10**9


def problem(host: Host, facts: Facts) -> str | None:
    """Why Rudel cannot run on a host, with what to do, in one sentence; None where it can."""
    return _problem_of_system(host, facts) or _problem_of_python(host, facts)


def problem_of_address(host: Host, address: str | None) -> str | None:
    """Why a worker on a host cannot be reached by others, with what to do, in one sentence; None where it can.

    Args:
        host: for the sentence.
        address: at which it is reached over SSH; None where a program makes the connection.
    """
    if address is None:
        return (
            f"`{host}` is reached by `ProxyCommand`, so it can run commands but not train: there is no address at "
            "which it and this computer reach each other; use `ProxyJump` for it in the SSH configuration."
        )
    if address.lower().startswith("fe80:"):
        return (
            f"`{host}` is reached at {address}, a link-local address, by which other hosts cannot reach it: "
            "give another address of it, or set `AddressFamily inet` for it in the SSH configuration."
        )
    return None


def best_python(facts: Facts) -> Interpreter | None:
    """The interpreter for the environment: of this computer's own version where there is one, else the newest."""
    fit = [python for python in facts.pythons if _is_fit(python)]
    return max(fit, key=lambda python: (python.version[:2] == sys.version_info[:2], python.version), default=None)


def lacks_space(host: Host, free: int, needed: int) -> str | None:
    """The sentence for a disk with fewer free bytes than are needed; None where there are enough."""
    if free >= needed:
        return None
    return (
        f"The disk of `{host}` is too full: {needed / _GIGABYTE:.1f} GB are needed in the home folder and "
        f"{free / _GIGABYTE:.1f} GB are free."
    )


def _problem_of_system(host: Host, facts: Facts) -> str | None:
    if facts.system != "Linux":
        return f"`{host}` runs {facts.system or 'an unknown system'}: Rudel's hosts have to run Linux."
    if facts.bits == 32 or facts.machine.startswith(("armv6", "armv7", "i3", "i6")):
        return (
            f"`{host}` runs a 32-bit system ({facts.name or facts.machine}), for which there is no JAX: install a "
            "64-bit one, such as Raspberry Pi OS (64-bit)."
        )
    if facts.machine not in _MACHINES:
        return f"`{host}` is of the kind {facts.machine}, for which there is no JAX: use x86_64 or aarch64."
    if facts.machine == "x86_64" and not facts.avx:
        return f"The processor of `{host}` has no AVX, which JAX needs: use a newer one."
    if not facts.libc:
        return f"`{host}` has no glibc ({facts.name or 'unknown system'}), which JAX needs: use Debian or a kin of it."
    return None


def _problem_of_python(host: Host, facts: Facts) -> str | None:
    if host.python:
        if facts.barred:
            return f"`{host.python}` on `{host}` may not be executed: run `chmod +x` on it there, or correct `python=`."
        if not facts.environment:
            return f"There is no Python `{host.python}` on `{host}`: correct `python=` in the hosts file."
        if facts.environment.version[:2] < OLDEST_PYTHON:
            return f"`{host.python}` on `{host}` is Python {facts.environment.minor}: Rudel needs 3.11 or newer."
        return None
    if best_python(facts):
        return None
    if not facts.pythons:
        return f"There is no Python on `{host}`: install it with `sudo apt install python3 python3-venv` there."
    newest = max(facts.pythons, key=lambda python: python.version)
    if newest.version[:2] < OLDEST_PYTHON:
        return (
            f"The newest Python on `{host}` is {newest.minor} ({facts.name}), and Rudel needs 3.11 or newer: upgrade "
            "the system (Raspberry Pi OS since Bookworm has it), or install a newer Python for the user."
        )
    if newest.version[:2] > NEWEST_PYTHON:
        return f"`{host}` has Python {newest.minor}, for which there is no JAX yet: install Python 3.13 beside it."
    if newest.bits != 64:
        return f"The Python on `{host}` is a 32-bit program, for which there is no JAX: install a 64-bit one."
    return f"The Python on `{host}` lacks parts of its library: `sudo apt install python3 python3-venv` there."


def _is_fit(python: Interpreter) -> bool:
    supported = OLDEST_PYTHON <= python.version[:2] <= NEWEST_PYTHON
    return supported and python.bits == 64 and python.kind == "CPython" and python.whole
