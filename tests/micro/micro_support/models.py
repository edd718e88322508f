"""Small .tflite files, made field by field, so that every quantisation parameter can be chosen."""

from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from rudel.micro.registry import OPERATORS
from rudel.micro.schema import ACTIVATIONS, BUILTIN_OPERATORS, DTYPES, PADDINGS

_DTYPE_CODES = {name: code for code, name in DTYPES.items()}

# The number of each operator's options in the union BuiltinOptions of schema.fbs.
_UNION = {
    "CONV_2D": 1,
    "DEPTHWISE_CONV_2D": 2,
    "AVERAGE_POOL_2D": 5,
    "MAX_POOL_2D": 5,
    "SVDF": 6,
    "FULLY_CONNECTED": 8,
    "SOFTMAX": 9,
    "CONCATENATION": 10,
    "ADD": 11,
    "RESHAPE": 17,
    "MUL": 21,
    "PAD": 22,
    "TRANSPOSE": 26,
    "MEAN": 27,
    "SUB": 28,
    "SQUEEZE": 30,
    "STRIDED_SLICE": 32,
    "CAST": 37,
    "DEQUANTIZE": 38,
    "TRANSPOSE_CONV": 49,
    "EXPAND_DIMS": 52,
    "SHAPE": 55,
    "PACK": 59,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
    "RESIZE_NEAREST_NEIGHBOR": 74,
    "LEAKY_RELU": 75,
    "QUANTIZE": 89,
    "HARD_SWISH": 91,
    "SPLIT": 35,
    "SPLIT_V": 79,
    "UNPACK": 64,
    "GELU": 116,
}

_VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "AVERAGE_POOL_2D": 2,
    "MAX_POOL_2D": 2,
    "ADD": 2,
    "SUB": 2,
    "MUL": 2,
    "CONCATENATION": 2,
    "SOFTMAX": 2,
    "LOGISTIC": 2,
    "TANH": 2,
    "RELU": 2,
    "RELU6": 2,
    "LEAKY_RELU": 2,
    "PAD": 2,
    "MEAN": 2,
    "TRANSPOSE": 2,
    "STRIDED_SLICE": 2,
    "RESIZE_NEAREST_NEIGHBOR": 2,
    "TRANSPOSE_CONV": 3,
    "QUANTIZE": 2,
    "DEQUANTIZE": 2,
    "GELU": 2,
    "RSQRT": 2,
    "SPLIT": 2,
    "SPLIT_V": 2,
    "SQUARED_DIFFERENCE": 2,
    "UNPACK": 2,
    "SVDF": 3,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 3,
}


@dataclass(frozen=True)
class T:
    """A tensor: what stands in the file."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: Any = None
    zero_point: Any = 0
    axis: int = 0
    data: np.ndarray | None = None
    name: str = "t"
    variable: bool = False
    signature: tuple[int, ...] = ()


@dataclass(frozen=True)
class Op:
    """An operator: what stands in the file; the kind `CUSTOM name` is a custom one."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    version: int | None = None
    intermediates: tuple[int, ...] = ()


Signature = tuple[dict[str, int], dict[str, int]]
"""Tensors of inputs and outputs by their names, in the order in which they stand in the file."""


