"""The interface of a protocol to the rest of the server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from rudel.serve.batcher import Columns
from rudel.serve.body import Headers
from rudel.serve.models import Models, Version
from rudel.serve.refusal import bad


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a request, by its path.

    Args:
        route: its name in metrics.
        model: the name in the path; empty where it is about the server.
        version: the number in the path, as text; None for the newest.
        computes: whether the request has inputs for the model, and so is a POST.
        is_open: whether it is answered without a token.
    """

    route: str
    model: str = ""
    version: str | None = None
    computes: bool = False
    is_open: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of HTTP; the web server sends no body in answer to HEAD."""
        return ("POST",) if self.computes else ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response.

    Args:
        body: of it.
        status: of HTTP.
        content_type: of the body.
        headers: others.
    """

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: Sequence[tuple[bytes, bytes]] = field(default=())


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed request.

    Args:
        columns: an array (N, ...) for each input of the model; files still encoded.
        write: writes the answer from an array (N, ...) for each output; raises a `Refusal` where they do not fit.
    """

    columns: Columns
    write: Callable[[Columns], Answer]


class ServingProtocol(Protocol):
    """A protocol over HTTP. It holds no state: an instance serves every request."""

    @property
    def prefix(self) -> str:
        """Begins all paths of the protocol."""
        ...

    def match(self, path: str) -> Target | None:
        """The target of a path; None where it has no meaning in this protocol."""
        ...

    def describe(self, target: Target, models: Models) -> Any:
        """The JSON document that answers a target that does not compute.

        Raises:
            Refusal: there is no such model or version.
        """
        ...

    def parse(self, target: Target, body: bytes, headers: Headers, version: Version) -> Query:
        """Reads the body of a request that computes.

        Raises:
            Refusal: it is not in the protocol, or does not fit the model.
        """
        ...

    def server_operations(self) -> Mapping[str, Any]:
        """The paths about the server, for the OpenAPI document."""
        ...

    def model_operations(self, version: Version, place: str) -> Mapping[str, Any]:
        """The paths of a version, for the OpenAPI document; `place` is "", or "/versions/N"."""
        ...


def json_answer(document: object) -> Answer:
    """A response in JSON."""
    return Answer(orjson.dumps(document))


def json_document(body: bytes) -> Any:
    """Parses a body as JSON.

    Raises:
        Refusal: it is not JSON.
    """
    try:
        return orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise bad(f"The body is not JSON ({error}).") from None
