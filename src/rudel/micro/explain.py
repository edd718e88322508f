"""Costs of a compiled model: work, flash and RAM by layer, and the arena as a picture."""

from dataclasses import dataclass
from pathlib import Path

from rudel.errors import CompileError
from rudel.micro.compiler import Compiled


@dataclass(frozen=True)
class Layer:
    """One step of a compiled model.

    Attributes:
        number: its place in NAME_invoke.
        kind: the operator.
        kernel: the function in C.
        shape: of its first output.
        macs: multiplications and additions.
        flash: bytes of its arrays of parameters; an array that several layers share counts for the first.
        ram: how far into the arena the tensors reach that are needed while it runs, in bytes.
        live: the bytes of these tensors, each for itself: more than `ram` where an output is written over its input.
        floats: whether it computes in floating point.
    """

    number: int
    kind: str
    kernel: str
    shape: tuple[int, ...]
    macs: int
    flash: int
    ram: int
    live: int
    floats: bool


def layers(compiled: Compiled) -> list[Layer]:
    """Returns what each step of a model costs."""
    seen: set[tuple[str, bytes, int]] = set()
    result = []
    memory, graph = compiled.memory, compiled.graph
    for number, step in enumerate(compiled.steps):
        flash = 0
        for constant in step.constants.values():
            if constant.key not in seen:
                seen.add(constant.key)
                flash += constant.values.nbytes
        alive = [
            (buffer.size, place)
            for buffer, place in zip(memory.buffers, memory.places, strict=True)
            if buffer.first <= number <= buffer.last
        ]
        operator = step.operator
        tensors = [graph[index] for index in (*operator.inputs[:1], *operator.outputs) if index >= 0]
        kind = operator.options.get("of", operator.kind)
        kernel = step.kernels[0].name if step.kernels else ""
        result.append(
            Layer(
                number,
                str(kind),
                "" if step.alias else kernel,
                graph[operator.outputs[0]].shape,
                step.macs,
                flash,
                max((size + place for size, place in alive), default=0),
                sum(size for size, _ in alive),
                any(tensor.dtype == "float32" for tensor in tensors),
            )
        )
    return result


_ROWS, _COLUMNS = 16, 76


def arena_text(compiled: Compiled) -> list[str]:
    """Draws the arena: time to the right, addresses upwards, a letter for each tensor, and `#` where two overlap."""
    memory = compiled.memory
    if not memory.buffers or not memory.size:
        return []
    steps = len(compiled.steps)
    width = min(_COLUMNS, 2 * (steps + 2))
    height = max(1, min(_ROWS, memory.size))
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    picture = [[" "] * width for _ in range(height)]
    for number, (buffer, place) in enumerate(zip(memory.buffers, memory.places, strict=True)):
        left = (buffer.first + 1) * width // (steps + 2)
        right = max((buffer.last + 2) * width // (steps + 2) - 1, left)
        low = place * height // memory.size
        high = max(-(-(place + buffer.size) * height // memory.size), low + 1)
        for row in range(low, min(high, height)):
            for column in range(left, min(right, width - 1) + 1):
                mark = letters[number % len(letters)]
                picture[row][column] = mark if picture[row][column] == " " else "#"
    labels = [f"{(row + 1) * memory.size // height:>9,} " for row in range(height)]
    return [label + "".join(line).rstrip() for label, line in reversed(list(zip(labels, picture, strict=True)))]


def plot_arena(compiled: Compiled, path: Path) -> None:
    """Draws the arena into a file, SVG or PNG by its ending.

    Raises:
        CompileError: the ending is another one, or the file cannot be written.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise CompileError(f"`{path.name}` is neither .svg nor .png.")
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    memory, steps = compiled.memory, compiled.steps
    figure = Figure(figsize=(max(6.0, 0.32 * len(steps) + 2), 4.5), layout="constrained")
    axes = figure.add_subplot()
    colours = colormaps["tab20"]
    names = {number: compiled.graph[tensor].name for tensor, number in memory.buffer_of.items()}
    for number, (buffer, place) in enumerate(zip(memory.buffers, memory.places, strict=True)):
        scratch = number not in names
        box = Rectangle(
            (buffer.first - 0.5, place),
            buffer.last - buffer.first + 1,
            buffer.size,
            facecolor="lightgrey" if scratch else colours(number % 20),
            edgecolor="black",
            linewidth=0.6,
            alpha=0.75,
            hatch="//" if scratch else None,
        )
        axes.add_patch(box)
    axes.set_xlim(-1.6, len(steps) + 0.6)
    axes.set_ylim(0, memory.size * 1.02 + 1)
    axes.set_xticks(
        range(len(steps)), [step.operator.kind.replace("_", " ").lower() for step in steps], rotation=90, fontsize=6
    )
    axes.set_ylabel("bytes")
    axes.set_title(f"{compiled.name}: arena of {compiled.arena_bytes:,} bytes; grey: scratch")
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise CompileError(f"`{path}` cannot be written: {error.strerror}.") from error
