"""The names by which a server that listens on loopback may be asked for.

A web site can let a name of its own stand for 127.0.0.1 (DNS rebinding), and its pages would then read what a server on
the visitor's computer answers. Such requests carry the site's name in the header `Host`, so they can be refused.
"""

import ipaddress
import re
from collections.abc import Collection


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
