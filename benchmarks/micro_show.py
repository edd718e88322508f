"""Tables of what models need on a microcontroller."""

from collections.abc import Mapping

from micro_claims import CLAIMS, TFLM, VENDORS
from rich.table import Table

from rudel.micro.bench import Measurement


def needs_tables(measured: Mapping[str, Measurement], target: str) -> tuple[Table, Table]:
    """A row for every model: what it computes beside rivals, and what it takes of memory.

    TFLM's figures, how many times more they are, the vendors' cycles, and what was claimed, are about a Cortex-M4 and
    are left out for other targets.
    """
    compared = target == "cortex-m4"
    parts = ("", "TFLM", "ratio", "claimed ≤") if compared else ("",)
    speed = Table("model", "instructions", "a MAC", title=target)
    if compared:
        speed = Table(
            "model", "TFLM + CMSIS-NN, instructions", "Rudel, instructions", "ratio", "claimed ≤", "a MAC", title=target
        )
        speed.add_column("vendor's best, M cycles")
        speed.add_column("by, in MLPerf Tiny", no_wrap=True)
        speed.add_column("Rudel, estimated M cycles")
    for heading in ("RAM", "flash"):
        speed.add_column(heading)
    headings = [f"{what} {part}".strip() for what in ("code", "RAM") for part in parts]
    memory = Table("model", *headings, "parameters", "stack", title=f"{target}; bytes")
    for name, m in measured.items():
        macs = sum(layer.macs for layer in m.layers)
        figures = _figures(name, "instructions", m.instructions, compared)
        if compared:
            figures[:2] = figures[1::-1]
        cycles = _cycles(name, m) if compared else []
        speed.add_row(name, *figures, f"{m.instructions / max(macs, 1):.2f}", *cycles, f"{m.ram:,}", f"{m.flash:,}")
        sizes = [*_figures(name, "code", m.code, compared), *_figures(name, "ram", m.ram, compared)]
        memory.add_row(name, *sizes, f"{m.parameters:,}", f"{m.stack:,}")
    return speed, memory


def _figures(name: str, what: str, value: int, compared: bool) -> list[str]:
    """Returns a figure, and with `compared` TFLM's, the ratio and the claim."""
    if not compared:
        return [f"{value:,}"]
    claimed, rival = getattr(CLAIMS[name], what), getattr(TFLM[name], what)
    colour = "green" if value <= claimed else "red"
    theirs = ("", "") if rival is None else (f"{rival:,}", f"{rival / value:.2f}")
    return [f"[{colour}]{value:,}[/]", *theirs, f"{claimed:,}"]


def _cycles(name: str, m: Measurement) -> list[str]:
    """Returns the vendor's cycles in millions, whose they are, and the estimate, red where that is not below."""
    result, estimated = VENDORS.get(name), m.estimated_cycles
    theirs = (f"{result.cycles / 1e6:.3f}", f"{result.vendor}, {result.round}") if result else ("", "")
    if estimated is None:
        return [*theirs, "no estimate here"]
    colour = "red" if result and estimated >= result.cycles else "green"
    return [*theirs, f"[{colour}]{estimated / 1e6:.3f}[/]"]


def layers_table(name: str, m: Measurement) -> Table:
    """A row for every layer."""
    table = Table("operator", "", "MACs", "instructions", "a MAC", "estimated cycles", title=name)
    for layer in m.layers:
        share = f"{layer.instructions / layer.macs:.2f}" if layer.macs else ""
        cycles = "" if layer.estimated_cycles is None else f"{layer.estimated_cycles:,}"
        table.add_row(str(layer.index), layer.kind, f"{layer.macs:,}", f"{layer.instructions:,}", share, cycles)
    return table
