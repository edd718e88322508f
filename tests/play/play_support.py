"""What tests of the page share: web servers, and a pointer that draws."""

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browser import Page

CLASSES = (
    *("airplane", "alarm clock", "apple", "banana", "bicycle", "bird", "book"),
    *("cat", "dog", "fish", "flower", "house", "rainbow"),
)


@contextlib.contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Serves while the block runs; yields the address."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    unanswered: Collection[str] = ()

    def do_GET(self) -> None:
        if self.path not in self.unanswered:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""


def folder_server(folder: Path, unanswered: Collection[str] = ()) -> ThreadingHTTPServer:
    """Any web server; it closes the connection where an `unanswered` path is requested."""
    handler = type("Handler", (_Quiet,), {"unanswered": unanswered})
    return _Server(("127.0.0.1", 0), partial(handler, directory=str(folder)))


Stroke = Sequence[Sequence[float]]

_TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_PAD = "(r => [r.left, r.top, r.width])(document.getElementById('pad').getBoundingClientRect())"


def draw_stroke(page: Page, stroke: Stroke) -> None:
    """Draws with the mouse a stroke in a box of 256 units, which takes up most of the drawing area."""
    left, top, side = page.value(_PAD)
    scale = 0.8 * side / 256
    xs, ys = stroke
    points = [(left + 0.1 * side + x * scale, top + 0.1 * side + y * scale) for x, y in zip(xs, ys, strict=True)]
    page.drag(points)


def draw(page: Page, drawing: Sequence[Stroke]) -> str:
    """Draws with the mouse what is in a box of 256 units; returns what the page then takes it for."""
    page.value("document.getElementById('clear').click()")
    page.value(_TWO_FRAMES)
    for stroke in drawing:
        draw_stroke(page, stroke)
    return guessed(page)


def guessed(page: Page) -> str:
    """What the page takes a drawing for, once it has seen the last of it."""
    page.value(_TWO_FRAMES)
    page.until(
        "document.getElementById('bars').ariaBusy === 'false' && document.getElementById('time').textContent !== '–'"
    )
    return page.value("document.querySelector('#bars li').dataset.name")
