"""Operations of the OpenAPI document.

Source: OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0.
"""

from collections.abc import Sequence
from typing import Any

from rudel.serve.protocols.schemas import Schema

_REFUSED = {
    400: "The request makes no sense",
    401: "The token is missing or wrong",
    404: "There is no such model or version",
    405: "Another method has to be used",
    408: "The request came too slowly",
    413: "The body is too large",
    415: "The media type of the body is not supported",
    422: "The model answers with NaN or infinity",
    503: "There is too much to do, or a model cannot be served: try again later",
    504: "The model took too long",
}
_COMPUTING = (400, 404, 408, 413, 415, 422, 503, 504)


def getting(id: str, summary: str, schema: Schema, media_type: str = "application/json") -> dict[str, Any]:
    """A GET whose answer fits the schema."""
    return {"get": _operation(id, summary, schema, (404, 405, 503), media_type)}


def posting(id: str, summary: str, body: Schema, schema: Schema, files: Sequence[str] = ()) -> dict[str, Any]:
    """A POST of JSON, or of a file of one of these media types, that a model computes the answer to."""
    content = {"application/json": {"schema": body}}
    content |= {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in files}
    return {
        "post": _operation(id, summary, schema, _COMPUTING) | {"requestBody": {"required": True, "content": content}}
    }


def refused(status: int) -> dict[str, Any]:
    """The response with which a request is refused."""
    response: dict[str, Any] = {
        "description": _REFUSED[status],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status == 503:
        response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait"}}
    return response


def _operation(
    id: str, summary: str, schema: Schema, statuses: Sequence[int], media_type: str = "application/json"
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "The answer", "content": {media_type: {"schema": schema}}}}
    return {
        "operationId": id,
        "summary": summary,
        "responses": responses | {str(status): refused(status) for status in statuses},
    }
