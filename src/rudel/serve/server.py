"""A server, from its socket to its end.

SIGTERM and Ctrl-C stop it: it takes no new connections, answers every request that it has begun to read, and ends. A
second signal ends it at once.
"""

import asyncio
import contextlib
import gc
import importlib.util
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rudel.errors import ServeError
from rudel.listening import is_loopback, listener
from rudel.serve.access_log import AccessLog, Style
from rudel.serve.model_sources import FileOptions, Source
from rudel.serve.server_limits import Limits

if TYPE_CHECKING:
    from rudel.serve.models import Models
    from rudel.serve.web import Web


_PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "orjson", "prometheus_client")
_TICK = 0.25


@dataclass(frozen=True)
class Settings:
    """Configuration of a server.

    Args:
        host: address to listen on.
        port: 0 for any that is free.
        token: that clients have to show; None for none.
        allowed: names other than this computer's by which clients may reach a server on loopback.
        log: how requests are logged.
        limits: what clients may ask for.
        files: how model files are read.
    """

    host: str = "127.0.0.1"
    port: int = 8501
    token: str | None = None
    allowed: tuple[str, ...] = ()
    log: Style = "text"
    limits: Limits = field(default_factory=Limits)
    files: FileOptions = field(default_factory=FileOptions)


def check_packages() -> None:
    """Looks for the packages that a server needs, without importing them.

    Raises:
        ServeError: says how to install what is missing.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ServeError(f"Serving needs {' and '.join(missing)}: install by `pip install 'rudel[serve]'`.")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        ServeError: the address cannot be had.
    """
    try:
        made = listener(host, port, waiting=1024)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ServeError(f"{host}:{port} cannot be served at ({reason}): give another by --port or --host.") from error
    made.setblocking(False)
    return made


def address_of(listening: socket.socket) -> str:
    """Address of a socket that listens, as people type it into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(sources: Sequence[Source], settings: Settings, ready: Callable[[str], None]) -> None:
    """Serves models until a signal ends it.

    Args:
        sources: what is served.
        settings: how.
        ready: called with the address, once requests are answered.

    Raises:
        ServeError: a package is missing, the address is taken, or something cannot be served.
        RudelError: a run cannot be loaded.
    """
    check_packages()
    import uvloop

    with contextlib.closing(listen(settings.host, settings.port)) as listening:
        uvloop.run(_serve(sources, settings, listening, ready))


async def _serve(
    sources: Sequence[Source], settings: Settings, listening: socket.socket, ready: Callable[[str], None]
) -> None:
    from rudel.serve.application import Application
    from rudel.serve.guard import Guard
    from rudel.serve.metrics import Metrics
    from rudel.serve.models import Models
    from rudel.serve.protocols import PROTOCOLS
    from rudel.serve.routes import other_routes
    from rudel.serve.watching import Watching
    from rudel.serve.web import Web

    log, metrics = AccessLog(settings.log), Metrics()
    models = Models(settings.limits, metrics)
    watching = Watching(sources, models, settings.limits, settings.files, log.message)
    await watching.load_all()
    if settings.token is None and not is_loopback(listening.getsockname()[0]):
        log.message(f"Anybody who reaches {settings.host} can use the models: require a token with --token-file.")
    other = other_routes(models, PROTOCOLS, metrics, settings.token is not None)
    guard = Guard(settings.token, is_loopback(listening.getsockname()[0]), settings.allowed)
    application = Application(models, settings.limits, metrics, log, guard, PROTOCOLS, other)
    web = Web(application, settings.limits, application.note_unread)
    gc.collect()
    gc.freeze()  # the models stay: no need to look through them again and again
    tasks = [asyncio.create_task(task) for task in (watching.watch(), _tick(models, web))]
    with _signals(web):
        await web.run(listening, lambda: ready(address_of(listening)))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    log.flush()


async def _tick(models: "Models", web: "Web") -> None:
    while True:
        await asyncio.sleep(_TICK)
        models.expire(time.perf_counter())
        web.drop_slow()


@contextlib.contextmanager
def _signals(web: "Web") -> Iterator[None]:
    loop = asyncio.get_running_loop()
    heeded = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, web.stop)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)
