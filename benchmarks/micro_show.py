"""Tables of what models need on a microcontroller."""

from collections.abc import Mapping

from micro_claims import CLAIMS, TFLM
from rich.table import Table

from rudel.micro.bench import Measurement


def needs_table(measured: Mapping[str, Measurement], target: str) -> Table:
    """A row for every model: Rudel's number, how many times more TFLM needs, and what was claimed.

    The last two are about a Cortex-M4 and are left out for other targets.
    """
    compared = target == "cortex-m4"
    parts = ("", ", TFLM / Rudel", ", claimed ≤") if compared else ("",)
    headings = [f"{what}{part}" for what in ("instructions", "code B", "RAM B") for part in parts]
    table = Table(
        "model", *headings, "parameters B", "stack B", "a MAC", title=f"{target}; instructions, not clock cycles"
    )
    for name, m in measured.items():
        cells = []
        for what, value in (("instructions", m.instructions), ("code", m.code), ("ram", m.ram)):
            claimed, rival = getattr(CLAIMS[name], what), getattr(TFLM[name], what)
            colour = "green" if value <= claimed else "red"
            cells += [f"[{colour}]{value:,}[/]", f"{rival / value:.2f}", f"{claimed:,}"] if compared else [f"{value:,}"]
        macs = sum(layer.macs for layer in m.layers)
        table.add_row(name, *cells, f"{m.parameters:,}", f"{m.stack:,}", f"{m.instructions / max(macs, 1):.2f}")
    return table


def layers_table(name: str, m: Measurement) -> Table:
    """A row for every layer."""
    table = Table("operator", "", "MACs", "instructions", "a MAC", title=name)
    for layer in m.layers:
        share = f"{layer.instructions / layer.macs:.2f}" if layer.macs else ""
        table.add_row(str(layer.index), layer.kind, f"{layer.macs:,}", f"{layer.instructions:,}", share)
    return table
