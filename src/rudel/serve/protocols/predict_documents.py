"""TensorFlow Serving's REST API: its documents, read and written.

Source: https://www.tensorflow.org/tfx/serving/api_rest. There is one signature, `serving_default`, and there are no
labels of versions. Where an example is an image, `{"b64": "..."}` is an image file.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from rudel.serve.model_signature import OPEN, Signature, Tensor
from rudel.serve.refusal import Refusal, bad
from rudel.serve.values import column_of_rows, numbers

SIGNATURE = "serving_default"


def read_predict(document: object, signature: Signature) -> tuple[list[np.ndarray], bool]:
    """The columns of a `:predict` request, and whether it is in the row format, in which it is to be answered.

    Raises:
        Refusal: it is no such document, or does not fit the model.
    """
    document = _object(document)
    if ("instances" in document) == ("inputs" in document):
        raise bad("Give either `instances`, a list of examples, or `inputs`, a list for each input.")
    if "instances" in document:
        return _from_rows(document["instances"], signature), True
    return _from_columns(document["inputs"], signature), False


def read_examples(document: object, signature: Signature) -> list[np.ndarray]:
    """The columns of a `:classify` or `:regress` request: `examples`, or `instances` as for `:predict`.

    Values of an example may be flat lists, whatever the shape of the input is.

    Raises:
        Refusal: it is no such document, or does not fit the model.
    """
    document = _object(document)
    if "examples" not in document:
        return read_predict(document, signature)[0]
    context, examples = document.get("context", {}), document["examples"]
    if not isinstance(context, dict):
        raise bad("`context` is not an object.")
    if not isinstance(examples, list) or not all(isinstance(example, dict) for example in examples):
        raise bad("`examples` is not a list of objects, one for each example.")
    merged = [{**context, **example} for example in examples]
    return _from_rows([_reshaped(example, signature) for example in merged], signature)


def write_predict(outputs: Sequence[np.ndarray], signature: Signature, in_rows: bool) -> bytes:
    """The answer to `:predict`."""
    columns = [_jsonable(output) for output in outputs]
    if len(columns) == 1:
        answer: Any = columns[0]
    elif in_rows:
        names = [tensor.name for tensor in signature.outputs]
        answer = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    else:
        answer = {tensor.name: column for tensor, column in zip(signature.outputs, columns, strict=True)}
    return orjson.dumps({"predictions" if in_rows else "outputs": answer}, option=orjson.OPT_SERIALIZE_NUMPY)


def write_classify(scores: np.ndarray, labels: Sequence[str]) -> bytes:
    """The answer to `:classify`: labels and scores of each example, best first.

    A class without a name has its index as its label.

    >>> write_classify(np.array([[0.25, 0.75]]), ["a", "b"])
    b'{"results":[[["b",0.75],["a",0.25]]]}'
    >>> write_classify(np.array([[0.25, 0.75]]), [])
    b'{"results":[[["1",0.75],["0",0.25]]]}'
    """
    names = list(labels) if len(labels) == scores.shape[1] else [str(index) for index in range(scores.shape[1])]
    order = np.argsort(-scores, axis=1, kind="stable")
    results = [
        [[names[i], score] for i, score in zip(best.tolist(), row[best], strict=True)]
        for best, row in zip(order, scores, strict=True)
    ]
    return orjson.dumps({"results": results}, option=orjson.OPT_SERIALIZE_NUMPY)


def write_regress(outputs: Sequence[np.ndarray]) -> bytes:
    """The answer to `:regress`.

    Raises:
        Refusal: the model does not give one number for an example.
    """
    if len(outputs) != 1 or outputs[0].size != len(outputs[0]) or outputs[0].dtype == object:
        raise bad("The model does not answer with one number for each example: ask by `:predict`.")
    return orjson.dumps({"results": outputs[0].reshape(-1)}, option=orjson.OPT_SERIALIZE_NUMPY)


def status(name: str, versions: Sequence[int]) -> dict[str, Any]:
    """The state of versions, all of them available; `name` and `ready` are what KServe's clients look for here."""
    return {
        "name": name,
        "ready": True,
        "model_version_status": [
            {"version": str(version), "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            for version in sorted(versions, reverse=True)
        ],
    }


def metadata(name: str, version: int, signature: Signature) -> dict[str, Any]:
    """The document about inputs and outputs of a version."""
    definition = {
        "inputs": {tensor.name: _described(tensor) for tensor in signature.inputs},
        "outputs": {tensor.name: _described(tensor) for tensor in signature.outputs},
        "method_name": "tensorflow/serving/predict",
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: definition}}},
    }


