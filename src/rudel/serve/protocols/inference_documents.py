"""The Open Inference Protocol (KServe v2): its documents, and tensors as bytes behind them.

Sources: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol and, for binary tensors, its
page on the extension `binary_tensor_data`.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from rudel.serve.model_signature import OPEN, V2_DTYPES, Signature, Tensor
from rudel.serve.refusal import Refusal, bad
from rudel.serve.values import checked, column_of_bytes, filled, numbers

JSON_LENGTH = b"inference-header-content-length"

_LARGEST = 1 << 40


@dataclass(frozen=True)
class Wanted:
    """An output that a request asks for.

    Args:
        place: which one, in the order of the model.
        binary: whether as bytes.
    """

    place: int
    binary: bool


@dataclass(frozen=True)
class Inference:
    """A request, read.

    Args:
        columns: arrays (N, ...) of the inputs, in the order of the model; images, which come as BYTES, still encoded.
        wanted: outputs to answer with.
        id: given back with the answer, if there is one.
    """

    columns: list[np.ndarray]
    wanted: Sequence[Wanted]
    id: str | None


def split(body: bytes, json_length: bytes | None) -> tuple[bytes, memoryview]:
    """The JSON part of a body, and the bytes behind it.

    Raises:
        Refusal: the header with the length of the JSON makes no sense.
    """
    if json_length is None:
        return body, memoryview(b"")
    if not json_length.isdigit() or len(json_length) > 12 or int(json_length) > len(body):
        raise bad("The header Inference-Header-Content-Length is not the length of the JSON in the body.")
    length = int(json_length)
    return body[:length], memoryview(body)[length:]


def read_inference(document: object, binary: memoryview, signature: Signature) -> Inference:
    """Reads a request.

    Args:
        document: its JSON.
        binary: the bytes behind that.
        signature: of the model.

    Raises:
        Refusal: it is no such document, or does not fit the model.
    """
    if not isinstance(document, dict):
        raise bad("The body is not a JSON object.")
    given = document.get("inputs")
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise bad("`inputs` is not a list of tensors.")
    tensors = {tensor.name: tensor for tensor in signature.inputs}
    columns: dict[str, np.ndarray] = {}
    at = 0
    for each in given:
        name = each.get("name")
        if not isinstance(name, str) or name not in tensors or name in columns:
            raise bad(f"`inputs` are not those of the model, which takes each of {', '.join(tensors)} once.")
        size = _parameters(each).get("binary_data_size")
        part = None
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(binary) - at:
                raise bad(f"`binary_data_size` of the input `{name}` is more than what follows the JSON.")
            part, at = binary[at : at + size], at + size
        columns[name] = _column(each, part, tensors[name])
    if len(columns) < len(tensors):
        raise bad(f"The input `{next(n for n in tensors if n not in columns)}` is missing.")
    if at != len(binary):
        raise bad("More bytes follow the JSON than the inputs account for.")
    if len({len(column) for column in columns.values()}) > 1:
        raise bad("The inputs have different numbers of examples.")
    id = document.get("id")
    if not isinstance(id, str | None):
        raise bad("`id` is not a text.")
    return Inference([columns[name] for name in tensors], _wanted(document, signature), id)


def write_inference(
    inference: Inference, outputs: Sequence[np.ndarray], name: str, version: int, signature: Signature
) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of the JSON in it where bytes follow that."""
    described, parts = [], []
    for wanted in inference.wanted:
        tensor, values = signature.outputs[wanted.place], np.ascontiguousarray(outputs[wanted.place])
        about: dict[str, Any] = {"name": tensor.name, "datatype": tensor.v2_name, "shape": values.shape}
        if wanted.binary:
            part = _packed(values) if values.dtype == object else values.tobytes()
            about["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
        elif values.dtype == object:
            about["data"] = [_text(value) for value in values.reshape(-1)]
        else:
            flat = values.reshape(-1)
            about["data"] = flat.tolist() if flat.dtype == np.float16 else flat
        described.append(about)
    answer = {"model_name": name, "model_version": str(version), "outputs": described}
    if inference.id is not None:
        answer["id"] = inference.id
    head = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((head, *parts)), len(head)) if parts else (head, None)


def metadata(name: str, versions: Sequence[int], platform: str, signature: Signature) -> dict[str, Any]:
    """The document about inputs and outputs of a model."""
    return {
        "name": name,
        "versions": [str(version) for version in sorted(versions)],
        "platform": platform,
        "inputs": [_described(tensor) for tensor in signature.inputs],
        "outputs": [_described(tensor) for tensor in signature.outputs],
    }


