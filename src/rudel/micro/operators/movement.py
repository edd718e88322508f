"""Operators that move elements and compute nothing: CONCATENATION, PACK, PAD, STRIDED_SLICE, TRANSPOSE,
RESIZE_NEAREST_NEIGHBOR.

All but the last are nested loops with a distance between neighbours in the input and one in the output.
"""

import math

import numpy as np

from rudel.errors import CompileError
from rudel.micro.emit import Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.checks import integers, require

_DIMENSIONS = 6


def move_kernel(kind: str) -> Kernel:
    """Returns the kernel for elements of a C type."""
    return Kernel(
        f"move_{kind}",
        f"""\
typedef struct {{
    int32_t sizes[{_DIMENSIONS}], from[{_DIMENSIONS}], to[{_DIMENSIONS}], start, place;
}} rudel_move_{kind}_layer;

static void rudel_move_{kind}(const rudel_move_{kind}_layer *p, const {kind} *in, {kind} *out)
{{
    int32_t at[{_DIMENSIONS}] = {{0}}, inner = {_DIMENSIONS} - 1, level;
    in += p->start;
    out += p->place;
    do {{
        for (int32_t i = 0; i < p->sizes[inner]; i++) out[i * p->to[inner]] = in[i * p->from[inner]];
        for (level = inner - 1; level >= 0; level--) {{
            in += p->from[level];
            out += p->to[level];
            if (++at[level] < p->sizes[level]) break;
            at[level] = 0;
            in -= p->sizes[level] * p->from[level];
            out -= p->sizes[level] * p->to[level];
        }}
    }} while (level >= 0);
}}
""",
    )


def _fill_kernel(kind: str) -> Kernel:
    return Kernel(
        f"fill_{kind}",
        f"""\
static void rudel_fill_{kind}({kind} *out, int32_t count, {kind} value)
{{
    for (int32_t i = 0; i < count; i++) out[i] = value;
}}
""",
    )


def storage(operator: Operator, tensor: Tensor) -> str:
    """Returns the C type that elements are moved as."""
    kinds = {"int8": "int8_t", "float32": "float", "int32": "int32_t", "uint8": "uint8_t", "int16": "int16_t"}
    require(tensor.dtype in kinds, operator, f"its elements are {tensor.dtype}")
    return kinds[tensor.dtype]


def strides(shape: tuple[int, ...]) -> list[int]:
    """Returns how far apart neighbours along each dimension are."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _layer(operator: Operator, sizes: list[int], source: list[int], output: list[int], start: int, place: int) -> str:
    """Returns the initialiser of a move; dimensions that lie together in input and output are one."""
    merged: list[list[int]] = []
    for size, a, b in zip(sizes, source, output, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * a and merged[-1][2] == size * b:
            merged[-1] = [merged[-1][0] * size, a, b]
        else:
            merged.append([size, a, b])
    require(len(merged) <= _DIMENSIONS, operator, f"it moves along more than {_DIMENSIONS} dimensions")
    rows = [[1, 0, 0]] * (_DIMENSIONS - len(merged)) + merged
    columns = ["{" + ", ".join(str(row[place_]) for row in rows) + "}" for place_ in range(3)]
    return f"{{{', '.join(columns)}, {start}, {place}}}"


def _move(
    operator: Operator, kind: str, layer: str, source: str = "$in0", key: str = "layer"
) -> tuple[str, dict[str, str]]:
    call = f"rudel_move_{kind}(&${key}, {source}, $out0);"
    return call, {key: f"static const rudel_move_{kind}_layer $name = {layer};"}


def same_elements(operator: Operator, source: Tensor, output: Tensor) -> None:
    """Checks that type and quantisation are the same on both sides."""
    require(source.dtype == output.dtype, operator, f"it makes {output.dtype} of {source.dtype}")
    if source.dtype == "int8" and source.quantised and output.quantised:
        require(
            abs(source.scale - output.scale) <= 1e-6 * output.scale and source.zero_point == output.zero_point,
            operator,
            "its input and output are quantised differently",
        )


def lower_concatenation(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a CONCATENATION."""
    require(len(operator.inputs) >= 1 and min(operator.inputs) >= 0, operator, "it has no input")
    require(operator.options["activation"] == "NONE", operator, f"its activation is {operator.options['activation']}")
    output = graph[operator.outputs[0]]
    rank = len(output.shape)
    axis = operator.options["axis"]
    require(-rank <= axis < rank, operator, f"its axis is {axis}")
    axis %= rank
    place, starts = 0, []
    for index in operator.inputs:
        source = graph[index]
        fits = len(source.shape) == rank and all(
            a == b for number, (a, b) in enumerate(zip(source.shape, output.shape, strict=False)) if number != axis
        )
        require(fits, operator, f"an input {list(source.shape)} does not fit output {list(output.shape)}")
        starts.append(place * strides(output.shape)[axis])
        place += source.shape[axis]
    require(place == output.shape[axis], operator, f"its inputs do not fill output {list(output.shape)}")
    return _put_together(operator, graph, starts, strides(output.shape))


