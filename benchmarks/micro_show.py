"""Tables of what models need on a microcontroller."""

from collections.abc import Mapping

from micro_claims import CLAIMS, TFLM, VENDOR_CYCLES
from rich.table import Table

from rudel.micro.bench import Measurement


def needs_tables(measured: Mapping[str, Measurement], target: str) -> tuple[Table, Table]:
    """A row for every model: what it computes, and what it takes of memory.

    Each figure stands beside TFLM's, how many times more that is, and what was claimed. Those, and the vendors' cycles,
    are about a Cortex-M4 and are left out for other targets.
    """
    compared = target == "cortex-m4"
    parts = ("", "TFLM", "ratio", "claimed ≤") if compared else ("",)
    speed = Table("model", "instructions", *parts[1:], "a MAC", title=f"{target}; instructions, not clock cycles")
    headings = [f"{what} {part}".strip() for what in ("code", "RAM") for part in parts]
    memory = Table("model", *headings, "flash", "parameters", "stack", title=f"{target}; bytes")
    if compared:
        speed.add_column("vendor's best, M cycles")
    for name, m in measured.items():
        macs = sum(layer.macs for layer in m.layers)
        cells = [*_figures(name, "instructions", m.instructions, compared), f"{m.instructions / max(macs, 1):.2f}"]
        if compared:
            cycles = VENDOR_CYCLES.get(name)
            cells.append(f"{cycles / 1e6:.3f}" if cycles else "")
        speed.add_row(name, *cells)
        sizes = [*_figures(name, "code", m.code, compared), *_figures(name, "ram", m.ram, compared)]
        memory.add_row(name, *sizes, f"{m.flash:,}", f"{m.parameters:,}", f"{m.stack:,}")
    return speed, memory


def _figures(name: str, what: str, value: int, compared: bool) -> list[str]:
    """Returns a figure, and with `compared` TFLM's, the ratio and the claim."""
    if not compared:
        return [f"{value:,}"]
    claimed, rival = getattr(CLAIMS[name], what), getattr(TFLM[name], what)
    colour = "green" if value <= claimed else "red"
    theirs = ("", "") if rival is None else (f"{rival:,}", f"{rival / value:.2f}")
    return [f"[{colour}]{value:,}[/]", *theirs, f"{claimed:,}"]


def layers_table(name: str, m: Measurement) -> Table:
    """A row for every layer."""
    table = Table("operator", "", "MACs", "instructions", "a MAC", title=name)
    for layer in m.layers:
        share = f"{layer.instructions / layer.macs:.2f}" if layer.macs else ""
        table.add_row(str(layer.index), layer.kind, f"{layer.macs:,}", f"{layer.instructions:,}", share)
    return table
