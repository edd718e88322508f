"""Channels that have the same values whatever the input is are not computed.

Between a convolution and the next one that reads what it computes, directly or through operators that treat each
channel alone (depthwise convolutions, pools, tables, reshapes), every channel goes whose values are known there, and
every one that is multiplied by zeros only. What known channels contribute becomes a part of the biases of the reader.

Guarantee: no bit of any output changes.

Limits:

- each tensor in between has one reader, and is no output of the model;
- a channel stays whose contribution depends on the place, as one may that is not the zero point and has been next to
  padding: a bias is the same everywhere;
- so many channels are kept that their number is a multiple of four: kernels work on four at a time.
"""

from dataclasses import dataclass, replace

import numpy as np

from rudel.micro.emit import Context
from rudel.micro.graph import Graph, Operator, Quantisation, Tensor
from rudel.micro.operators.window_sums import Convolution, prepare_convolution, reaches_out
from rudel.micro.passes.known_channels import SAME_BYTES, Known, known_after, known_outputs

_WEIGHTED = ("CONV_2D", "FULLY_CONNECTED")


def remove_constant_channels(graph: Graph, context: Context) -> Graph:
    """Returns a graph without channels that are provably constant, or multiplied by zeros only."""
    while True:
        before = graph
        for position in range(len(graph.operators)):
            operator = graph.operators[position]
            if operator.kind in _WEIGHTED and _is_int8(operator, graph):
                graph = _without_constants(operator, graph, context)
        if graph is before:
            return graph


def _is_int8(operator: Operator, graph: Graph) -> bool:
    return len(operator.inputs) >= 2 and all(
        graph[index].dtype == "int8" for index in (*operator.inputs[:2], operator.outputs[0])
    )


@dataclass(frozen=True)
class _Chain:
    """The operators between a convolution and the next one.

    Attributes:
        between: operators that treat each channel alone.
        reader: the next convolution.
        prepared: the same, ready to be written as C.
        known: what is known of the reader's input.
        weights: int64 (out channels, window, channels), the reader's.
    """

    between: tuple[Operator, ...]
    reader: Operator
    prepared: Convolution
    known: Known
    weights: np.ndarray


def _without_constants(operator: Operator, graph: Graph, context: Context) -> Graph:
    prepared = prepare_convolution(operator, graph, context)
    if prepared.groups != 1:
        return graph
    chain = _chain(operator, graph, known_outputs(prepared), context)
    if chain is None:
        return graph
    removed = _removed(chain)
    return _rewritten(operator, graph, chain, removed) if removed.any() else graph


