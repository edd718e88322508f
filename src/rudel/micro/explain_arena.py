"""The arena as a drawing inside a page: which bytes every tensor has, and from which layer to which."""

from rudel.micro.compiler import Compiled
from rudel.report.markup import Html, element, join

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 888, 320, 64, 8, 44
_LEAST_COLUMN = 18
_COLOURS = ("training", "evaluate", "checkpoint", "compile", "wait")


def arena_svg(compiled: Compiled) -> Html:
    """Draws the arena: layers to the right, addresses upwards, a box for each tensor."""
    memory, steps = compiled.memory, compiled.steps
    columns = len(steps) + 2
    column = max((_WIDTH - _LEFT) / columns, _LEAST_COLUMN)
    size = max(memory.size, 1)
    names = {number: compiled.graph[tensor].name for tensor, number in reversed(memory.buffer_of.items())}
    width = _LEFT + columns * column

    def height(bytes_: int) -> float:
        return _HEIGHT * bytes_ / size

    parts: list[Html] = []
    for tick in _ticks(size):
        y = _TOP + _HEIGHT - height(tick)
        parts.append(element("path", d=f"M{_LEFT} {y:.1f}H{width:.1f}", class_="grid"))
        parts.append(_text(_LEFT - 8, y + 4, f"{tick:,}", "end"))
    for number, (buffer, place) in enumerate(zip(memory.buffers, memory.places, strict=True)):
        name = names.get(number, "scratch memory")
        colour = _COLOURS[number % len(_COLOURS)] if number in names else "rest"
        first, last = max(buffer.first, -1), min(buffer.last, len(steps))
        about = f"{name}: {buffer.size:,} bytes at {place:,}, {_when(first, last, len(steps))}"
        box = element(
            "rect",
            x=f"{_LEFT + (first + 1) * column + 1:.1f}",
            y=f"{_TOP + _HEIGHT - height(place + buffer.size):.1f}",
            width=f"{(last - first + 1) * column - 2:.1f}",
            height=f"{max(height(buffer.size), 1):.1f}",
            style=f"fill:var(--{colour});fill-opacity:.7;stroke:var(--page)",
        )
        parts.append(element("g", element("title", about), box))
    every = max(1, round(22 / column))
    labels = ["in", *(str(number) if number % every == 0 else "" for number in range(len(steps))), "out"]
    for number, label in enumerate(labels):
        parts.append(_text(_LEFT + (number + 0.5) * column, _TOP + _HEIGHT + 16, label, "middle"))
    parts.append(_text(_LEFT + columns * column / 2, _TOP + _HEIGHT + 36, "layer", "middle"))
    whole = _TOP + _HEIGHT + _BOTTOM
    return element(
        "svg",
        join(parts),
        viewBox=f"0 0 {width:.1f} {whole}",
        width=f"{width:.1f}",
        height=whole,
        role="img",
        aria_label=f"{len(memory.buffers)} buffers in an arena of {memory.size:,} bytes over {len(steps)} layers",
        class_="timeline",
    )


def _text(x: float, y: float, words: str, anchor: str) -> Html:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_="muted", font_size=12)


def _when(first: int, last: int, count: int) -> str:
    begin = "from the input" if first < 0 else f"from layer {first}"
    return f"{begin} {'to the output' if last >= count else f'to layer {last}'}"


def _ticks(size: int) -> list[int]:
    """At most six round numbers of bytes from 0 to a size.

    >>> _ticks(8256)
    [0, 2000, 4000, 6000, 8000]
    """
    steps = (digit * 10**power for power in range(10) for digit in (1, 2, 5))
    step = next(step for step in steps if size / step < 6)
    return list(range(0, size + 1, step))
