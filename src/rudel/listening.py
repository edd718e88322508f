"""Sockets that listen, the addresses of pages, and the names by which a server on loopback may be asked for.

A web site can let a name of its own stand for 127.0.0.1 (DNS rebinding), and its pages would then read what a server on
the visitor's computer answers. Such requests carry the site's name in the header `Host`, so they can be refused.
"""

import ipaddress
import re
import socket
from collections.abc import Collection
from typing import Any

from rudel.errors import ServeError


def is_loopback(host: str) -> bool:
    """Whether an address or a name can be reached from this computer alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1%lo"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, True, False, True)
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_own(header: str, allowed: Collection[str] = ()) -> bool:
    """Whether a `Host` header names this computer.

    Args:
        header: as the client has sent it, with a port or without.
        allowed: names that stand for it, too, such as that of a proxy.

    >>> is_own("localhost:8501"), is_own("[::1]:80"), is_own("evil.example"), is_own("Hub.example", ["hub.example"])
    (True, True, False, True)
    """
    name = re.sub(r":\d*$", "", header.strip()).lower()
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    return is_loopback(bare) or name in (other.lower() for other in allowed)


def listener(host: str, port: int, waiting: int) -> socket.socket:
    """A socket that listens; what connects before it is served waits.

    Args:
        host: a name or an address of this computer.
        port: 0 for one that is free.
        waiting: how many connections may wait.

    Raises:
        OSError: the address is not this computer's, or the port is taken.
        OverflowError: there is no such port.
    """
    family, address = resolved(host, port)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(waiting)
    except BaseException:
        made.close()
        raise
    return made


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The family and the address of a socket for TCP.

    Raises:
        OSError: there is no such host.
        OverflowError: there is no such port.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError as error:  # an empty label, as in `192.168..1`, or one that is too long
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from error
    return family, address


def cannot_listen(host: str, port: int, error: Exception) -> ServeError:
    """The error of a page whose address cannot be listened at."""
    reason = getattr(error, "strerror", None) or error
    return ServeError(
        f"{host} port {port} cannot be used ({reason}): give another with --port, or --port 0 for one that is free."
    )


def page_address(host: str, port: int) -> str:
    """The address of a page for a browser on this computer.

    Args:
        host: the numeric address that is listened at.
        port: the port.

    >>> page_address("0.0.0.0", 80), page_address("::1", 8000)
    ('http://localhost:80/', 'http://[::1]:8000/')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    shown = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{shown}:{port}/"
