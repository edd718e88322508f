"""The Open Inference Protocol (KServe v2), under /v2.

Source: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol.
"""

import re
from typing import Any

from rudel import __version__
from rudel.serve.batcher import Columns
from rudel.serve.body import Headers
from rudel.serve.models import Models, Version
from rudel.serve.protocols import inference_documents as documents
from rudel.serve.protocols import schemas
from rudel.serve.protocols.operations import getting, posting
from rudel.serve.protocols.protocol import Answer, Query, Target, json_document
from rudel.serve.protocols.schemas import ANY, flag, list_of, required
from rudel.serve.refusal import Refusal

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|infer))?")
_SERVER = {
    "/v2": Target("metadata"),
    "/v2/": Target("metadata"),
    "/v2/models": Target("models"),
    "/v2/health/live": Target("live", is_open=True),
    "/v2/health/ready": Target("ready", is_open=True),
}
_BYTES = b"application/octet-stream"


class OpenInference:
    """The Open Inference Protocol, with tensors as bytes behind the JSON (`binary_tensor_data`)."""

    prefix = "/v2"

    def match(self, path: str) -> Target | None:
        """See `ServingProtocol`."""
        if path in _SERVER:
            return _SERVER[path]
        if not (found := _MODEL.fullmatch(path)):
            return None
        name, version, verb = found.groups()
        return Target(verb or "metadata", name, version, computes=verb == "infer")

    def describe(self, target: Target, models: Models) -> Any:
        """The document that answers a GET."""
        name = target.model
        if not name:
            if target.route == "ready" and models.unserved:
                raise Refusal(
                    503, f"{len(models.unserved)} of {len(models.names)} models cannot be served: `/` says why."
                )
            return {
                "metadata": {"name": "rudel", "version": __version__, "extensions": ["binary_tensor_data"]},
                "models": {"models": models.names},
                "live": {"live": True},
                "ready": {"ready": True},
            }[target.route]
        loaded = models.find(name, target.version).loaded
        if target.route == "ready":
            return {"name": name, "ready": True}
        return documents.metadata(name, models.versions(name), loaded.platform, loaded.signature)

    def parse(self, target: Target, body: bytes, headers: Headers, version: Version) -> Query:
        """Reads the body of a POST."""
        signature = version.loaded.signature
        head, binary = documents.split(body, headers.json_length)
        inference = documents.read_inference(json_document(head), binary, signature)

        def write(outputs: Columns) -> Answer:
            content, length = documents.write_inference(inference, outputs, version.model, version.number, signature)
            if length is None:
                return Answer(content)
            return Answer(content, content_type=_BYTES, headers=((documents.JSON_LENGTH, b"%d" % length),))

        return Query(inference.columns, write)

    def server_operations(self) -> dict[str, Any]:
        """The paths about the server."""
        text = {"type": "string"}
        return {
            "/v2/models": getting("models_v2", "Names of the models", required(models=list_of(text))),
            "/v2": getting("server", "Name, version and extensions", required(name=text, extensions=list_of(text))),
            "/v2/health/live": getting("live", "Whether the server runs", flag("live")),
            "/v2/health/ready": getting("ready", "Whether all models are served", flag("ready")),
        }

    def model_operations(self, version: Version, place: str) -> dict[str, Any]:
        """The paths of a version."""
        name, signature = version.model, version.loaded.signature
        path, id = f"/v2/models/{name}{place}", f"{name}{place.replace('/', '_')}"
        described = required(name={"type": "string"}, inputs=list_of(ANY), outputs=list_of(ANY))
        request, answered = schemas.inference(signature.inputs, signature.outputs), required(outputs=list_of(ANY))
        return {
            path: getting(f"about_{id}", f"Inputs and outputs of {name}", described),
            f"{path}/ready": getting(f"ready_{id}", f"Whether {name} answers", flag("ready")),
            f"{path}/infer": posting(f"infer_{id}", f"Outputs of {name}", request, answered),
        }
