"""The progress of hosts on the terminal."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from rudel.cluster.hosts import Host
    from rudel.cluster.installation import Stage

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red")


def printed_lines(
    hosts: "Sequence[Host]", output: "Console", problems: "Console"
) -> "Callable[[Host, str, bool], None]":
    """A function that prints lines of hosts, each behind the name of its host, in a colour of its own."""
    from rich.text import Text

    width = max(len(str(host)) for host in hosts)
    colours = {host: _COLOURS[number % len(_COLOURS)] for number, host in enumerate(hosts)}

    def on_line(host: "Host", line: str, bad: bool) -> None:
        console = problems if bad else output
        name = Text(f"{host!s:>{width}} | ", style=colours[host])
        console.print(Text.assemble(name, Text.from_ansi(line)), soft_wrap=True, highlight=False)

    return on_line


@contextlib.contextmanager
def live_display(hosts: "Sequence[Host]") -> "Iterator[tuple[Callable[[Host, Stage], None], Console]]":
    """A line for each host that says how far it is; without a terminal, a line whenever something new begins.

    Yields:
        The callback for every stage, and the console for other lines meanwhile.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=True)
    stages: dict[Host, Stage] = {}

    def table() -> Table:
        grid = Table.grid(padding=(0, 2))
        for number, host in enumerate(hosts):
            stage = stages.get(host)
            name = Text(str(host), style=_COLOURS[number % len(_COLOURS)])
            grid.add_row(name, Text(described(stage) if stage else "waiting"))
        return grid

    if not console.is_terminal:
        yield lambda host, stage: _tell_new(console, stages, host, stage), console
        return
    with Live(get_renderable=table, console=console, transient=True, refresh_per_second=5):

        def on_stage(host: "Host", stage: "Stage") -> None:
            stages[host] = stage

        yield on_stage, console


def described(stage: "Stage") -> str:
    """A stage in words."""
    if not stage.total:
        return stage.text
    return f"{stage.text}, {stage.done / 1e6:,.0f} of {stage.total / 1e6:,.0f} MB"


def _tell_new(console: "Console", stages: "dict[Host, Stage]", host: "Host", stage: "Stage") -> None:
    before = stages.get(host)
    stages[host] = stage
    if before is None or before.text.split()[0] != stage.text.split()[0]:
        console.print(f"{host}: {described(stage)}", soft_wrap=True, highlight=False, markup=False)
