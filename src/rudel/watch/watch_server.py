"""Serves the page until it gets a signal to end."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from rudel.errors import ServeError
from rudel.own_names import is_loopback
from rudel.serve.listening import listener
from rudel.watch.app import make_app
from rudel.watch.board import Board


def watch(
    runs: Sequence[Path], host: str, port: int, ready: Callable[[str], None], allowed: Sequence[str] = ()
) -> None:
    """Serves the page of these runs until Ctrl-C or SIGTERM.

    Args:
        runs: the run directories; they need not exist yet.
        host: address of this computer to listen at.
        port: to listen at; 0 for one that is free.
        ready: called with the address of the page when it can be opened.
        allowed: names other than this computer's by which clients may reach it on loopback.

    Raises:
        RunError: a path cannot be that of a run.
        ServeError: a package is missing, or the address cannot be listened at.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise ServeError("The page needs the packages of the extra `serve`: pip install 'rudel[serve]'.") from error
    board = Board(runs)
    with listening(host, port) as made:
        server: uvicorn.Server
        names = allowed if is_loopback(made.getsockname()[0]) else None
        app = make_app(board, names, lambda: server.should_exit)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, lifespan="off")
        )
        ready(_address(made))
        server.run(sockets=[made])


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; what connects before it is served waits.

    Raises:
        ServeError: the address is not this computer's, or the port is taken.
    """
    try:
        return listener(host, port, waiting=128)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ServeError(
            f"{host} port {port} cannot be listened at ({reason}): give another with --port, or --port 0 for one that "
            "is free."
        ) from error


def _address(made: socket.socket) -> str:
    """The page's address, for a browser on this computer."""
    host, port = made.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    shown = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{shown}:{port}/"
