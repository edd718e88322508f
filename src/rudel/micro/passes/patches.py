"""Layers at the start of a network computed patch by patch, so that no whole tensor between them needs memory.

A network for images has its largest tensors in its first layers. They are computed in bands of rows here; see
`rudel.micro.operators.patches`.
"""

from collections.abc import Iterator

from rudel.micro.emit import Context, Lowering
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.patches import KIND, Part, bands_of, lead_of, macs_of, part_of, scratch_bytes

MOST_CANDIDATES = 6

_KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")


def patched(graph: Graph, limit: int, context: Context, lower: Lowering) -> Iterator[Graph]:
    """Yields graphs that may need no more than `limit` bytes, those first that compute the least in vain.

    Args:
        graph: the network.
        limit: bytes of the arena.
        context: for what and how it is compiled.
        lower: makes the steps of the layers.
    """
    parts = _chain(graph, context, lower)
    found: list[tuple[int, int, Operator]] = []
    for count in range(2, len(parts) + 1):
        if not _rest_fits(graph, parts[count - 1].step.operator, limit):
            continue
        chosen = parts[:count]
        height = chosen[-1].output[0]
        for bands in range(2, height + 1):
            rows = -(-height // bands)
            if -(-height // rows) != bands:
                continue
            needed = _bytes(chosen, rows)
            if needed <= limit:
                found.append((macs_of(chosen, rows), needed, _operator(chosen, rows)))
                break
    found.sort(key=lambda entry: entry[:2])
    for _, _, operator in found[:MOST_CANDIDATES]:
        first, *others = operator.options["layers"]
        replaced = {layer.outputs for layer in others}
        operators = [operator if old is first else old for old in graph.operators if old.outputs not in replaced]
        yield graph.replace(operators=operators)


def _chain(graph: Graph, context: Context, lower: Lowering) -> list[Part]:
    """Returns the layers from the input on that can be computed in bands: each alone reads the one before."""
    parts: list[Part] = []
    if len(graph.inputs) != 1:
        return parts
    current = graph.inputs[0]
    for operator in graph.operators:
        consumers = graph.consumers(current)
        if len(consumers) != 1 or consumers[0] is not operator or current in graph.outputs:
            break
        if operator.kind == "RESHAPE" and not parts:
            current = operator.outputs[0]
            continue
        if operator.kind not in _KINDS or operator.inputs[0] != current:
            break
        part = part_of(operator, graph, context, lower)
        if part is None:
            break
        parts.append(part)
        current = operator.outputs[0]
    return parts


def _rest_fits(graph: Graph, last: Operator, limit: int) -> bool:
    """Returns whether no tensor after the layers is larger than the limit."""
    after = graph.operators[graph.operators.index(last) :]
    return all(graph[index].bytes <= limit for operator in after for index in operator.outputs)


def _operator(parts: list[Part], rows: int) -> Operator:
    first, last = parts[0].step.operator, parts[-1].step.operator
    return Operator(
        first.index,
        KIND,
        1,
        first.inputs[:1],
        last.outputs,
        {"rows": rows, "layers": tuple(part.step.operator for part in parts)},
    )


def _bytes(parts: list[Part], rows: int) -> int:
    """Returns how much memory the layers need with input and output."""
    bands = bands_of(parts, rows)
    height, width, channels = parts[0].source
    out_height, out_width, depth = parts[-1].output
    lead = max(lead_of(parts, bands), 0)
    return max(lead + height * width * channels, out_height * out_width * depth) + scratch_bytes(parts, bands)
