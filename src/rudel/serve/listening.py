"""A socket that listens, made before anything else is started, so that a port in use is reported at once."""

import socket


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
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(waiting)
    except BaseException:
        made.close()
        raise
    return made
