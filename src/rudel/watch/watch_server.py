"""Serves the page until it gets a signal to end."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rudel.errors import ServeError
from rudel.listening import cannot_listen, is_loopback, listener, page_address
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
    try:
        made = listener(host, port, waiting=128)
    except (OSError, OverflowError) as error:
        raise cannot_listen(host, port, error) from error
    with made:
        server: uvicorn.Server
        names = allowed if is_loopback(made.getsockname()[0]) else None
        app = make_app(board, names, lambda: server.should_exit)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, lifespan="off")
        )
        ready(page_address(*made.getsockname()[:2]))
        server.run(sockets=[made])
