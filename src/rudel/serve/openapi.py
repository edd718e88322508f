"""The OpenAPI document of what is served now: every path of every model, with the shapes that it takes and gives.

Source: OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0. What the document allows is answered, and what it does not
allow is refused (`benchmarks/fuzz.py` holds the server to that), with two exceptions that a schema cannot tell: several
inputs need as many examples each, and the `shape` of an inference has to fit its `data`.
"""

from collections.abc import Sequence
from typing import Any

from rudel import __version__
from rudel.serve import schemas
from rudel.serve.models import Models, Version
from rudel.serve.schemas import ANY, Schema, flag, list_of, required

_REFUSED = {
    400: "The request makes no sense",
    401: "The token is missing or wrong",
    404: "There is no such model or version",
    405: "Another method has to be used",
    408: "The request came too slowly",
    413: "The body is too large",
    415: "The body is of a kind that is not taken",
    422: "The model answers with NaN or infinity",
    503: "There is too much to do: try again later",
    504: "The model took too long",
}
_ASKING = (400, 404, 408, 413, 415, 422, 503, 504)


def openapi(models: Models, protected: bool) -> dict[str, Any]:
    """The document.

    Args:
        models: that are served.
        protected: whether a token is asked for.
    """
    names = required(models=list_of({"type": "string"}))
    paths: dict[str, Any] = {
        "/v1/models": _get("models_v1", "Names of the models", names),
        "/v2/models": _get("models_v2", "Names of the models", names),
        "/v2": _get(
            "server", "What the server is", required(name={"type": "string"}, extensions=list_of({"type": "string"}))
        ),
        "/v2/health/live": _get("live", "Whether the server is there", flag("live")),
        "/v2/health/ready": _get("ready", "Whether it answers", flag("ready")),
        "/metrics": _get("metrics", "Counts and times for Prometheus", {"type": "string"}, "text/plain"),
    }
    for version in models.all:
        newest = max(models.versions(version.model)) == version.number
        for place in ["", f"/versions/{version.number}"] if newest else [f"/versions/{version.number}"]:
            paths |= _paths_of(version, place)
    if protected:
        _protect(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rudel", "version": __version__, "description": "Models that are asked over HTTP."},
        "paths": paths,
        "components": {
            "schemas": {"Error": required(error={"type": "string"})},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths_of(version: Version, place: str) -> dict[str, Any]:
    name, loaded = version.model, version.loaded
    inputs, outputs = loaded.signature.inputs, loaded.signature.outputs
    v1, v2 = f"/v1/models/{name}{place}", f"/v2/models/{name}{place}"
    id = f"{name}{place.replace('/', '_')}"
    files = loaded.files.types if loaded.decode is not None else ()
    predicted = {"anyOf": [required(predictions=list_of({})), required(outputs={})]}
    described = required(name={"type": "string"}, inputs=list_of(ANY), outputs=list_of(ANY))
    paths = {
        v1: _get(f"status_{id}", f"Versions of {name}", required(model_version_status=list_of(ANY))),
        f"{v1}/metadata": _get(f"metadata_{id}", f"What {name} takes", required(model_spec=ANY, metadata=ANY)),
        f"{v1}:predict": _post(f"predict_{id}", f"Ask {name}", schemas.predict(inputs), predicted, files),
        v2: _get(f"about_{id}", f"What {name} takes", described),
        f"{v2}/ready": _get(f"ready_{id}", f"Whether {name} answers", flag("ready")),
        f"{v2}/infer": _post(
            f"infer_{id}", f"Ask {name}", schemas.inference(inputs, outputs), required(outputs=list_of(ANY))
        ),
    }
    if loaded.labels:
        examples = schemas.examples(inputs)
        results = required(results=list_of(list_of({"type": "array"})))
        paths[f"{v1}:classify"] = _post(f"classify_{id}", f"Classes by {name}", examples, results, files)
    if len(outputs) == 1 and outputs[0].shape in ((), (1,)) and outputs[0].dtype != "bytes":
        results = required(results=list_of({"type": ["number", "boolean", "null"]}))
        paths[f"{v1}:regress"] = _post(f"regress_{id}", f"A number by {name}", schemas.examples(inputs), results)
    return paths


def _get(id: str, told: str, schema: Schema, media_type: str = "application/json") -> dict[str, Any]:
    return {"get": _operation(id, told, schema, (404, 405), media_type)}


def _post(id: str, told: str, body: Schema, schema: Schema, files: Sequence[str] = ()) -> dict[str, Any]:
    content = {"application/json": {"schema": body}}
    content |= {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in files}
    return {"post": _operation(id, told, schema, _ASKING) | {"requestBody": {"required": True, "content": content}}}


def _operation(
    id: str, told: str, schema: Schema, refused: Sequence[int], media_type: str = "application/json"
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "The answer", "content": {media_type: {"schema": schema}}}}
    return {
        "operationId": id,
        "summary": told,
        "responses": responses | {str(status): _refused(status) for status in refused},
    }


def _refused(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _REFUSED[status],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status == 503:
        response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait"}}
    return response


def _protect(paths: dict[str, Any]) -> None:
    for path, methods in paths.items():
        if path.startswith("/v2/health/"):
            continue
        for operation in methods.values():
            operation["security"] = [{"token": []}]
            operation["responses"]["401"] = _refused(401)
