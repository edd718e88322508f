"""PAD before a convolution becomes the convolution's own padding."""

from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.movement import paddings
from rudel.micro.operators.window_sums import window_of

_PADDED = ("CONV_2D", "DEPTHWISE_CONV_2D")


def fuse_pads(graph: Graph) -> Graph:
    """Returns a graph in which convolutions read what was padded for them before.

    Both pad with the input's zero point, which stands for 0, so that no sum changes. A PAD that something else reads,
    too, stays for that.
    """
    operators = list(graph.operators)
    for operator in graph.operators:
        if operator.kind not in _PADDED or min(operator.inputs[:2], default=-1) < 0 or len(operator.inputs) < 2:
            continue
        pad = graph.producer(operator.inputs[0])
        if pad is None or pad.kind != "PAD" or not _fits(pad, graph):
            continue
        around = paddings(pad, graph)
        if any(around[0]) or any(around[3]):
            continue
        fused = _fused(operator, pad, around, graph)
        operators[operators.index(operator)] = fused
        used = any(pad.outputs[0] in one.inputs for one in operators) or pad.outputs[0] in graph.outputs
        if not used:
            operators.remove(pad)
    return graph.replace(operators=operators)


def _fits(pad: Operator, graph: Graph) -> bool:
    if len(pad.inputs) != 2 or graph.constant(pad.inputs[1]) is None:
        return False
    source, output = graph[pad.inputs[0]], graph[pad.outputs[0]]
    if len(source.shape) != 4 or source.dtype != output.dtype:
        return False
    if source.dtype == "float32":
        return True
    same = (
        source.quantised and output.quantised and (source.scale, source.zero_point) == (output.scale, output.zero_point)
    )
    return source.dtype in ("int8", "int16") and same


def _fused(operator: Operator, pad: Operator, around: list[tuple[int, int]], graph: Graph) -> Operator:
    source, weights, output = (graph[index] for index in (*operator.inputs[:2], operator.outputs[0]))
    w = window_of(operator, source.shape, output.shape, weights.shape[1:3])
    sizes = []
    for axis, before, step, reach in (
        (1, w.top, w.stride_h, (w.height - 1) * w.dilation_h),
        (2, w.left, w.stride_w, (w.width - 1) * w.dilation_w),
    ):
        # How far the last window reaches beyond what was padded before.
        after = max((output.shape[axis] - 1) * step - before + reach + 1 - source.shape[axis], 0)
        sizes += [around[axis][0] + before, around[axis][1] + after]
    return Operator(
        operator.index,
        operator.kind,
        operator.version,
        (pad.inputs[0], *operator.inputs[1:]),
        operator.outputs,
        {**operator.options, "padding": tuple(sizes)},
    )
