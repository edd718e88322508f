"""Constant folding: computes at compile time whatever does not depend on inputs.

That is: everything about shapes (SHAPE, PACK and the like, which converters leave around a flattening), and constants
that are stored in a smaller form (DEQUANTIZE of float16 weights).
"""

from dataclasses import replace

import numpy as np

from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.movement import slice_of

_SAME_BYTES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


def fold_constants(graph: Graph) -> Graph:
    """Returns a graph without operators whose outputs are known."""
    tensors = list(graph.tensors)
    operators: list[Operator] = []
    for operator in graph.operators:
        current = Graph(tuple(tensors), (), graph.inputs, graph.outputs)
        value = _value(operator, current)
        if value is None or len(operator.outputs) != 1:
            operators.append(operator)
            continue
        output = tensors[operator.outputs[0]]
        if value.size != output.size:
            operators.append(operator)
            continue
        tensors[output.index] = replace(
            output, data=np.ascontiguousarray(value.astype(output.dtype)).reshape(output.shape)
        )
    return graph.replace(operators=operators, tensors=tensors)


def _value(operator: Operator, graph: Graph) -> np.ndarray | None:
    """Returns what an operator computes, or None where that is not known before it runs."""
    kind = operator.kind
    if kind == "SHAPE" and operator.inputs and operator.inputs[0] >= 0:
        return np.array(graph[operator.inputs[0]].shape, np.int64)
    values = [graph.constant(index) for index in operator.inputs]
    if not values or values[0] is None:
        return None
    first, source = values[0], graph[operator.inputs[0]]
    output: Tensor = graph[operator.outputs[0]]
    if kind in _SAME_BYTES and first.dtype == np.dtype(output.dtype):
        return first
    if any(value is None for value in values):
        return None
    if kind == "DEQUANTIZE" and output.dtype == "float32":
        return _dequantised(first, source)
    if kind == "PACK":
        return _stacked([value for value in values if value is not None], int(operator.options["axis"]))
    if kind == "STRIDED_SLICE" and first.dtype in (np.int32, np.int64):
        starts, counts, steps = slice_of(operator, graph)
        places = [start + step * np.arange(count) for start, count, step in zip(starts, counts, steps, strict=True)]
        return first[np.ix_(*places)]
    if kind == "TRANSPOSE" and values[1] is not None and sorted(values[1].ravel().tolist()) == list(range(first.ndim)):
        return first.transpose(values[1].ravel().tolist())
    return None


def _stacked(values: list[np.ndarray], axis: int) -> np.ndarray | None:
    """Returns arrays along a new axis, or None where they have different shapes or no such axis."""
    rank = values[0].ndim + 1
    if any(value.shape != values[0].shape for value in values) or not -rank <= axis < rank:
        return None
    return np.stack(values, axis)


def _dequantised(data: np.ndarray, tensor: Tensor) -> np.ndarray | None:
    if data.dtype in (np.float16, np.float32):
        return data.astype(np.float32)
    quantisation = tensor.quantisation
    if data.dtype != np.int8 or quantisation is None:
        return None
    shape = [1] * data.ndim
    if len(quantisation.scale) > 1:
        shape[quantisation.axis] = -1
    centred = (data.astype(np.int64) - quantisation.zero_point.reshape(shape)).astype(np.float32)
    return centred * quantisation.scale.reshape(shape)
