"""Operators that take a tensor apart, which become one STRIDED_SLICE for each part that is read."""

import numpy as np

from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.checks import integers, require

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def slice_parts(graph: Graph) -> Graph:
    """Returns a graph without UNPACK, SPLIT and SPLIT_V.

    Raises:
        CompileError: the parts do not fit the tensor.
    """
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        operators += _slices(operator, graph, tensors) if operator.kind in _APART else [operator]
    return graph.replace(operators=operators, tensors=tensors)


def _slices(operator: Operator, graph: Graph, tensors: list[Tensor]) -> list[Operator]:
    source, axis, sizes = _APART[operator.kind](operator, graph)
    rank, length = len(graph[source].shape), sum(sizes)
    require(-rank <= axis < rank, operator, f"it has no dimension {axis}")
    axis %= rank
    fits = graph[source].shape[axis] == length and len(operator.outputs) == len(sizes) and min(sizes) > 0
    require(fits, operator, f"its {len(operator.outputs)} outputs do not fit its input {list(graph[source].shape)}")
    made, begin = [], 0
    for output, size in zip(operator.outputs, sizes, strict=True):
        places = []
        for value in (begin, begin + size, 1):
            data = np.zeros(rank, np.int32)
            data[axis] = value
            data[data == 0] = value == 1  # the steps of the other dimensions
            places.append(len(tensors))
            tensors.append(Tensor(len(tensors), "part", (rank,), "int32", None, data))
        others = (1 << rank) - 1 - (1 << axis)
        options = dict.fromkeys(_MASKS, 0) | {"begin_mask": others, "end_mask": others}
        made.append(Operator(operator.index, "STRIDED_SLICE", 1, (source, *places), (output,), options))
        begin += size
    return made


def _unpacked(operator: Operator, graph: Graph) -> tuple[int, int, list[int]]:
    require(len(operator.inputs) == 1, operator, f"it has {len(operator.inputs)} inputs")
    return operator.inputs[0], int(operator.options["axis"]), [1] * len(operator.outputs)


def _split(operator: Operator, graph: Graph) -> tuple[int, int, list[int]]:
    require(len(operator.inputs) == 2, operator, f"it has {len(operator.inputs)} inputs")
    (axis,) = integers(operator, graph, 0, "dimension")
    length = graph[operator.inputs[1]].shape[axis]
    return operator.inputs[1], axis, [length // len(operator.outputs)] * len(operator.outputs)


def _split_at(operator: Operator, graph: Graph) -> tuple[int, int, list[int]]:
    require(len(operator.inputs) == 3, operator, f"it has {len(operator.inputs)} inputs")
    (axis,) = integers(operator, graph, 2, "dimension")
    return operator.inputs[0], axis, integers(operator, graph, 1, "sizes")


_APART = {"SPLIT": _split, "SPLIT_V": _split_at, "UNPACK": _unpacked}
