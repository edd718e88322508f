"""Layers at the start of a network computed patch by patch, so that no whole tensor between them needs memory.

A network for pictures has its largest tensors in its first layers. They are computed here in bands of rows: for some
rows of the last of these layers, just the rows that they need of the layer before, and so on back to the input; then
the next band. Only bands lie in memory between the layers. Rows that two bands need are computed twice, as in MCUNet
(Lin et al., arXiv:2110.15352), so the fewer bands, the less is computed in vain.
"""

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rudel.micro.emit import Context, Overlap, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.convolution import Window, window_of
from rudel.micro.planner import Buffer, Plan, plan_memory

KIND = "PATCHES"
"""The operator that stands for the layers; its options are `rows` (of the output in a band) and `parts`."""

MOST_CANDIDATES = 6

_ROWS = {
    "rudel_windows": "rows",
    "rudel_convolution": "rows",
    "rudel_depthwise": "rows_out",
    "rudel_depthwise3": "rows",
    "rudel_depthwise_windows": "rows",
    "rudel_pool": "rows",
}
"""Structures of layers that have `height`, `top`, and rows of the output under this name."""

_PIXELS = "rudel_pixels"
"""The structure of a layer that takes pixels one by one."""


@dataclass(frozen=True)
class Part:
    """One of the layers.

    Attributes:
        step: how the whole layer is computed.
        window: how its window lies.
        source: its input, (height, width, channels).
        output: its output, likewise.
        structure: the type in C of what `step` calls its `layer`.
    """

    step: Step
    window: Window
    source: tuple[int, int, int]
    output: tuple[int, int, int]
    structure: str


@dataclass(frozen=True)
class Band:
    """Some rows of a layer's output, and what they need.

    Attributes:
        start: the first row of the input that is needed.
        height: how many are.
        rows: how many rows of output are made.
        top: how many rows of padding lie before the first.
        out: the first row of output.
    """

    start: int
    height: int
    rows: int
    top: int
    out: int


def patched(graph: Graph, limit: int, context: Context) -> Iterator[Graph]:
    """Yields graphs that may need no more than `limit` bytes, those first that compute the least in vain.

    Args:
        graph: the network.
        limit: bytes of the arena.
        context: for what and how it is compiled.
    """
    parts = _chain(graph, context)
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
                found.append((_macs(chosen, rows), needed, _operator(chosen, rows)))
                break
    found.sort(key=lambda entry: entry[:2])
    for _, _, operator in found[:MOST_CANDIDATES]:
        replaced = {part.step.operator.index for part in operator.options["parts"]}
        first = operator.options["parts"][0].step.operator
        operators = [
            operator if old is first else old for old in graph.operators if old is first or old.index not in replaced
        ]
        yield graph.replace(operators=operators)


