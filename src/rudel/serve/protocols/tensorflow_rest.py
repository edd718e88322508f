"""TensorFlow Serving's REST API, under /v1.

Source: https://www.tensorflow.org/tfx/serving/api_rest.
"""

import re
from typing import Any

from rudel.serve.batcher import Columns
from rudel.serve.body import Headers
from rudel.serve.image_inputs import IMAGES
from rudel.serve.models import Models, Version
from rudel.serve.protocols import predict_documents as documents
from rudel.serve.protocols import schemas
from rudel.serve.protocols.operations import getting, posting
from rudel.serve.protocols.protocol import Answer, Query, Target, json_document
from rudel.serve.protocols.schemas import ANY, list_of, required
from rudel.serve.recording_inputs import RECORDINGS
from rudel.serve.refusal import Refusal, bad
from rudel.serve.values import column_of_bytes

_MODEL = re.compile(r"/v1/models/([^/:]+)(?:/versions/([^/:]+))?(?:/(metadata)|:(predict|classify|regress))?")
_NOT_JSON = (b"\xff\xd8", b"\x89PNG", b"RIFF", b"fLaC", b"--")
"""The first bytes of JPEG, PNG, WebP, WAV and FLAC files, and of forms (multipart/form-data)."""


class TensorFlowRest:
    """TensorFlow Serving's REST API; where a model takes files, a body may also be a file."""

    prefix = "/v1"

    def match(self, path: str) -> Target | None:
        """See `ServingProtocol`."""
        if path == "/v1/models":
            return Target("models")
        if not (found := _MODEL.fullmatch(path)):
            return None
        name, version, metadata, verb = found.groups()
        return Target(verb or metadata or "status", name, version, computes=verb is not None)

    def describe(self, target: Target, models: Models) -> Any:
        """The document that answers a GET."""
        name = target.model
        if target.route == "models":
            return {"models": models.names}
        found = models.find(name, target.version)
        if target.route == "metadata":
            return documents.metadata(name, found.number, found.loaded.signature)
        return documents.status(name, models.versions(name) if target.version is None else [found.number])

    def parse(self, target: Target, body: bytes, headers: Headers, version: Version) -> Query:
        """Reads the body of a POST."""
        signature, is_file = version.loaded.signature, headers.media_type.startswith(("image/", "audio/"))
        if target.route == "predict":
            columns, in_rows = (
                (_file(body, headers.media_type, version), True)
                if is_file
                else documents.read_predict(_document(body), signature)
            )
            return Query(columns, lambda outputs: Answer(documents.write_predict(outputs, signature, in_rows)))
        columns = (
            _file(body, headers.media_type, version) if is_file else documents.read_examples(_document(body), signature)
        )
        if target.route == "regress":
            return Query(columns, lambda outputs: Answer(documents.write_regress(outputs)))
        return Query(columns, lambda outputs: _classes(outputs, version))

    def server_operations(self) -> dict[str, Any]:
        """The paths about the server."""
        names = required(models=list_of({"type": "string"}))
        return {"/v1/models": getting("models_v1", "Names of the models", names)}

    def model_operations(self, version: Version, place: str) -> dict[str, Any]:
        """The paths of a version."""
        name, loaded = version.model, version.loaded
        inputs, outputs = loaded.signature.inputs, loaded.signature.outputs
        path, id = f"/v1/models/{name}{place}", f"{name}{place.replace('/', '_')}"
        files = loaded.files.types if loaded.decode is not None else ()
        predicted = {"anyOf": [required(predictions=list_of({})), required(outputs={})]}
        metadata = required(model_spec=ANY, metadata=ANY)
        paths = {
            path: getting(f"status_{id}", f"Versions of {name}", required(model_version_status=list_of(ANY))),
            f"{path}/metadata": getting(f"metadata_{id}", f"Inputs and outputs of {name}", metadata),
            f"{path}:predict": posting(
                f"predict_{id}", f"Outputs of {name}", schemas.predict(inputs), predicted, files
            ),
        }
        if loaded.labels:
            examples = schemas.examples(inputs)
            results = required(results=list_of(list_of({"type": "array"})))
            paths[f"{path}:classify"] = posting(f"classify_{id}", f"Classes by {name}", examples, results, files)
        if len(outputs) == 1 and outputs[0].shape in ((), (1,)) and outputs[0].dtype != "bytes":
            results = required(results=list_of({"type": ["number", "boolean", "null"]}))
            examples = schemas.examples(inputs)
            paths[f"{path}:regress"] = posting(f"regress_{id}", f"A number by {name}", examples, results)
        return paths


def _document(body: bytes) -> Any:
    """The JSON of a body.

    Raises:
        Refusal: it is not JSON, but perhaps a file (415).
    """
    if body.startswith(_NOT_JSON):
        raise Refusal(
            415, "The body is not JSON: send a file as it is, with a header such as `Content-Type: image/jpeg`."
        )
    return json_document(body)


def _file(body: bytes, media_type: str, version: Version) -> Columns:
    """The column of one encoded image or recording."""
    kind = next((kind for kind in (IMAGES, RECORDINGS) if media_type in kind.types), None)
    if kind is None:
        *others, last = IMAGES.types
        types = f"{', '.join(others)} or {last}"
        raise Refusal(415, f"Images are accepted as {types}, recordings as audio/wav or audio/flac.")
    if version.loaded.decode is None or version.loaded.files.noun != kind.noun:
        raise bad(f"The model `{version.model}` takes no {kind.noun}.")
    return [column_of_bytes([body], version.loaded.signature.inputs[0])]


def _classes(outputs: Columns, version: Version) -> Answer:
    loaded = version.loaded
    is_one = len(outputs) == 1 and outputs[0].dtype.kind == "f" and outputs[0].ndim == 2
    scores = loaded.scores(outputs[0]) if is_one else None
    if scores is None:
        raise bad(f"The model `{version.model}` does not classify: ask by `:predict`.")
    return Answer(documents.write_classify(scores, loaded.labels))
