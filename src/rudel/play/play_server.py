"""The small server behind `rudel play`: the page, its model, and guesses where the page cannot make them itself.

GET /            the page
GET /NAME        its files, and below /model/ those of the model, once there is one
GET /model.json  what the page has to know
POST /guess      a bitmap, a byte for each pixel; answered by {"probabilities": [...], "module": ...}
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath

from rudel.errors import RudelError
from rudel.listening import cannot_listen, is_loopback, is_own, page_address, resolved
from rudel.play.listener import Listener
from rudel.play.page_files import DESCRIPTION, POLICY, TYPES, page_files
from rudel.play.player import Player

_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_SECONDS = 30


class PlayServer(ThreadingHTTPServer):
    """Listens from when it is made; `serve_forever` answers.

    Args:
        player: the run that guesses, or recognises.
        host: address of this computer to listen at.
        port: 0 for one that is free.
        module: gives the folder of the model as WebAssembly once there is one, and None before.

    Raises:
        ServeError: the address cannot be listened at.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        player: Player | Listener,
        host: str = "127.0.0.1",
        port: int = 0,
        module: Callable[[], Path | None] = lambda: None,
    ) -> None:
        self.player, self.module, self.files = player, module, page_files(player.page)
        self.guessing = threading.Lock()
        try:
            self.address_family, place = resolved(host, port)
            super().__init__((str(place[0]), int(place[1])), _Handler)
        except (OSError, OverflowError) as error:
            raise cannot_listen(host, port, error) from error
        self.is_local = is_loopback(str(self.server_address[0]))

    @property
    def address(self) -> str:
        """Of the page, for a browser on this computer."""
        return page_address(str(self.server_address[0]), self.server_address[1])

    def script(self) -> str | None:
        """Where the page finds the model's JavaScript."""
        folder = self.module()
        return None if folder is None else f"model/{next(folder.glob('*.js')).name}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PlayServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._answer(*self._found())

    do_HEAD = do_GET  # noqa: N815  # the name that the base class looks for

    def do_POST(self) -> None:
        length, player = self.headers.get("Content-Length", ""), self.server.player
        if not self._is_addressed_by_name() or self.path != "/guess" or isinstance(player, Listener):
            self.close_connection = True
            return self._refuse(HTTPStatus.NOT_FOUND, "There is nothing to post to but /guess.")
        if not length.isdecimal() or int(length) > player.drawing.side**2:
            self.close_connection = True
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too long for a drawing.")
        content = self.rfile.read(int(length))
        try:
            with self.server.guessing:
                probabilities = player.guess(content)
        except RudelError as error:
            return self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        return self._answer(
            HTTPStatus.OK, _json({"probabilities": probabilities, "module": self.server.script()}), ".json"
        )

    def _found(self) -> tuple[HTTPStatus, bytes, str]:
        name = self.path.partition("?")[0].removeprefix("/") or "index.html"
        missing = HTTPStatus.NOT_FOUND, f"There is no {name} here.\n".encode(), ".txt"
        if not self._is_addressed_by_name():
            return HTTPStatus.FORBIDDEN, b"The page is only to be had under the name of this computer.\n", ".txt"
        if name == DESCRIPTION:
            return HTTPStatus.OK, _json(self.server.player.description(self.server.script())), ".json"
        if name in self.server.files:
            return HTTPStatus.OK, self.server.files[name], PurePosixPath(name).suffix
        folder, _, inner = name.rpartition("/")
        made = self.server.module() if folder == "model" else None
        if made is None or inner not in os.listdir(made):  # noqa: PTH208  # names, to compare a name with
            return missing
        return HTTPStatus.OK, (made / inner).read_bytes(), PurePosixPath(inner).suffix

    def _is_addressed_by_name(self) -> bool:
        """Whether the page was requested by an address of this computer, and not by a name that leads here."""
        return not self.server.is_local or is_own(self.headers.get("Host", ""))

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._answer(status, _json({"error": sentence}), ".json")

    def _answer(self, status: HTTPStatus, content: bytes, ending: str) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", TYPES.get(ending, "text/plain; charset=utf-8"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()
