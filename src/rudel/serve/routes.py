"""Starlette's part of the server: metrics, the OpenAPI document and a front page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rudel.serve.metrics import Metrics
from rudel.serve.models import Models
from rudel.serve.openapi import openapi
from rudel.serve.protocols.protocol import ServingProtocol
from rudel.serve.refusal import NOTHING_HERE


def other_routes(models: Models, protocols: Sequence[ServingProtocol], metrics: Metrics, protected: bool) -> Any:
    """An application for what is not about a model.

    Args:
        models: that are served.
        protocols: that clients may speak, for the OpenAPI document.
        metrics: to show.
        protected: whether a token is required.
    """

    def show_metrics(request: Request) -> Response:
        content, content_type = metrics.text(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": content_type})

    def show_front(request: Request) -> Response:
        names = [name for name in models.names if name not in models.unserved]
        served = {name: [str(number) for number in models.versions(name)] for name in names}
        about = {"models": served, "unserved": models.unserved}
        return _json(about | {"openapi": "/openapi.json", "metrics": "/metrics"})

    routes = [
        _get("/", show_front),
        _get("/metrics", show_metrics),
        _get("/openapi.json", lambda request: _json(openapi(models, protocols, protected))),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refuse})


def _get(path: str, show: Callable[[Request], Response]) -> Route:
    async def endpoint(request: Request) -> Response:
        return show(request)

    return Route(path, endpoint, methods=["GET"])


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: NOTHING_HERE,
        405: "Use another method here.",
    }
    return _json({"error": sentences.get(error.status_code, error.detail)}, error.status_code, error.headers)


def _json(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(document), status, headers, "application/json")
