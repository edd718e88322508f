import email.utils
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request: a status instead of an answer, or an answer that stops after some bytes."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    stop_after: int | None = None
    stall: bool = False


@dataclass(frozen=True)
class Request:
    name: str
    range: str | None
    if_range: str | None

    @property
    def first(self) -> int:
        assert self.range
        return int(self.range.removeprefix("bytes=").split("-")[0])

    @property
    def length(self) -> int:
        assert self.range
        first, last = self.range.removeprefix("bytes=").split("-")
        return int(last) + 1 - int(first)


@dataclass
class Remote:
    """A file, as a server tells of it."""

    content: bytes
    etag: str | None = '"1"'
    modified: float | None = None
    faults: list[Fault] = field(default_factory=list)


class DrawingServer(ThreadingHTTPServer):
    """Serves files from memory below `/full/numpy_bitmap/`, logs what is asked for, and fails when it is told to."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.remotes: dict[str, Remote] = {}
        self.ranges = True
        self.obeys_if_range = True
        self.most_bytes = 1 << 40
        self.log: list[Request] = []
        self.sent = 0
        self.lock = threading.Lock()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        """Clients that hang up are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, DrawingServer)
        folder, _, file = unquote(self.path).rpartition("/")
        name = file.removesuffix(".npy")
        remote = server.remotes.get(name) if folder == "/full/numpy_bitmap" else None
        wanted, condition = self.headers["Range"], self.headers["If-Range"]
        with server.lock:
            server.log.append(Request(name, wanted, condition))
            fault = remote.faults.pop(0) if remote and remote.faults else Fault()
        if remote is None or fault.status is not None:
            self._answer(fault.status or 404, b"", fault.headers, fault)
            return
        headers = {}
        if remote.etag is not None:
            headers["ETag"] = remote.etag
        if remote.modified is not None:
            headers["Last-Modified"] = email.utils.formatdate(remote.modified, usegmt=True)
        size = len(remote.content)
        still_holds = not server.obeys_if_range or condition is None or condition in headers.values()
        if not (server.ranges and wanted and still_holds):
            self._answer(200, remote.content, headers, fault)
            return
        first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
        if first >= size:
            self._answer(416, b"", {"Content-Range": f"bytes */{size}"}, fault)
            return
        part = remote.content[first : min(last + 1, first + server.most_bytes)]
        headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{size}"
        self._answer(206, part, headers, fault)

    def _answer(self, status: int, body: bytes, headers: dict[str, str], fault: Fault) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        server = self.server
        assert isinstance(server, DrawingServer)
        view = memoryview(body)[: fault.stop_after]
        for at in range(0, len(view), 1 << 16):
            self.wfile.write(view[at : at + (1 << 16)])
            with server.lock:
                server.sent += len(view[at : at + (1 << 16)])
        if fault.stall:
            server.released.wait(20)
        self.close_connection = True

    def log_message(self, format, *args) -> None:
        pass


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, and no proxy between the test and its server."""
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[DrawingServer]:
    server = DrawingServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def remote() -> type[Remote]:
    return Remote


@pytest.fixture
def fault() -> Callable[..., Fault]:
    return Fault