def _removed(chain: _Chain) -> np.ndarray:
    """Returns which channels go: bool (channels)."""
    ignored = ~chain.weights.any(axis=(0, 1))
    removed = ignored | _contributes_evenly(chain)
    kept = max(-(-int((~removed).sum()) // 4) * 4, 4)
    removed[np.argsort(removed, kind="stable")[:kept]] = False
    return removed


def _chain(operator: Operator, graph: Graph, known: Known, context: Context) -> _Chain | None:
    """Returns what comes after a convolution up to the next one; None where channels cannot be taken out."""
    between: list[Operator] = []
    current = operator
    while True:
        tensor = current.outputs[0]
        readers = graph.consumers(tensor)
        if tensor in graph.outputs or len(readers) != 1 or readers[0].inputs.count(tensor) != 1:
            return None
        reader = readers[0]
        if reader.inputs[0] != tensor or graph[tensor].dtype != "int8" or not graph[tensor].shape:
            return None
        if reader.kind in _WEIGHTED:
            return _read(tuple(between), reader, graph, known, context) if _is_int8(reader, graph) else None
        after = known_after(reader, graph, context, known)
        if after is None:
            return None
        between.append(reader)
        current, known = reader, after


def _read(
    between: tuple[Operator, ...], reader: Operator, graph: Graph, known: Known, context: Context
) -> _Chain | None:
    prepared = prepare_convolution(reader, graph, context)
    channels, depth = len(known.certain), prepared.output[3]
    length = prepared.source[3]
    if reader.kind == "FULLY_CONNECTED" and length == known.values.size:
        known = replace(known, flat=True)
    if prepared.groups != 1 or length != (known.values.size if known.flat else channels):
        return None
    weights = prepared.weights.astype(np.int64).reshape(depth, -1, channels)
    return _Chain(between, reader, prepared, known, weights)


def _contributes_evenly(chain: _Chain) -> np.ndarray:
    """Returns which channels are known to add the same to each output of the reader: bool (channels)."""
    known, c = chain.known, chain.prepared
    if known.flat:
        return known.certain
    if reaches_out(c.source, c.output, c.window):
        return known.constant & (known.values[:, 0, 0] == c.zero_point)
    return known.constant


def _contributions(chain: _Chain, removed: np.ndarray) -> np.ndarray:
    """Returns what channels add to the sums of the reader: int64 (out channels)."""
    known = chain.known
    values = np.where((removed & known.certain)[:, None, None], known.values - chain.prepared.zero_point, 0)
    values = values.reshape(len(removed), -1)
    if known.flat:
        return np.einsum("dpc,cp->d", chain.weights, values)
    return chain.weights.sum(axis=1) @ values[:, 0]


def _rewritten(operator: Operator, graph: Graph, chain: _Chain, removed: np.ndarray) -> Graph:
    """Returns a graph in which some channels are not computed between a convolution and its reader."""
    kept = np.flatnonzero(~removed)
    edit = _Edit(graph, kept, len(removed))
    edit.narrow(operator, 0)
    for one in chain.between:
        edit.narrow(one, 3)
    reader, depth = chain.reader, chain.prepared.output[3]
    given = list(reader.inputs)
    bias = graph.constant(given[2]) if len(given) > 2 else None
    total = _contributions(chain, removed) + (0 if bias is None else bias.ravel().astype(np.int64))
    if np.abs(total).max() >= 1 << 31:
        return graph
    weights = graph[given[1]]
    assert weights.data is not None
    shape = (*weights.shape[:-1], -1, len(removed))
    data = weights.data.reshape(shape)[..., kept].reshape(*weights.shape[:-1], -1)
    template = graph[given[2]] if bias is not None else Tensor(0, "bias", (depth,), "int32")
    inputs = (given[0], edit.added(weights, data), edit.added(template, total.astype(np.int32)))
    edit.put(replace(reader, inputs=inputs))
    return edit.result()


class _Edit:
    """A graph that is being rewritten, with some channels left between a convolution and its reader."""

    def __init__(self, graph: Graph, kept: np.ndarray, channels: int) -> None:
        self.graph = graph
        self.kept = kept
        self.channels = channels
        self.tensors = list(graph.tensors)
        self.operators: dict[int, Operator] = {}  # by what they compute

    def put(self, operator: Operator) -> None:
        """Puts an operator in the place of the one that computes the same tensor."""
        self.operators[operator.outputs[0]] = operator

    def added(self, tensor: Tensor, data: np.ndarray) -> int:
        """Adds a tensor like another one with other data, and returns its index."""
        index = len(self.tensors)
        self.tensors.append(replace(tensor, index=index, shape=data.shape, data=np.ascontiguousarray(data)))
        return index

    def narrow(self, operator: Operator, axis: int) -> None:
        """Leaves some channels of what an operator computes, and of its parameters, whose channels are along an axis
        of the weights."""
        output = self.graph[operator.outputs[0]]
        inputs, options = list(operator.inputs), operator.options
        if operator.kind in (*_WEIGHTED, "DEPTHWISE_CONV_2D"):
            for position, along in ((1, axis), (2, None)):
                if position < len(inputs) and inputs[position] >= 0:
                    inputs[position] = self._chosen(self.graph[inputs[position]], along)
        elif operator.kind in SAME_BYTES:
            inputs, options = inputs[:1], {"new_shape": ()}
        self.put(replace(operator, inputs=tuple(inputs), options=options))
        each = output.shape[-1] // self.channels
        self.tensors[output.index] = replace(output, shape=(*output.shape[:-1], each * len(self.kept)))

    def _chosen(self, tensor: Tensor, axis: int | None) -> int:
        assert tensor.data is not None
        quantisation = tensor.quantisation
        if quantisation is not None and len(quantisation.scale) > 1:
            quantisation = Quantisation(quantisation.scale[self.kept], quantisation.zero_point[self.kept], axis or 0)
        return self.added(replace(tensor, quantisation=quantisation), np.take(tensor.data, self.kept, axis))

    def result(self) -> Graph:
        """Returns the graph."""
        operators = [self.operators.get(one.outputs[0], one) for one in self.graph.operators]
        return self.graph.replace(operators=operators, tensors=self.tensors)