def lower_pack(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a PACK."""
    require(min(operator.inputs) >= 0, operator, "it lacks an input")
    output = graph[operator.outputs[0]]
    rank = len(output.shape)
    axis = int(operator.options["axis"])
    require(-rank <= axis < rank, operator, f"its axis is {axis}")
    axis %= rank
    shape = (*output.shape[:axis], *output.shape[axis + 1 :])
    require(
        all(graph[index].shape == shape for index in operator.inputs) and len(operator.inputs) == output.shape[axis],
        operator,
        f"its inputs do not fill output {list(output.shape)}",
    )
    between = strides(output.shape)
    apart = between.pop(axis)
    return _put_together(operator, graph, [apart * number for number in range(len(operator.inputs))], between)


def _put_together(operator: Operator, graph: Graph, starts: list[int], between: list[int]) -> Step:
    """Makes a step that moves each input to a place in the output.

    Args:
        operator: what is done.
        graph: where it stands.
        starts: where in the output the first element of each input goes.
        between: how far apart in the output neighbours along each dimension of an input are.
    """
    output = graph[operator.outputs[0]]
    kind = storage(operator, output)
    calls: list[str] = []
    tables: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    for position, (index, start) in enumerate(zip(operator.inputs, starts, strict=True)):
        source = graph[index]
        same_elements(operator, source, output)
        layer = _layer(operator, list(source.shape), strides(source.shape), between, 0, start)
        call, table = _move(operator, kind, layer, f"$in{position}", f"layer_{position}_")
        calls.append(call)
        tables |= table
        if source.data is not None:
            constants[f"in{position}"] = Constant(source.data)
    reads = tuple(range(len(operator.inputs)))
    return Step(operator, "\n    ".join(calls), (move_kernel(kind),), constants, tables, reads=reads)


def lower_pad(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a PAD."""
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    before = paddings(operator, graph)
    same_elements(operator, source, output)
    kind = storage(operator, output)
    start = sum(first * stride for (first, _), stride in zip(before, strides(output.shape), strict=True))
    layer = _layer(operator, list(source.shape), strides(source.shape), strides(output.shape), 0, start)
    padded = ("int8",) if context.rounding == "tflm" else ("int8", "int16")  # TFLM pads int16 with 0
    value = str(output.zero_point) if output.dtype in padded and output.quantised else "0"
    call, tables = _move(operator, kind, layer)
    fill = f"rudel_fill_{kind}($out0, {output.size}, {value});"
    return Step(operator, f"{fill}\n    {call}", (_fill_kernel(kind), move_kernel(kind)), tables=tables)


def paddings(operator: Operator, graph: Graph) -> list[tuple[int, int]]:
    """Returns how much a PAD adds before and after along each dimension, after checking that the output fits."""
    require(len(operator.inputs) == 2 and min(operator.inputs) >= 0, operator, f"it has {len(operator.inputs)} inputs")
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    values = integers(operator, graph, 1, "paddings")
    require(
        len(values) == 2 * len(source.shape) and min(values, default=0) >= 0,
        operator,
        "its paddings do not fit its input",
    )
    pairs = [(values[2 * axis], values[2 * axis + 1]) for axis in range(len(source.shape))]
    expected = tuple(size + first + last for size, (first, last) in zip(source.shape, pairs, strict=True))
    require(expected == output.shape, operator, f"its output is {list(output.shape)}, not {list(expected)}")
    return pairs


def lower_transpose(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a TRANSPOSE."""
    require(len(operator.inputs) == 2 and min(operator.inputs) >= 0, operator, f"it has {len(operator.inputs)} inputs")
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    order = integers(operator, graph, 1, "axes")
    rank = len(source.shape)
    require(
        sorted(axis % rank if rank else axis for axis in order) == list(range(rank)), operator, f"its axes are {order}"
    )
    order = [axis % rank for axis in order]
    same_elements(operator, source, output)
    expected = tuple(source.shape[axis] for axis in order)
    require(expected == output.shape, operator, f"its output is {list(output.shape)}, not {list(expected)}")
    kind = storage(operator, output)
    between = [strides(source.shape)[axis] for axis in order]
    call, tables = _move(operator, kind, _layer(operator, list(expected), between, strides(expected), 0, 0))
    return Step(operator, call, (move_kernel(kind),), tables=tables)


def lower_strided_slice(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a STRIDED_SLICE."""
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    starts, counts, steps = slice_of(operator, graph)
    same_elements(operator, source, output)
    require(
        math.prod(counts) == output.size,
        operator,
        f"its output is {list(output.shape)}, and {counts} elements are taken",
    )
    kind = storage(operator, output)
    apart = strides(source.shape)
    start = sum(first * stride for first, stride in zip(starts, apart, strict=True))
    between = [stride * step for stride, step in zip(apart, steps, strict=True)]
    layer = _layer(operator, counts, between, strides(tuple(counts)), start, 0)
    call, tables = _move(operator, kind, layer)
    return Step(operator, call, (move_kernel(kind),), tables=tables)


def slice_of(operator: Operator, graph: Graph) -> tuple[list[int], list[int], list[int]]:
    """Returns where a STRIDED_SLICE starts along each dimension of its input, how many it takes, and in what steps."""
    require(len(operator.inputs) == 4 and min(operator.inputs) >= 0, operator, f"it has {len(operator.inputs)} inputs")
    source = graph[operator.inputs[0]]
    begins, ends, steps = (
        integers(operator, graph, position, name) for position, name in ((1, "begins"), (2, "ends"), (3, "steps"))
    )
    options = operator.options
    if options["ellipsis_mask"] or options["new_axis_mask"] or options.get("offset"):
        raise CompileError(f"{operator.title} cannot be compiled: it has an ellipsis, a new axis or an offset.")
    rank = len(source.shape)
    require(
        len(begins) == len(ends) == len(steps) <= rank and 0 not in steps, operator, "its slices do not fit its input"
    )
    starts, counts, strides_ = [], [], []
    for axis, size in enumerate(source.shape):
        if axis >= len(begins):
            first, count, step = 0, size, 1
        elif options["shrink_axis_mask"] >> axis & 1:
            first, count, step = begins[axis] + (size if begins[axis] < 0 else 0), 1, 1
            require(0 <= first < size, operator, f"it takes element {begins[axis]} of {size}")
        else:
            begin = None if options["begin_mask"] >> axis & 1 else begins[axis]
            end = None if options["end_mask"] >> axis & 1 else ends[axis]
            taken = range(*slice(begin, end, steps[axis]).indices(size))
            require(len(taken) > 0, operator, "it takes nothing")
            first, count, step = taken[0], len(taken), steps[axis]
        starts.append(first)
        counts.append(count)
        strides_.append(step)
    return starts, counts, strides_


def _pixels_kernel(kind: str) -> Kernel:
    return Kernel(
        f"pixels_{kind}",
        f"""\
static void rudel_pixels_{kind}(const int16_t *rows, const int16_t *columns, const {kind} *in, {kind} *out,
                                int32_t batch, int32_t height, int32_t width, int32_t channels, int32_t rows_out,
                                int32_t columns_out)
{{
    for (; batch > 0; batch--, in += height * width * channels) {{
        for (int32_t row = 0; row < rows_out; row++) {{
            for (int32_t column = 0; column < columns_out; column++) {{
                const {kind} *pixel = in + (rows[row] * width + columns[column]) * channels;
                for (int32_t c = 0; c < channels; c++) *out++ = pixel[c];
            }}
        }}
    }}
}}
""",
    )


def lower_resize_nearest(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a RESIZE_NEAREST_NEIGHBOR: the source of each row and column is a table."""
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    require(len(operator.inputs) == 2 and min(operator.inputs) >= 0, operator, f"it has {len(operator.inputs)} inputs")
    sizes = integers(operator, graph, 1, "sizes")
    same_elements(operator, source, output)
    fits = (
        len(source.shape) == 4 == len(output.shape)
        and list(output.shape[1:3]) == sizes
        and (source.shape[0], source.shape[3]) == (output.shape[0], output.shape[3])
    )
    require(fits, operator, f"input {list(source.shape)} and sizes {sizes} do not give output {list(output.shape)}")
    require(max(source.shape[1:3]) < 1 << 15, operator, "its input is larger than 32767")
    kind = storage(operator, output)
    tables = {
        name: Constant(_nearest(source.shape[axis], output.shape[axis], operator).astype(np.int16))
        for name, axis in (("rows", 1), ("columns", 2))
    }
    batch, height, width, channels = source.shape
    return Step(
        operator,
        f"rudel_pixels_{kind}($rows, $columns, $in0, $out0, {batch}, {height}, {width}, {channels}, {sizes[0]}, "
        f"{sizes[1]});",
        (_pixels_kernel(kind),),
        tables,
    )


def _nearest(source: int, output: int, operator: Operator) -> np.ndarray:
    """Returns, for each row of the output, the row of the input that it is."""
    align, half = operator.options["align_corners"], operator.options["half_pixel_centers"]
    scale = (
        np.float32(source - 1) / np.float32(output - 1)
        if align and output > 1
        else np.float32(source) / np.float32(output)
    )
    places = (np.arange(output).astype(np.float32) + np.float32(0.5 if half else 0.0)) * scale
    rows = np.floor(places.astype(np.float64) + 0.5) if align else np.floor(places)
    return np.clip(rows, 0, source - 1).astype(np.int64)
