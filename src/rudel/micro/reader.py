"""From the bytes of a .tflite file to a graph.

Whatever the bytes are, the outcome is a graph or one sentence. What the graph promises to those who use it: indices are
within bounds, shapes are positive and not too large, constants have as many bytes as their shape says, operators are
in an order in which they can run, and each tensor is computed once.
"""

import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from rudel.errors import CompileError
from rudel.micro.flatbuffer import Flatbuffer, Table
from rudel.micro.graph import Graph, Operator, Quantisation, Tensor
from rudel.micro.kinds import refuse_accelerators
from rudel.micro.registry import OPERATORS
from rudel.micro.schema import ACTIVATIONS, BUILTIN_OPERATORS, DTYPES, IDENTIFIER, PADDINGS, VERSION
from rudel.micro.signature import signed

MOST_ELEMENTS = 1 << 26
"""Larger tensors are refused: no microcontroller holds them, and a damaged file may name any number."""

_COMPUTABLE = ("float32", "int32", "uint8", "int64", "bool", "int16", "int8", "float16", "float64")


def read_file(path: Path) -> tuple[Graph, bytes]:
    """Reads a .tflite file; returns its graph and its bytes.

    Raises:
        CompileError: there is no such file, or `read_model` refuses its content.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CompileError(f"`{path}` cannot be read: {error.strerror}.") from error
    try:
        return read_model(data), data
    except CompileError as error:
        if path.suffix == ".keras":
            shown = shlex.quote(str(path))
            raise CompileError(
                f"`{path}` is a model of Keras: make a .tflite model of it by `rudel export {shown} --to litert-int8`."
            ) from error
        raise CompileError(f"`{path}`: {error}") from error


def read_model(data: bytes) -> Graph:
    """Makes a graph of the bytes of a .tflite file.

    Raises:
        CompileError: not a .tflite file, truncated or damaged, or something that cannot be compiled: several subgraphs,
            dynamic shapes, sparse or non-numeric tensors.
    """
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise CompileError("This is not a .tflite model: bytes 4 to 7 of one are `TFL3`.")
    model = Flatbuffer.of(data).root()
    version = model.integer(0, "I")
    if version != VERSION:
        raise CompileError(f"The model has schema version {version}, and only version {VERSION} can be read.")
    subgraphs = model.tables(2)
    if len(subgraphs) != 1:
        raise CompileError(
            f"The model has {len(subgraphs)} subgraphs, and only models with one can be compiled: "
            "control flow (IF, WHILE) has to be removed before conversion."
        )
    subgraph = subgraphs[0]
    buffers = model.tables(4)
    tensors = tuple(_tensor(index, table, buffers) for index, table in enumerate(subgraph.tables(0)))
    codes = [_operator_code(table) for table in model.tables(1)]
    operators = tuple(_operator(index, table, codes, len(tensors)) for index, table in enumerate(subgraph.tables(3)))
    graph = Graph(tensors, operators, subgraph.integers(1), subgraph.integers(2))
    refuse_accelerators(operators)
    _check(graph)
    return signed(graph, model)


def with_valid_axes(data: bytes) -> bytes:
    """Returns a model with the axis of per-channel biases corrected where it is one that they do not have.

    Old converters wrote the axis of the weights there. LiteRT refuses such files since 2025; the numbers are right.
    """
    corrected = bytearray(data)
    subgraph = Flatbuffer.of(data).root().tables(2)[0]
    for tensor in subgraph.tables(0):
        quantisation = tensor.table(4)
        shape = tensor.integers(0)
        if quantisation is not None and len(shape) == 1 and quantisation.integer(6, "i") != 0:
            position = quantisation.position_of(6)
            corrected[position : position + 4] = bytes(4)
    return bytes(corrected)


def _tensor(index: int, table: Table, buffers: list[Table]) -> Tensor:
    name = table.text(3)
    shown = f"tensor {index} (`{_short(name)}`)"
    code = table.integer(1, "b")
    dtype = DTYPES.get(code)
    if dtype is None:
        raise CompileError(f"The file is damaged: {shown} has the unknown type {code}.")
    shape = table.integers(0)
    if any(size < 0 for size in shape) or any(size < 0 for size in table.integers(7)[1:]):
        raise CompileError(
            f"The shape of {shown} is dynamic: convert the model with a fixed batch size of 1 and fixed input sizes."
        )
    if math.prod(shape) > MOST_ELEMENTS:
        raise CompileError(f"{_started(shown)} has {math.prod(shape):,} elements, more than {MOST_ELEMENTS:,}.")
    if table.table(6) is not None:
        raise CompileError(f"{_started(shown)} is sparse, which is not supported: convert the model without sparsity.")
    data = _data(table.integer(2, "I"), dtype, shape, shown, buffers)
    return Tensor(
        index, name, shape, dtype, _quantisation(table.table(4), shown, shape), data, bool(table.number(5, "?"))
    )


def _data(number: int, dtype: str, shape: tuple[int, ...], shown: str, buffers: list[Table]) -> np.ndarray | None:
    if number >= len(buffers):
        raise CompileError(f"The file is damaged: {shown} refers to buffer {number} of {len(buffers)}.")
    buffer = buffers[number]
    if buffer.integer(1, "Q") > 1 or buffer.integer(2, "Q") > 1:
        raise CompileError(f"{_started(shown)} lies outside the flatbuffer, as in models beyond 2 GB: not supported.")
    raw = buffer.array(0, "u1")
    if raw is None or len(raw) == 0:
        return None
    if dtype not in _COMPUTABLE:
        raise CompileError(f"{_started(shown)} has type {dtype}, which is not supported.")
    kind = np.dtype(dtype).newbyteorder("<")
    if len(raw) != math.prod(shape) * kind.itemsize:
        raise CompileError(
            f"The file is damaged: {shown} needs {math.prod(shape) * kind.itemsize} bytes of data and has {len(raw)}."
        )
    return np.frombuffer(raw.tobytes(), kind).astype(dtype).reshape(shape)


def _quantisation(table: Table | None, shown: str, shape: tuple[int, ...]) -> Quantisation | None:
    if table is None:
        return None
    scale, zero_point = table.array(2, "f4"), table.array(3, "i8")
    if scale is None or len(scale) == 0:
        return None
    if zero_point is None or len(zero_point) == 0:
        zero_point = np.zeros(len(scale), np.int64)
    if len(zero_point) != len(scale):
        if len(zero_point) != 1:
            raise CompileError(
                f"The file is damaged: {shown} has {len(scale)} scales and {len(zero_point)} zero points."
            )
        zero_point = np.repeat(zero_point, len(scale))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise CompileError(f"The file is damaged: {shown} has a scale that is not a positive number.")
    if np.abs(zero_point).max() > 1 << 31:
        raise CompileError(f"The file is damaged: {shown} has a zero point beyond 32 bits.")
    axis = table.integer(6, "i")
    if len(scale) > 1:
        table.buffer.allowance.take(len(scale))
        if len(shape) == 1:
            axis = 0
        if not 0 <= axis < len(shape) or shape[axis] != len(scale):
            raise CompileError(
                f"The file is damaged: {shown} has {len(scale)} scales along axis {axis} of {list(shape)}."
            )
    return Quantisation(scale.astype(np.float32), zero_point.astype(np.int64), axis)


def _operator_code(table: Table) -> tuple[str, int]:
    """Returns the name and the version that an operator's code stands for."""
    code = max(table.integer(0, "b"), table.integer(3, "i"))
    name = BUILTIN_OPERATORS[code] if 0 <= code < len(BUILTIN_OPERATORS) else f"operator code {code}"
    if name == "CUSTOM":
        name = f"CUSTOM `{_short(table.text(1))}`"
    return name, table.integer(2, "i", 1)


