"""The page and its data over HTTP.

GET /                   the page
GET /page/NAME          its scripts and styles
GET /runs               what there is to see now, as JSON, with an ETag
GET /events             the same as server-sent events, again whenever it changes
GET /runs/N/report      report.html of the run number N, from 0
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from importlib.resources import files
from typing import TYPE_CHECKING

from rudel.listening import is_own
from rudel.report.report_page import POLICY
from rudel.watch.board import EVERY_SECONDS, Board, Sight

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = f"{POLICY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": _PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_SILENCE_SECONDS = 15.0
"""After so long without an event a comment is sent, so that what lies between keeps the connection open."""


def make_app(
    board: Board, names: Collection[str] | None = None, stopping: Callable[[], bool] = lambda: False
) -> "Starlette":
    """The application.

    Args:
        board: the runs.
        names: names by which clients may reach it beside those of this computer (`rudel.listening`); None for any.
        stopping: whether the server is about to end, so that streams have to.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    page = _page_files()

    async def show(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in page:
            return PlainTextResponse(f"There is no {name} here.\n", 404, _HEADERS)
        return Response(page[name], headers=_HEADERS, media_type=_TYPES["." + name.rpartition(".")[2]])

    async def runs(request: Request) -> Response:
        sight = await asyncio.to_thread(board.current)
        headers = _HEADERS | {"ETag": f'"{sight.tag}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(_with_time(sight), headers=headers, media_type="application/json")

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(board, stopping), headers=_HEADERS, media_type="text/event-stream")

    async def report(request: Request) -> Response:
        number = request.path_params["number"]
        path = board.paths[number] / "report.html" if number < len(board.paths) else None
        try:
            content = await asyncio.to_thread(path.read_bytes) if path else None
        except OSError:
            content = None
        if content is None:
            return PlainTextResponse("There is no report yet: it is written when the training ends.\n", 404, _HEADERS)
        return Response(content, headers=_HEADERS | {"Content-Security-Policy": _REPORT_POLICY}, media_type="text/html")

    routes = [
        Route("/", show),
        Route("/page/{name}", show),
        Route("/runs", runs),
        Route("/events", events),
        Route("/runs/{number:int}/report", report),
    ]
    guard = [] if names is None else [Middleware(_Guard, names=names)]
    return Starlette(routes=routes, middleware=guard)


class _Guard:
    """Lets no request through that asks for another computer."""

    def __init__(self, app: "ASGIApp", names: Collection[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        answer = self._app
        if not is_own(Headers(scope=scope).get("host", ""), self._names):
            message = "The header `Host` names another computer: behind a proxy, use `rudel watch --allow-host NAME`.\n"
            answer = PlainTextResponse(message, 403, _HEADERS)
        await answer(scope, receive, send)


async def _events(board: Board, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """An event with all runs at first and after each change."""
    tag, silent = "", 0.0
    while not stopping():
        sight = await asyncio.to_thread(board.current)
        if sight.tag != tag:
            tag, silent = sight.tag, 0.0
            yield f"id: {tag}\ndata: {_with_time(sight)}\n\n"
        elif silent >= _SILENCE_SECONDS:
            silent = 0.0
            yield ": nothing new\n\n"
        silent += EVERY_SECONDS
        await asyncio.sleep(EVERY_SECONDS)
    yield "event: end\ndata: rudel watch has ended\n\n"


def _with_time(sight: Sight) -> str:
    """The text, with this computer's time, as other ones' clocks may be wrong."""
    return f'{{"now":{time.time():.3f},{sight.text[1:]}'


def _page_files() -> dict[str, bytes]:
    """Files of the page; it shares the report's colours and type."""
    found = {file.name: file.read_bytes() for file in (files("rudel.watch") / "page").iterdir()}
    return found | {"report.css": (files("rudel.report") / "page.css").read_bytes()}
