"""One page about a compiled model: layers, cycles, flash, RAM over time, and what the passes removed.

The page loads nothing from anywhere, needs no scripts, and is light or dark as the reader's system is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.errors import CompileError
from rudel.files import written_atomically
from rudel.micro.bench import Measurement
from rudel.micro.compiler import Compiled
from rudel.micro.explain import Layer, layers
from rudel.micro.explain_arena import arena_svg
from rudel.micro.removed import Removal
from rudel.report.markup import Html, element, join, scrolling, table
from rudel.report.report_page import document

_METHOD = (
    "Cycles are an estimate: what the instructions that an emulated board executes take by the core's published "
    "timings, with memory that needs no wait states. Layers are counted in an image of their own, so their sum differs "
    "a little from the whole."
)


@dataclass(frozen=True)
class _Costs:
    """The costs of a layer, and their unit."""

    unit: str
    values: tuple[int, ...]


def write_page(
    path: Path, compiled: Compiled, removed: Sequence[Removal], measured: Measurement | None, reason: str | None
) -> None:
    """Writes the page into a file.

    Args:
        path: of the file.
        compiled: the model.
        removed: what the passes took out of it.
        measured: what it takes on an emulated board, if that was measured.
        reason: why it was not.

    Raises:
        CompileError: the file cannot be written.
    """
    try:
        with written_atomically(path) as file:
            file.write(explanation(compiled, removed, measured, reason).encode())
    except OSError as error:
        raise CompileError(f"`{path}` cannot be written: {error.strerror}.") from error


def explanation(
    compiled: Compiled, removed: Sequence[Removal], measured: Measurement | None, reason: str | None
) -> str:
    """The whole page; the arguments are those of `write_page`."""
    rows = layers(compiled)
    costs = _costs(rows, measured)
    sections = (
        ("layers", "Layers", join([_layer_table(rows, measured, costs), *_notes(costs.unit, measured, reason)])),
        ("ram", "RAM over time", _ram(compiled, rows)),
        ("passes", "What the passes removed", _passes(removed)),
    )
    contents = element(
        "nav", join((element("a", name, href=f"#{anchor}") for anchor, name, _ in sections), " "), aria_label="Contents"
    )
    shown = join(element("section", element("h2", name), body, id=anchor) for anchor, name, body in sections)
    main = element("main", _headline(compiled, measured), contents, shown)
    return document(f"{compiled.name} – compiled model", main, "Made by Rudel from the model.")


def _costs(rows: Sequence[Layer], measured: Measurement | None) -> _Costs:
    if measured is None:
        return _Costs("multiplications", tuple(row.macs for row in rows))
    cycles = [layer.estimated_cycles for layer in measured.layers if layer.estimated_cycles is not None]
    if len(cycles) == len(rows):
        return _Costs("estimated cycles", tuple(cycles))
    return _Costs("instructions", tuple(layer.instructions for layer in measured.layers))


def _headline(compiled: Compiled, measured: Measurement | None) -> Html:
    numbers = [("bytes of RAM", compiled.arena_bytes), ("multiplications", compiled.macs)]
    if measured is None:
        numbers.insert(0, ("bytes of parameters", compiled.weights_bytes))
    else:
        numbers.insert(0, ("bytes of flash", measured.flash))
        numbers += [("of them code", measured.code), ("bytes of stack", measured.stack)]
        numbers += [("instructions", measured.instructions)]
    return element(
        "header",
        element("p", "Compiled model", class_="kicker"),
        element("h1", compiled.name),
        element("p", f"for {compiled.target.name}, with the bits of {compiled.rounding}", class_="when"),
        element(
            "div",
            _estimate(measured.estimated_cycles) if measured and measured.estimated_cycles else None,
            element(
                "dl",
                join(element("div", element("dt", name), element("dd", f"{value:,}")) for name, value in numbers),
                class_="numbers",
            ),
            class_="headline",
        ),
    )


def _estimate(cycles: int) -> Html:
    words = element("strong", f"{cycles:,}"), element("span", "estimated clock cycles an inference")
    return element("p", *words, class_="result")


def _layer_table(rows: Sequence[Layer], measured: Measurement | None, costs: _Costs) -> Html:
    cells = [
        [
            str(row.number),
            row.kind,
            "\u00d7".join(map(str, row.shape)),
            f"{row.macs:,}",
            f"{row.flash:,}",
            f"{row.ram:,}",
            *([f"{costs.values[number]:,}"] if measured else []),
            _share(costs.values[number], costs.values),
        ]
        for number, row in enumerate(rows)
    ]
    foot = ["", "all", "", f"{sum(row.macs for row in rows):,}", f"{sum(row.flash for row in rows):,}"]
    foot += [f"{max(row.ram for row in rows):,}", *([f"{sum(costs.values):,}"] if measured else []), ""]
    header = ["", "operator", "output", "MACs", "flash", "RAM", *([costs.unit] if measured else []), "share"]
    return table("Work, flash and RAM by layer", header, cells, [foot], words=(0, 1, 2))


def _share(value: int, values: Sequence[int]) -> Html:
    part = element("span", style=f"width:{100 * value / max(*values, 1):.1f}%")
    bar = element("span", part, class_="bar", style="width:2.5rem", aria_hidden="true")
    return join([bar, f"{100 * value / max(sum(values), 1):.0f} %"])


def _notes(unit: str, measured: Measurement | None, reason: str | None) -> Iterable[Html]:
    yield element(
        "p",
        "MACs: multiplications with addition. Flash: bytes of weights, biases, multipliers and tables; an array that "
        "layers share counts for the first. RAM: how many bytes into the arena the tensors reach that are needed while "
        f"the layer runs. Share: of the {unit}.",
        class_="note",
    )
    if measured is None:
        yield element("p", f"Instructions and cycles are missing. {reason or ''}", class_="note")
    elif measured.estimated_cycles is not None:
        yield element("p", _METHOD, class_="note")


def _ram(compiled: Compiled, rows: Sequence[Layer]) -> Html:
    fullest = max(rows, key=lambda row: row.ram)
    words = (
        f"The arena has {compiled.arena_bytes:,} bytes; layer {fullest.number} ({fullest.kind}) needs most of it. Each "
        "box is a tensor: from left to right the layers during which it is needed, upwards its addresses. Boxes "
        "overlap where a layer writes its output over an input that it has done with. Grey is scratch memory."
    )
    drawing = scrolling(arena_svg(compiled), "The arena, layer by layer")
    return element("figure", drawing, element("figcaption", words))


def _passes(removed: Sequence[Removal]) -> Html:
    if not removed:
        return element("p", "Nothing: no pass found anything that is not needed.")
    cells = [
        [
            each.does,
            _both(each.before.operators, each.after.operators),
            _both(each.before.macs, each.after.macs),
            _both(each.before.parameters, each.after.parameters),
        ]
        for each in removed
    ]
    names = ["pass", "operators", "multiplications", "bytes of constants"]
    changed = [
        element("details", element("summary", each.does), element("ul", join(element("li", c) for c in each.changes)))
        for each in removed
        if each.changes
    ]
    return join([table("Before and after each pass that changed something", names, cells), *changed])


def _both(before: int | None, after: int | None) -> str:
    if before == after or before is None:
        return "–" if after is None else f"{after:,}"
    return f"{before:,} → {'–' if after is None else f'{after:,}'}"