def _operator(index: int, table: Table, codes: list[tuple[str, int]], tensors: int) -> Operator:
    number = table.integer(0, "I")
    if number >= len(codes):
        raise CompileError(f"The file is damaged: operator {index} has code {number} of {len(codes)}.")
    kind, version = codes[number]
    inputs, outputs, intermediates = table.integers(1), table.integers(2), table.integers(8)
    if any(not -1 <= tensor < tensors for tensor in (*inputs, *intermediates)) or any(
        not 0 <= tensor < tensors for tensor in outputs
    ):
        raise CompileError(f"The file is damaged: operator {index} ({kind}) refers to a tensor that there is not.")
    return Operator(index, kind, version, inputs, outputs, _options(kind, table.table(4), index), intermediates)


def _options(kind: str, table: Table | None, index: int) -> dict[str, Any]:
    options: dict[str, Any] = {}
    entry = OPERATORS.get(kind)
    for name, field in entry.options.items() if entry else ():
        if field.form == "integers":
            options[name] = table.integers(field.slot) if table else ()
        elif field.form in ("padding", "activation"):
            names = PADDINGS if field.form == "padding" else ACTIVATIONS
            code = table.integer(field.slot, "b") if table else 0
            if not 0 <= code < len(names):
                raise CompileError(f"The file is damaged: operator {index} ({kind}) has the unknown {name} {code}.")
            options[name] = names[code]
        else:
            value = table.number(field.slot, field.form, field.default) if table else field.default
            if not math.isfinite(value):
                raise CompileError(f"The file is damaged: operator {index} ({kind}) has the {name} {value}.")
            options[name] = value
    return options


