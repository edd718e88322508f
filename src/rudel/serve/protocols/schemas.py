"""JSON Schemas of requests: exactly the shapes and the numbers that a model takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rudel.serve.model_signature import OPEN, V2_DTYPES, Tensor
from rudel.serve.protocols.predict_documents import SIGNATURE

Schema = dict[str, Any]

ANY: Schema = {"type": "object"}

_TEXT: Schema = {
    "anyOf": [{"type": "string"}, {"type": "object", "required": ["b64"], "properties": {"b64": {"type": "string"}}}]
}


def required(**properties: Schema) -> Schema:
    """An object that has all these, and maybe others."""
    return {"type": "object", "required": list(properties), "properties": properties}


def list_of(items: Schema, least: int = 0) -> Schema:
    """A list of any length, but at least `least`."""
    return {"type": "array", "items": items} | ({"minItems": least} if least else {})


def flag(name: str) -> Schema:
    """An object with one boolean."""
    return required(**{name: {"type": "boolean"}})


def predict(inputs: Sequence[Tensor]) -> Schema:
    """The body of `:predict`."""
    rows = [list_of(_named(inputs, [_value(tensor) for tensor in inputs]), 1)]
    columns = [_named(inputs, [list_of(_value(tensor), 1) for tensor in inputs])]
    if len(inputs) == 1:
        rows.append(list_of(_value(inputs[0]), 1))
        columns.append(list_of(_value(inputs[0]), 1))
    return {"anyOf": [_body("instances", rows, "inputs"), _body("inputs", columns, "instances")]}


def examples(inputs: Sequence[Tensor]) -> Schema:
    """The body of `:classify` and `:regress`: flat features, or what `:predict` takes."""
    features = _named(inputs, [{"anyOf": [_flat(tensor), _value(tensor)]} for tensor in inputs])
    given = required(examples=list_of(features, 1)) | {}
    given["properties"] |= {
        "signature_name": {"enum": ["", SIGNATURE]},
        "context": {"type": "object", "maxProperties": 0},
    }
    request = predict(inputs)["anyOf"]
    return {"anyOf": [given, *({**each, "properties": {**each["properties"], "examples": False}} for each in request)]}


def inference(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Schema:
    """The body of an inference, as far as a schema can tell."""
    tensors = [form for tensor in inputs for form in _forms(tensor)]
    wanted = required(name={"enum": [tensor.name for tensor in outputs]})
    body = required(
        inputs={"type": "array", "items": {"anyOf": tensors}, "minItems": len(inputs), "maxItems": len(inputs)}
    )
    body["properties"] |= {"id": {"type": "string"}, "outputs": list_of(wanted)}
    return body


def _forms(tensor: Tensor) -> list[Schema]:
    """A tensor of an inference: with one example, of which a schema can tell the data, or with several."""
    any_shape = list_of({"type": "integer", "minimum": 1}, 1)
    about = {"name": {"const": tensor.name}, "datatype": {"enum": _datatypes(tensor)}}
    if OPEN in tensor.shape or tensor.dtype == "bytes":
        return [required(**about, shape=any_shape, data={"type": "array"})]
    several = any_shape | {"prefixItems": [{"type": "integer", "minimum": 2}]}
    return [
        required(
            **about | {"datatype": {"const": tensor.v2_name}}, shape={"const": [1, *tensor.shape]}, data=_flat(tensor)
        ),
        required(**about, shape=several, data={"type": "array"}),
    ]


def _body(key: str, forms: list[Schema], other: str) -> Schema:
    properties = {key: {"anyOf": forms}, other: False, "signature_name": {"enum": ["", SIGNATURE]}}
    return {"type": "object", "required": [key], "properties": properties}


def _named(inputs: Sequence[Tensor], values: Sequence[Schema]) -> Schema:
    schema = required(**{tensor.name: value for tensor, value in zip(inputs, values, strict=True)})
    return schema | {"additionalProperties": False}


def _value(tensor: Tensor) -> Schema:
    """One example, nested as its shape says."""
    schema = _number(tensor)
    if tensor.gaps:
        schema = {"anyOf": [schema, {"type": "null"}]}
    for size in reversed(tensor.shape):
        schema = {"type": "array", "items": schema} | ({} if size == OPEN else {"minItems": size, "maxItems": size})
    return schema


def _flat(tensor: Tensor) -> Schema:
    """One example as a flat list."""
    size = int(np.prod(tensor.shape))
    return {"type": "array", "items": _number(tensor)} | ({} if size < 0 else {"minItems": size, "maxItems": size})


def _number(tensor: Tensor) -> Schema:
    if tensor.dtype == "bytes":
        return _TEXT
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "b":
        return {"type": "boolean"}
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    as_number = float if dtype.kind == "f" else int
    return {
        "type": "number" if dtype.kind == "f" else "integer",
        "minimum": as_number(limits.min),
        "maximum": as_number(limits.max),
    }


def _datatypes(tensor: Tensor) -> list[str]:
    if tensor.dtype == "bytes":
        return ["BYTES"]
    kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[np.dtype(tensor.dtype).kind]
    return [name for name, dtype in V2_DTYPES.items() if dtype.kind in kinds]
