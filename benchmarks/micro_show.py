"""Tables of what models need on a microcontroller."""

from collections.abc import Mapping

from micro_claims import CLAIMS, TFLM, VENDOR_CYCLES
from rich.table import Table

from rudel.micro.bench import Measurement


def needs_table(measured: Mapping[str, Measurement], target: str) -> Table:
    """A row for every model: Rudel's number, how many times more TFLM needs, and what was claimed.

    The last two, and the vendors' cycles, are about a Cortex-M4 and are left out for other targets.
    """
    compared = target == "cortex-m4"
    parts = ("", ", TFLM", ", TFLM / Rudel", ", claimed ≤") if compared else ("",)
    headings = [f"{what}{part}" for what in ("instructions", "code B", "RAM B") for part in parts]
    headings += ["vendor's best, M cycles"] if compared else []
    table = Table(
        "model",
        *headings,
        "flash B",
        "parameters B",
        "stack B",
        "a MAC",
        title=f"{target}; instructions, not clock cycles",
    )
    for name, m in measured.items():
        cells = []
        for what, value in (("instructions", m.instructions), ("code", m.code), ("ram", m.ram)):
            cells += _compared(name, what, value) if compared else [f"{value:,}"]
        if compared:
            cycles = VENDOR_CYCLES.get(name)
            cells.append(f"{cycles / 1e6:.3f}" if cycles else "")
        macs = sum(layer.macs for layer in m.layers)
        table.add_row(
            name, *cells, f"{m.flash:,}", f"{m.parameters:,}", f"{m.stack:,}", f"{m.instructions / max(macs, 1):.2f}"
        )
    return table


def _compared(name: str, what: str, value: int) -> list[str]:
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