def lower_patches(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of layers that are computed band by band."""
    parts: tuple[Part, ...] = operator.options["parts"]
    bands = _bands(parts, operator.options["rows"])
    offsets, scratch = _places(parts, bands)
    constants, tables, kernels = {}, {}, []
    lines = [
        f"for (int32_t band = 0; band < {len(bands)}; band++) {{",
        f"    const int16_t *g = $bands + band * {5 * len(parts)};",
    ]
    for number, part in enumerate(parts):
        step = part.step
        names = {key: f"${key}_{number}_" for key in (*step.constants, *step.tables)}
        constants |= {f"{key}_{number}_": constant for key, constant in step.constants.items()}
        tables |= {
            f"{key}_{number}_": string.Template(text).safe_substitute(names, name="$name")
            for key, text in step.tables.items()
        }
        kernels += step.kernels
        place = {"in0": f"($scratch + {offsets[number - 1]})", "out0": f"($scratch + {offsets[number]})"}
        if number == 0:
            place["in0"] = f"($in0 + g[0] * {part.source[1] * part.source[2]})"
        if number == len(parts) - 1:
            place["out0"] = f"($out0 + g[4] * {part.output[1] * part.output[2]})"
        place["scratch"] = f"($scratch + {scratch[number]})"
        names["layer"] = "layer"
        call = string.Template(step.call.replace("&$layer", "&layer")).safe_substitute(names | place)
        lines.append(f"    {{ {part.structure} layer = $layer_{number}_;")
        if part.structure == _PIXELS:
            lines.append(f"      layer.pixels = g[2] * {part.output[1]};")
        else:
            cast = "(int8_t)" if part.structure == "rudel_windows" else ""
            lines.append(f"      layer.height = g[1], layer.{_ROWS[part.structure]} = g[2], layer.top = {cast}g[3];")
        lines += [f"      {call} }}", "    g += 5;"]
    lines.append("}")
    numbers = [
        str(value)
        for band in bands
        for part in band
        for value in (part.start, part.height, part.rows, part.top, part.out)
    ]
    tables["bands"] = f"static const int16_t $name[{len(numbers)}] = {{{', '.join(numbers)}}};"
    return Step(
        operator,
        "\n".join(lines),
        tuple(kernels),
        constants,
        tables,
        scratch=_scratch_bytes(parts, bands),
        overlap={(0, 0): Overlap(lead=_lead(parts, bands))},
        macs=_macs(parts, operator.options["rows"]),
    )


def _chain(graph: Graph, context: Context) -> list[Part]:
    """Returns the layers from the input on that can be computed in bands: each alone reads the one before."""
    from rudel.micro.lowering import lower

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
        source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
        if (
            operator.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
            or operator.inputs[0] != current
        ):
            break
        if len(source.shape) != 4 or source.shape[0] != 1 or source.dtype != "int8":
            break
        step = lower(operator, graph, context)
        match = re.match(r"static const (rudel_\w+) \$name = ", step.tables.get("layer", ""))
        if match is None or match[1] not in (*_ROWS, _PIXELS):
            break
        size = _size(operator, graph)
        parts.append(
            Part(
                step,
                window_of(operator, source.shape, output.shape, size),
                _picture(source),
                _picture(output),
                match[1],
            )
        )
        current = operator.outputs[0]
    return parts


def _picture(tensor: Tensor) -> tuple[int, int, int]:
    """Returns height, width and channels."""
    _, height, width, channels = tensor.shape
    return height, width, channels


def _size(operator: Operator, graph: Graph) -> tuple[int, ...]:
    if "filter_h" in operator.options:
        return int(operator.options["filter_h"]), int(operator.options["filter_w"])
    return graph[operator.inputs[1]].shape[1:3]


def _rest_fits(graph: Graph, last: Operator, limit: int) -> bool:
    """Returns whether no tensor after the layers is larger than the limit."""
    after = graph.operators[graph.operators.index(last) :]
    return all(graph[index].bytes <= limit for operator in after for index in operator.outputs)


def _operator(parts: list[Part], rows: int) -> Operator:
    first, last = parts[0].step.operator, parts[-1].step.operator
    return Operator(first.index, KIND, 1, first.inputs[:1], last.outputs, {"rows": rows, "parts": tuple(parts)})


def _bands(parts: Sequence[Part], rows: int) -> list[list[Band]]:
    """Returns, for each band, what each layer makes of what."""
    height = parts[-1].output[0]
    result = []
    for start in range(0, height, rows):
        first, end = start, min(start + rows, height)
        band: list[Band] = []
        for part in reversed(parts):
            w = part.window
            y = first * w.stride_h - w.top
            last = (end - 1) * w.stride_h - w.top + (w.height - 1) * w.dilation_h + 1
            from_, to = max(y, 0), min(last, part.source[0])
            band.append(Band(from_, to - from_, end - first, from_ - y, first))
            first, end = from_, to
        result.append(band[::-1])
    return result


def _places(parts: Sequence[Part], bands: list[list[Band]]) -> tuple[list[int], list[int]]:
    """Returns where in the scratch memory each layer's output lies, and each layer's own scratch memory."""
    plan, count = _planned(parts, bands)
    outputs, own = list(plan.offsets[: count - 1]), list(plan.offsets[count - 1 :])
    return [*outputs, 0], own


def _scratch_bytes(parts: Sequence[Part], bands: list[list[Band]]) -> int:
    return _planned(parts, bands)[0].size


def _planned(parts: Sequence[Part], bands: list[list[Band]]) -> tuple[Plan, int]:
    count = len(parts)
    sizes = [
        max(band[number].rows for band in bands) * part.output[1] * part.output[2]
        for number, part in enumerate(parts[:-1])
    ]
    buffers = [Buffer(size, number, number + 1) for number, size in enumerate(sizes)]
    overlaps = {}
    for number in range(1, count - 1):
        if parts[number].structure in (_PIXELS, "rudel_depthwise3"):
            overlaps[number - 1, number] = parts[number].step.overlap[0, 0]
    buffers += [Buffer(part.step.scratch, number, number) for number, part in enumerate(parts)]
    return plan_memory(buffers, overlaps, 4, trials=40), count


def _lead(parts: Sequence[Part], bands: list[list[Band]]) -> int:
    """Returns how far before the input the output has to start: a band is read wholly before its output is written."""
    first, last = parts[0], parts[-1]
    row_in, row_out = first.source[1] * first.source[2], last.output[1] * last.output[2]
    leads = [
        (band[-1].out + band[-1].rows) * row_out - min(later[0].start for later in bands[number + 1 :]) * row_in
        for number, band in enumerate(bands[:-1])
    ]
    return max(leads, default=-first.source[0] * row_in)


def _bytes(parts: list[Part], rows: int) -> int:
    """Returns how much memory the layers need with input and output."""
    bands = _bands(parts, rows)
    height, width, channels = parts[0].source
    out_height, out_width, depth = parts[-1].output
    lead = max(_lead(parts, bands), 0)
    return max(lead + height * width * channels, out_height * out_width * depth) + _scratch_bytes(parts, bands)


def _macs(parts: Sequence[Part], rows: int) -> int:
    """Returns how many multiplications and additions there are, those that are repeated counted in."""
    bands = _bands(parts, rows)
    return sum(
        part.step.macs * sum(band[number].rows for band in bands) // part.output[0] for number, part in enumerate(parts)
    )
