"""Channels that have one value whatever the input is are not computed.

A channel of a convolution is constant when the least and the greatest sum that its weights and int8 inputs can make
give the same output: weights that are all zero, or a bias so low that the activation cuts everything off. Its value
is then a part of the biases of what reads it, and both lose a channel. Depthwise convolutions, pools and tables in
between lose it, too.

Where padding would bring in another value (the zero point) than the constant, the channel stays. So many channels are
kept that a multiple of four remains where there was one: kernels work on four at a time.
"""

from dataclasses import replace

import numpy as np

from rudel.micro.emit import Context
from rudel.micro.graph import Graph, Operator, Quantisation, Tensor
from rudel.micro.operators.convolution import prepare_convolution
from rudel.micro.operators.depthwise import prepare_depthwise
from rudel.micro.requantisation import evaluate

_WEIGHTED = ("CONV_2D", "FULLY_CONNECTED")
_ALONG = ("DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D", "LOOKUP")


def remove_constant_channels(graph: Graph, context: Context) -> Graph:
    """Returns a graph without channels that are provably constant."""
    for position in range(len(graph.operators)):
        operator = graph.operators[position]
        if operator.kind in _WEIGHTED and _is_int8(operator, graph):
            graph = _without_constants(operator, graph, context)
    return graph


def _is_int8(operator: Operator, graph: Graph) -> bool:
    return len(operator.inputs) >= 2 and all(
        graph[index].dtype == "int8" for index in (*operator.inputs[:2], operator.outputs[0])
    )