def _column(given: Mapping[str, Any], part: memoryview | None, tensor: Tensor) -> np.ndarray:
    datatype, shape = given.get("datatype"), given.get("shape")
    if not isinstance(datatype, str) or (datatype != "BYTES" and datatype not in V2_DTYPES):
        raise bad(f"`datatype` of the input `{tensor.name}` is none of BYTES, {', '.join(V2_DTYPES)}.")
    if (
        not isinstance(shape, list)
        or not all(type(size) is int and 0 <= size < _LARGEST for size in shape)
        or not shape
    ):
        raise bad(f"`shape` of the input `{tensor.name}` is not a list of sizes, the number of examples first.")
    if not shape[0]:
        raise bad(f"The input `{tensor.name}` has no examples.")
    if len(shape) > 32:
        raise bad(f"`shape` of the input `{tensor.name}` has more than 32 dimensions.")
    if math.prod(size or 1 for size in shape) >= _LARGEST:
        raise bad(f"`shape` of the input `{tensor.name}` is larger than any array.")
    if part is None and "data" not in given:
        raise bad(f"The input `{tensor.name}` has neither `data` nor `binary_data_size`.")
    if part is not None and "data" in given:
        raise bad(f"The input `{tensor.name}` has both `data` and `binary_data_size`.")
    if datatype == "BYTES":
        contents = _unpacked(part, tensor) if part is not None else _texts(given["data"], tensor)
        if len(contents) != math.prod(shape):
            raise bad(f"The input `{tensor.name}` has {len(contents)} elements, and its shape says {math.prod(shape)}.")
        if len(contents) != shape[0]:
            raise bad(f"The input `{tensor.name}` takes one BYTES element for each example.")
        return column_of_bytes(contents, tensor)
    if tensor.dtype == "bytes":
        raise bad(f"The input `{tensor.name}` takes BYTES, and its `datatype` is {datatype}.")
    array = _numbers(given["data"], datatype, tensor) if part is None else _from_bytes(part, datatype, tensor)
    if array.size != math.prod(shape):
        raise bad(f"The input `{tensor.name}` has {array.size} elements, and its shape says {math.prod(shape)}.")
    return checked(array.reshape(shape), tensor)


def _numbers(data: object, datatype: str, tensor: Tensor) -> np.ndarray:
    """Numbers as JSON has them, flat or nested, if they are of the datatype."""
    array = numbers(filled(data, tensor) if isinstance(data, list) else data)
    dtype = V2_DTYPES[datatype]
    fits = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[dtype.kind]
    if array is None or array.ndim == 0 or array.size == 0 or array.dtype.kind not in fits:
        raise bad(f"`data` of the input `{tensor.name}` is not a list of {datatype}.")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise bad(f"`data` of the input `{tensor.name}` has numbers that are no {datatype}.")
    return array


def _from_bytes(part: memoryview, datatype: str, tensor: Tensor) -> np.ndarray:
    dtype = V2_DTYPES[datatype]
    if len(part) % dtype.itemsize:
        raise bad(
            f"The bytes of the input `{tensor.name}` are not a multiple of the {dtype.itemsize} that {datatype} takes."
        )
    array = np.frombuffer(part, dtype)
    if datatype == "BOOL":
        if (array.view(np.uint8) > 1).any():
            raise bad(f"The bytes of the input `{tensor.name}` are not all 0 or 1, as BOOL is.")
        return array
    return array.astype(dtype.newbyteorder("="), copy=False)


def _texts(data: object, tensor: Tensor) -> list[bytes]:
    flat = data if isinstance(data, list) else [data]
    texts = filled([each[0] if isinstance(each, list) and len(each) == 1 else each for each in flat], tensor)
    if not all(isinstance(text, str) for text in texts):
        raise bad(f"`data` of the input `{tensor.name}` is not a list of texts.")
    return [str(text).encode() for text in texts]


def _unpacked(part: memoryview, tensor: Tensor) -> list[bytes]:
    """Elements, each behind its length in 4 bytes."""
    contents, at = [], 0
    while at < len(part):
        size = int.from_bytes(part[at : at + 4], "little") if at + 4 <= len(part) else _LARGEST
        if at + 4 + size > len(part):
            raise bad(f"The bytes of the input `{tensor.name}` end within an element.")
        contents.append(bytes(part[at + 4 : at + 4 + size]))
        at += 4 + size
    return contents


def _packed(values: np.ndarray) -> bytes:
    contents = [value if isinstance(value, bytes) else str(value).encode() for value in values.reshape(-1)]
    return b"".join(struct.pack("<I", len(content)) + content for content in contents)


def _wanted(document: Mapping[str, Any], signature: Signature) -> list[Wanted]:
    all_binary = _parameters(document).get("binary_data_output", False)
    if not isinstance(all_binary, bool):
        raise bad("`binary_data_output` is neither true nor false.")
    requested = document.get("outputs")
    places = {tensor.name: place for place, tensor in enumerate(signature.outputs)}
    if not requested and isinstance(requested, list | None):
        return [Wanted(place, all_binary) for place in places.values()]
    if not isinstance(requested, list) or not all(isinstance(each, dict) for each in requested):
        raise bad("`outputs` is not a list of tensors.")
    found = []
    for each in requested:
        name, parameters = each.get("name"), _parameters(each)
        if not isinstance(name, str) or name not in places:
            raise bad(f"`outputs` are not those of the model, which gives {', '.join(places)}.")
        binary = parameters.get("binary_data", all_binary)
        if not isinstance(binary, bool):
            raise bad(f"`binary_data` of the output `{name}` is neither true nor false.")
        if "classification" in parameters:
            raise Refusal(400, "The extension `classification` is not supported: ask /v1/models/NAME:classify.")
        found.append(Wanted(places[name], binary))
    return found


def _parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise bad("`parameters` is not an object.")
    return parameters


def _described(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.v2_name, "shape": [OPEN, *tensor.shape]}


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