def _check(graph: Graph) -> None:
    """Raises: CompileError: operators cannot run in the order in which they are, or inputs and outputs do not fit."""
    for index in (*graph.inputs, *graph.outputs):
        if not 0 <= index < len(graph.tensors):
            raise CompileError(f"The file is damaged: tensor {index} of {len(graph.tensors)} is an input or output.")
    if not graph.inputs or not graph.outputs:
        raise CompileError("The model has no input or no output.")
    if len(set(graph.inputs)) != len(graph.inputs):
        raise CompileError("The file is damaged: the same tensor is an input twice.")
    known = {tensor.index for tensor in graph.tensors if tensor.data is not None or tensor.variable} | set(graph.inputs)
    for operator in graph.operators:
        if not operator.outputs or not operator.inputs or operator.inputs[0] < 0:
            raise CompileError(f"The file is damaged: {operator.label} has no input or no output.")
        for tensor in operator.inputs:
            if tensor >= 0 and tensor not in known and graph[tensor].size:
                raise CompileError(
                    f"The file is damaged: {operator.label} reads tensor {tensor} before it is computed."
                )
        for tensor in operator.outputs:
            if tensor in known:
                raise CompileError(f"The file is damaged: {operator.label} computes tensor {tensor} a second time.")
        known.update(operator.outputs)
    for tensor in graph.outputs:
        if tensor not in known:
            raise CompileError(f"The file is damaged: output tensor {tensor} is never computed.")
    for index in {*graph.inputs, *(tensor for operator in graph.operators for tensor in operator.outputs)}:
        tensor = graph[index]
        if tensor.dtype not in _COMPUTABLE:
            raise CompileError(
                f"Tensor {index} (`{_short(tensor.name)}`) has type {tensor.dtype}, which is not supported."
            )
        if tensor.size == 0:
            raise CompileError(f"Tensor {index} (`{_short(tensor.name)}`) is empty: its shape is {list(tensor.shape)}.")


def _started(words: str) -> str:
    """Returns words as the start of a sentence."""
    return words[0].upper() + words[1:]


def _short(name: str) -> str:
    """Returns a name as it can stand in a sentence."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in name)
    return printable if len(printable) <= 60 else printable[:57] + "..."
