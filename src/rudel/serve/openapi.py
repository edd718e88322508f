"""The OpenAPI document of what is served now: every path of every model, with the shapes of inputs and outputs.

Source: OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0. The server answers what the document allows and refuses
what it does not (`benchmarks/fuzz.py` holds the server to that), with two exceptions that a schema cannot express:
several inputs need as many examples each, and the `shape` of an inference has to fit its `data`.
"""

from collections.abc import Sequence
from typing import Any

from rudel import __version__
from rudel.serve.models import Models
from rudel.serve.protocols.operations import getting, refused
from rudel.serve.protocols.protocol import ServingProtocol
from rudel.serve.protocols.schemas import required


def openapi(models: Models, protocols: Sequence[ServingProtocol], protected: bool) -> dict[str, Any]:
    """The document.

    Args:
        models: that are served.
        protocols: that clients may speak.
        protected: whether a token is required.
    """
    paths = {"/metrics": getting("metrics", "Counts and times for Prometheus", {"type": "string"}, "text/plain")}
    for protocol in protocols:
        paths |= protocol.server_operations()
        for version in models.all:
            paths |= protocol.model_operations(version, f"/versions/{version.number}")
            if max(models.versions(version.model)) == version.number:
                paths |= protocol.model_operations(version, "")
    if protected:
        _protect(paths, protocols)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rudel", "version": __version__, "description": "Models that are asked over HTTP."},
        "paths": paths,
        "components": {
            "schemas": {"Error": required(error={"type": "string"})},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _protect(paths: dict[str, Any], protocols: Sequence[ServingProtocol]) -> None:
    for path, methods in paths.items():
        if any((target := protocol.match(path)) and target.is_open for protocol in protocols):
            continue
        for operation in methods.values():
            operation["security"] = [{"token": []}]
            operation["responses"]["401"] = refused(401)
