"""Layers that are computed in bands of rows, one after the other: the step that stands for them.

For some rows of the last layer, just the rows that they need of the layer before are computed, and so on back to the
input; then the next band. Only bands lie in memory between the layers. Rows that two bands need are computed twice,
as in MCUNet (Lin et al., arXiv:2110.15352), so the fewer bands, the less is computed in vain.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rudel.micro.emit import Bands, Context, Lowering, Overlap, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.window_sums import Window, window_of
from rudel.micro.planner import Buffer, Plan, plan_memory

KIND = "PATCHES"
"""The operator that stands for the layers; its options are `rows` (of the output in a band) and `layers`."""


@dataclass(frozen=True)
class Part:
    """One of the layers.

    Attributes:
        step: how the whole layer is computed.
        window: how its window lies.
        source: its input, (height, width, channels).
        output: its output, likewise.
        bands: how `step` computes some rows alone.
    """

    step: Step
    window: Window
    source: tuple[int, int, int]
    output: tuple[int, int, int]
    bands: Bands


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


def lower_patches(operator: Operator, graph: Graph, context: Context, lower: Lowering) -> Step:
    """Makes a step of layers that are computed band by band.

    Args:
        operator: of kind `KIND`.
        graph: whose operator it is.
        context: for what and how it is compiled.
        lower: makes the steps of the layers.
    """
    found = [part_of(layer, graph, context, lower) for layer in operator.options["layers"]]
    parts = [part for part in found if part is not None]
    if len(parts) != len(found):
        raise AssertionError("a layer cannot be computed in bands")
    bands = bands_of(parts, operator.options["rows"])
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
        lines.append(f"    {{ {part.bands.structure} layer = $layer_{number}_;")
        if part.bands.rows is None:
            lines.append(f"      layer.pixels = g[2] * {part.output[1]};")
        else:
            cast = "" if part.bands.top == "int16_t" else f"({part.bands.top})"
            lines.append(f"      layer.height = g[1], layer.{part.bands.rows} = g[2], layer.top = {cast}g[3];")
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
        scratch=scratch_bytes(parts, bands),
        overlap={(0, 0): Overlap(lead=lead_of(parts, bands))},
        macs=macs_of(parts, operator.options["rows"]),
    )


def part_of(operator: Operator, graph: Graph, context: Context, lower: Lowering) -> Part | None:
    """A layer as one of several that are computed in bands; None where it cannot be.

    Args:
        operator: the layer.
        graph: whose it is.
        context: for what and how it is compiled.
        lower: makes its step.
    """
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    step = lower(operator, graph, replace(context, in_bands=True))
    if step is None or step.bands is None or len(source.shape) != 4 or source.shape[0] != 1 or source.dtype != "int8":
        return None
    window = window_of(operator, source.shape, output.shape, _size(operator, graph))
    if max(source.shape[1], output.shape[1], window.top) >= 1 << 15:  # the table of bands is int16_t
        return None
    return Part(step, window, _image(source), _image(output), step.bands)


def _image(tensor: Tensor) -> tuple[int, int, int]:
    """Returns height, width and channels."""
    _, height, width, channels = tensor.shape
    return height, width, channels


def _size(operator: Operator, graph: Graph) -> tuple[int, ...]:
    if "filter_h" in operator.options:
        return int(operator.options["filter_h"]), int(operator.options["filter_w"])
    return graph[operator.inputs[1]].shape[1:3]


def bands_of(parts: Sequence[Part], rows: int) -> list[list[Band]]:
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


def scratch_bytes(parts: Sequence[Part], bands: list[list[Band]]) -> int:
    """Returns how much memory the layers need beside input and output."""
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
        if parts[number].bands.in_place:
            overlaps[number - 1, number] = parts[number].step.overlap[0, 0]
    buffers += [Buffer(part.step.scratch, number, number) for number, part in enumerate(parts)]
    return plan_memory(buffers, overlaps, 4, trials=40), count


def lead_of(parts: Sequence[Part], bands: list[list[Band]]) -> int:
    """Returns how far before the input the output has to start: a band is read wholly before its output is written."""
    first, last = parts[0], parts[-1]
    row_in, row_out = first.source[1] * first.source[2], last.output[1] * last.output[2]
    leads = [
        (band[-1].out + band[-1].rows) * row_out - min(later[0].start for later in bands[number + 1 :]) * row_in
        for number, band in enumerate(bands[:-1])
    ]
    return max(leads, default=-first.source[0] * row_in)


def macs_of(parts: Sequence[Part], rows: int) -> int:
    """Returns how many multiplications and additions there are, those that are repeated counted in."""
    bands = bands_of(parts, rows)
    return sum(
        part.step.macs * sum(band[number].rows for band in bands) // part.output[0] for number, part in enumerate(parts)
    )