def _without_constants(operator: Operator, graph: Graph, context: Context) -> Graph:
    prepared = prepare_convolution(operator, graph, context)
    if prepared.groups != 1:
        return graph
    ends = np.stack(prepared.reach, axis=1) - prepared.bias[:, None]
    outputs = evaluate(prepared.requantisation, ends)
    constant = np.flatnonzero(outputs[:, 0] == outputs[:, 1])
    channels = len(outputs)
    if len(constant) == 0:
        return graph
    least = 4 if channels % 4 == 0 else 1
    remaining = max(-(-(channels - len(constant)) // least) * least, least)
    constant = constant[: channels - remaining]
    if len(constant) == 0:
        return graph
    chain = _chain(operator, graph, dict(zip(constant.tolist(), outputs[constant, 0].tolist(), strict=True)), context)
    if chain is None:
        return graph
    return _rewritten(operator, graph, chain, np.setdiff1d(np.arange(channels), constant))


def _chain(
    operator: Operator, graph: Graph, values: dict[int, int], context: Context
) -> list[tuple[Operator, dict[int, int]]] | None:
    """Returns the operators after a convolution up to the next one, each with the constant channels of its input.

    None where the channels cannot be taken out.
    """
    chain: list[tuple[Operator, dict[int, int]]] = []
    current = operator
    while True:
        tensor = current.outputs[0]
        readers = graph.consumers(tensor)
        if tensor in graph.outputs or len(readers) != 1 or len(graph[tensor].shape) < 1:
            return None
        reader = readers[0]
        if reader.inputs.count(tensor) != 1 or reader.inputs[0] != tensor:
            return None
        chain.append((reader, values))
        zero_point = graph[tensor].zero_point
        if reader.kind in _WEIGHTED and _is_int8(reader, graph):
            return chain if _takes_out(reader, graph, values, zero_point, context) else None
        if reader.kind not in _ALONG or graph[reader.outputs[0]].dtype != "int8":
            return None
        if reader.kind == "DEPTHWISE_CONV_2D":
            prepared = prepare_depthwise(reader, graph, context)
            if _pads(reader, prepared) and any(value != zero_point for value in values.values()):
                return None
            sums = (prepared.weights.astype(np.int64).sum(axis=(0, 1)))[:, None] * _column(values, prepared.source[3])
            given = evaluate(prepared.requantisation, sums)[:, 0]
            values = {channel: int(given[channel]) for channel in values}
        elif reader.kind == "LOOKUP":
            values = {channel: int(reader.options["table"][value + 128]) for channel, value in values.items()}
        elif reader.kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
            from rudel.micro.operators.scalings import output_limits

            low, high = output_limits(reader, graph[reader.outputs[0]])
            values = {channel: min(max(value, low), high) for channel, value in values.items()}
        current = reader


def _column(values: dict[int, int], channels: int) -> np.ndarray:
    column = np.zeros((channels, 1), np.int64)
    for channel, value in values.items():
        column[channel] = value
    return column


def _pads(operator: Operator, prepared) -> bool:
    w = prepared.window
    end_h = (prepared.output[1] - 1) * w.stride_h - w.top + (w.height - 1) * w.dilation_h + 1
    end_w = (prepared.output[2] - 1) * w.stride_w - w.left + (w.width - 1) * w.dilation_w + 1
    return w.top > 0 or w.left > 0 or end_h > prepared.source[1] or end_w > prepared.source[2]


def _takes_out(reader: Operator, graph: Graph, values: dict[int, int], zero_point: int, context: Context) -> bool:
    source = graph[reader.inputs[0]]
    prepared = prepare_convolution(reader, graph, context)
    if prepared.groups != 1 or prepared.source[3] != source.shape[-1]:
        return False
    return not _pads(reader, prepared) or all(value == zero_point for value in values.values())


def _rewritten(
    operator: Operator, graph: Graph, chain: list[tuple[Operator, dict[int, int]]], kept: np.ndarray
) -> Graph:
    tensors = list(graph.tensors)
    new: dict[int, Operator] = {}

    def added(tensor: Tensor, data: np.ndarray, chosen: np.ndarray | None, axis: int) -> int:
        quantisation = tensor.quantisation
        if quantisation is not None and len(quantisation.scale) > 1 and chosen is not None:
            quantisation = Quantisation(quantisation.scale[chosen], quantisation.zero_point[chosen], axis)
        index = len(tensors)
        tensors.append(replace(tensor, index=index, shape=data.shape, data=data, quantisation=quantisation))
        return index

    def narrowed(index: int) -> None:
        tensor = tensors[index]
        tensors[index] = replace(tensor, shape=(*tensor.shape[:-1], len(kept)))

    def with_inputs(one: Operator, inputs: list[int]) -> None:
        new[one.index] = Operator(
            one.index, one.kind, one.version, tuple(inputs), one.outputs, one.options, one.intermediates
        )

    def parameters(one: Operator, axis: int) -> list[int]:
        """Returns the inputs of an operator with weights and biases of the channels that stay."""
        inputs = list(one.inputs)
        weights = graph[one.inputs[1]]
        assert weights.data is not None
        inputs[1] = added(weights, np.ascontiguousarray(np.take(weights.data, kept, axis)), kept, axis)
        if len(inputs) > 2 and inputs[2] >= 0:
            bias = graph[inputs[2]]
            assert bias.data is not None
            inputs[2] = added(bias, bias.data.ravel()[kept], kept, 0)
        return inputs

    with_inputs(operator, parameters(operator, 0))
    narrowed(operator.outputs[0])
    for reader, _ in chain[:-1]:
        if reader.kind == "DEPTHWISE_CONV_2D":
            with_inputs(reader, parameters(reader, 3))
        narrowed(reader.outputs[0])
    last, values = chain[-1]
    weights = graph[last.inputs[1]]
    assert weights.data is not None
    depth = weights.data.shape[0]
    zero_point = graph[last.inputs[0]].zero_point
    flat = weights.data.reshape(depth, -1, weights.data.shape[-1]).astype(np.int64).sum(axis=1)
    extra = sum(flat[:, channel] * (value - zero_point) for channel, value in values.items())
    given = list(last.inputs)
    bias = graph.constant(given[2]) if len(given) > 2 else None
    total = (np.zeros(depth, np.int64) if bias is None else bias.ravel().astype(np.int64)) + extra
    if np.abs(total).max() >= 1 << 31:
        return graph
    inputs = list(last.inputs[:2])
    inputs[1] = added(weights, np.ascontiguousarray(weights.data[..., kept]), None, 0)
    template = graph[given[2]] if bias is not None else Tensor(0, "bias", (depth,), "int32")
    inputs.append(added(template, total.astype(np.int32), None, 0))
    with_inputs(last, inputs)
    return graph.replace(operators=[new.get(one.index, one) for one in graph.operators], tensors=tensors)