def build(
    tensors: list[T], operators: list[Op], inputs: list[int], outputs: list[int], signature: Signature | None = None
) -> bytes:
    """Returns the bytes of a .tflite file."""
    b = flatbuffers.Builder(1024)
    buffers = [_table(b, {})]
    places = []
    slots: dict[int, tuple[str, Any]]
    for tensor in tensors:
        if tensor.data is None:
            places.append(0)
        else:
            raw = np.ascontiguousarray(tensor.data).astype(np.dtype(tensor.dtype).newbyteorder("<")).tobytes()
            vector = _bytes(b, raw)
            places.append(len(buffers))
            buffers.append(_table(b, {0: ("offset", vector)}))
    tensor_tables = []
    for tensor, place in zip(tensors, places, strict=True):
        slots = {
            0: ("offset", _vector(b, "Int32", tensor.shape)),
            1: ("Int8", _DTYPE_CODES[tensor.dtype]),
            2: ("Uint32", place),
            3: ("offset", b.CreateString(tensor.name)),
        }
        if tensor.scale is not None:
            scale = np.atleast_1d(np.asarray(tensor.scale, np.float32))
            zero_point = np.broadcast_to(np.asarray(tensor.zero_point, np.int64), scale.shape)
            quantisation = _table(
                b,
                {
                    2: ("offset", _vector(b, "Float32", scale.tolist())),
                    3: ("offset", _vector(b, "Int64", zero_point.tolist())),
                    6: ("Int32", tensor.axis),
                },
            )
            slots[4] = ("offset", quantisation)
        if tensor.variable:
            slots[5] = ("Bool", True)
        if tensor.signature:
            slots[7] = ("offset", _vector(b, "Int32", tensor.signature))
        tensor_tables.append(_table(b, slots))
    kinds = sorted({(o.kind, o.version or _VERSIONS.get(o.kind, 1)) for o in operators})
    codes = []
    for kind, version in kinds:
        builtin, _, custom = kind.partition(" ")
        code = list(BUILTIN_OPERATORS).index(builtin)
        slots = {0: ("Int8", min(code, 127)), 2: ("Int32", version), 3: ("Int32", code)}
        if custom:
            slots[1] = ("offset", b.CreateString(custom))
        codes.append(_table(b, slots))
    operator_tables = []
    for o in operators:
        slots = {
            0: ("Uint32", kinds.index((o.kind, o.version or _VERSIONS.get(o.kind, 1)))),
            1: ("offset", _vector(b, "Int32", o.inputs)),
            2: ("offset", _vector(b, "Int32", o.outputs)),
        }
        if o.kind in _UNION:
            slots[3] = ("Uint8", _UNION[o.kind])
            slots[4] = ("offset", _options(b, o))
        if o.intermediates:
            slots[8] = ("offset", _vector(b, "Int32", o.intermediates))
        operator_tables.append(_table(b, slots))
    subgraph = _table(
        b,
        {
            0: ("offset", _tables(b, tensor_tables)),
            1: ("offset", _vector(b, "Int32", inputs)),
            2: ("offset", _vector(b, "Int32", outputs)),
            3: ("offset", _tables(b, operator_tables)),
        },
    )
    slots = {
        0: ("Uint32", 3),
        1: ("offset", _tables(b, codes)),
        2: ("offset", _tables(b, [subgraph])),
        4: ("offset", _tables(b, buffers)),
    }
    if signature is not None:
        slots[7] = ("offset", _tables(b, [_signature(b, signature)]))
    model = _table(b, slots)
    b.Finish(model, file_identifier=b"TFL3")
    return bytes(b.Output())


def _signature(b: flatbuffers.Builder, signature: Signature) -> int:
    sides = [
        [_table(b, {0: ("offset", b.CreateString(name)), 1: ("Uint32", index)}) for name, index in side.items()]
        for side in signature
    ]
    slots = {place: ("offset", _tables(b, side)) for place, side in enumerate(sides)}
    return _table(b, {**slots, 2: ("offset", b.CreateString("serving_default"))})


def _options(b: flatbuffers.Builder, o: Op) -> int:
    forms = {"i": "Int32", "b": "Int8", "?": "Bool", "f": "Float32"}
    slots: dict[int, tuple[str, Any]] = {}
    for name, value in o.options.items():
        option = OPERATORS[o.kind].options[name]
        if option.form == "padding":
            slots[option.slot] = ("Int8", PADDINGS.index(value))
        elif option.form == "activation":
            slots[option.slot] = ("Int8", ACTIVATIONS.index(value))
        elif option.form == "integers":
            slots[option.slot] = ("offset", _vector(b, "Int32", value))
        else:
            slots[option.slot] = (forms[option.form], value)
    return _table(b, slots)


def _table(b: flatbuffers.Builder, slots: dict[int, tuple[str, Any]]) -> int:
    b.StartObject(max(slots, default=-1) + 1)
    b.ForceDefaults(True)
    for slot, (form, value) in slots.items():
        if form == "offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            getattr(b, f"Prepend{form}Slot")(slot, value, 0)
    return b.EndObject()


def _bytes(b: flatbuffers.Builder, raw: bytes) -> int:
    b.StartVector(1, len(raw), 16)
    b.head = b.head - len(raw)
    b.Bytes[b.head : b.head + len(raw)] = raw
    return b.EndVector()


def _vector(b: flatbuffers.Builder, form: str, values: Any) -> int:
    size = {"Int32": 4, "Float32": 4, "Int64": 8}[form]
    values = list(values)
    b.StartVector(size, len(values), size)
    for value in reversed(values):
        getattr(b, f"Prepend{form}")(value)
    return b.EndVector()


def _tables(b: flatbuffers.Builder, offsets: list[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()
