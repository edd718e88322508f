"""DEPTHWISE_CONV_2D with a depth multiplier becomes a CONV_2D with as many groups as it has input channels."""

import numpy as np

from rudel.micro.graph import Graph, Operator, Quantisation, Tensor
from rudel.micro.operators.checks import require


def convolve_multiplied_channels(graph: Graph) -> Graph:
    """Returns a graph in which depthwise convolutions have one output channel for each input channel."""
    operators, tensors = [], list(graph.tensors)
    for operator in graph.operators:
        operators.append(_convolution(operator, graph, tensors) if _multiplied(operator, graph) else operator)
    return graph.replace(operators=operators, tensors=tensors)


def _multiplied(operator: Operator, graph: Graph) -> bool:
    if operator.kind != "DEPTHWISE_CONV_2D" or len(operator.inputs) < 2 or min(operator.inputs[:2]) < 0:
        return False
    source, weights = graph[operator.inputs[0]], graph[operator.inputs[1]]
    return (
        len(source.shape) == 4 == len(weights.shape)
        and weights.data is not None
        and source.shape[3] != weights.shape[3]
    )


def _convolution(operator: Operator, graph: Graph, tensors: list[Tensor]) -> Operator:
    weights = graph[operator.inputs[1]]
    assert weights.data is not None
    channels = graph[operator.inputs[0]].shape[3]
    require(
        weights.shape[0] == 1 and channels > 0 and weights.shape[3] % channels == 0,
        operator,
        f"weights {list(weights.shape)} do not fit {channels} channels",
    )
    data = np.ascontiguousarray(weights.data[0].transpose(2, 0, 1))[..., None]
    quantisation = weights.quantisation
    if quantisation is not None:
        require(
            len(quantisation.scale) == 1 or quantisation.axis == 3, operator, "its weights' scales are not per channel"
        )
        quantisation = Quantisation(quantisation.scale, quantisation.zero_point, 0)
    index = len(tensors)
    tensors.append(Tensor(index, weights.name, data.shape, weights.dtype, quantisation, data))
    inputs = (operator.inputs[0], index, *operator.inputs[2:])
    return Operator(operator.index, "CONV_2D", operator.version, inputs, operator.outputs, operator.options)