def _object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise bad("The body is not a JSON object.")
    name = document.get("signature_name", "")
    if name not in ("", SIGNATURE):
        raise bad(f"The only signature is `{SIGNATURE}`; leave `signature_name` out.")
    return document


def _from_rows(rows: object, signature: Signature) -> list[np.ndarray]:
    if not isinstance(rows, list) or not rows:
        raise bad("`instances` is not a list with at least one example.")
    inputs: Sequence[Tensor] = signature.inputs
    names = {tensor.name for tensor in inputs}
    if isinstance(rows[0], dict) and rows[0].keys() != {"b64"}:
        for place, row in enumerate(rows):
            if not isinstance(row, dict) or row.keys() != names:
                raise _other_inputs(row, names, f"Example {place:,}")
        return [column_of_rows([row[tensor.name] for row in rows], tensor) for tensor in inputs]
    if len(inputs) != 1:
        raise bad(f"The model takes several inputs: give examples as objects with {_listed(names)}.")
    return [column_of_rows(rows, inputs[0])]


def _from_columns(columns: Any, signature: Signature) -> list[np.ndarray]:
    inputs: Sequence[Tensor] = signature.inputs
    names = {tensor.name for tensor in inputs}
    if not isinstance(columns, dict) or columns.keys() == {"b64"}:
        if len(inputs) != 1:
            raise bad(f"The model takes several inputs: give `inputs` as an object with {_listed(names)}.")
        columns = {inputs[0].name: columns}
    if columns.keys() != names:
        raise _other_inputs(columns, names, "`inputs`")
    for name, column in columns.items():
        if not isinstance(column, list) or not column:
            raise bad(f"The input `{name}` is not a list with at least one example.")
    if len({len(column) for column in columns.values()}) > 1:
        raise bad("The inputs have different numbers of examples.")
    return [column_of_rows(columns[tensor.name], tensor) for tensor in inputs]


def _other_inputs(given: object, names: set[str], what: str) -> Refusal:
    """The refusal of inputs that are not those of the model: names the first that is missing, or else unknown."""
    if not isinstance(given, dict):
        return bad(f"{what} is not an object: the model takes {_listed(names)}.")
    if missing := names - given.keys():
        return bad(f"{what} lacks the input `{min(missing)}`: the model takes {_listed(names)}.")
    unknown = min(given.keys() - names)
    return bad(f"{what} has an input `{unknown[:100]}`, which is unknown: the model takes {_listed(names)}.")


def _reshaped(example: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
    """An example whose flat lists have the shape that the input takes."""
    shapes = {tensor.name: tensor.shape for tensor in signature.inputs if OPEN not in tensor.shape}
    made = dict(example)
    for name, shape in shapes.items():
        value = made.get(name)
        flat = value if isinstance(value, list) else [value]
        array = numbers(flat)
        if array is not None and array.shape == (int(np.prod(shape)),):
            made[name] = array.reshape(shape).tolist()
    return made


def _jsonable(output: np.ndarray) -> Any:
    if output.dtype == object:
        return [_text(value) for value in output.tolist()]
    return output.tolist() if output.dtype == np.float16 or output.ndim == 0 else np.ascontiguousarray(output)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return [_text(part) for part in value] if isinstance(value, list) else value


def _described(tensor: Tensor) -> dict[str, Any]:
    sizes = (OPEN, *tensor.shape)
    return {
        "dtype": tensor.tensorflow_name,
        "tensor_shape": {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": False},
        "name": f"{tensor.name}:0",
    }


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
