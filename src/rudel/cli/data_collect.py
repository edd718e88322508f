"""`rudel data sketch` and `rudel data collect`: recordings from the sensor of a board."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rudel.cli.output import reporting_interrupts
from rudel.errors import DataError, OptionError
from rudel.files import expanded
from rudel.terminal import is_terminal

if TYPE_CHECKING:
    from rudel.data.collecting.cutting import Cutter
    from rudel.data.collecting.frames import Reader
    from rudel.data.collecting.port import SerialPort

_SILENT_SECONDS = 5.0
_LEVELS, _SHOWN = 60, {"sound": (-60.0, 0.0, "dB"), "motion": (0.0, 4.0, "g")}
"""How many levels the display shows, and from where to where they go."""


def sketch(
    kind: Annotated[Literal["sound", "motion"], typer.Argument(metavar="KIND", help="What the board measures.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the sketch, which gets its name.")
    ],
) -> None:
    """Write an Arduino sketch that sends the signal of the microphone or the motion sensor."""
    from rudel.data.collecting.sketches import write_sketch

    path = write_sketch(kind, expanded(out))
    typer.echo(f"Upload {path} to the board, then run `rudel data collect --class NAME --out FOLDER`.")


def collect(
    class_name: Annotated[str, typer.Option("--class", metavar="NAME", help="The class of the recordings.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of all classes.")],
    port: Annotated[
        str | None,
        typer.Option("--port", "-p", metavar="PORT", help="Serial port of the board.  \\[default: the only one]"),
    ] = None,
    recordings: Annotated[int, typer.Option("--recordings", "-n", min=1, help="Number of recordings.")] = 20,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Record all the time, not only words or movements.")
    ] = False,
    speaker: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the speaker, for the files' names.")
    ] = None,
) -> None:
    """Record words or movements of one second each with a board, until there are enough or Ctrl-C is pressed.

    A recording begins at a sound or a movement. Sound is saved as OUT/CLASS/*.wav; movements are added to
    OUT/CLASS.csv.
    """
    from rudel.data.collecting.cutting import Cutter
    from rudel.data.collecting.frames import Reader
    from rudel.data.collecting.port import opened
    from rudel.data.collecting.recording_files import Store, check_name

    check_name(class_name, "--class")
    if speaker is not None:
        check_name(speaker, "--speaker")
    with opened(port) as line, reporting_interrupts(), _display() as show:
        reader, done, last = Reader(), 0, ""
        _wait_for_header(line, reader)
        header = reader.header
        assert header
        if speaker is not None and header.kind != "sound":
            raise OptionError("--speaker is for sound, and the board sends movements: leave it out.")
        store, cutter = Store(expanded(out), class_name, header, speaker), Cutter(header, continuous)
        low, high, unit = _SHOWN[header.kind]
        levels = [low] * _LEVELS
        heard = time.monotonic()
        try:
            while done < recordings:
                content = line.read()
                heard = time.monotonic() if content else heard
                if time.monotonic() - heard > _SILENT_SECONDS:
                    raise DataError(f"The board at {line.name} has fallen silent: press its reset button, and repeat.")
                for frame in reader.take(content):
                    for recording in cutter.take(frame):
                        if done < recordings:
                            last = store.add(recording)
                            done += 1
                    levels = [*levels[1:], cutter.level]
                show(_shown(class_name, done, recordings, cutter, reader, (levels, low, high, unit)))
        finally:
            if done:
                what = "recording" if done == 1 else "recordings"
                typer.echo(f"{done} {what} of {class_name}, the last in {last}")
            if reader.lost:
                typer.echo(f"Samples were lost {reader.lost} times; recordings with gaps are not kept.", err=True)


def _wait_for_header(line: "SerialPort", reader: "Reader") -> None:
    """Waits until it is known what the board sends.

    Raises:
        DataError: nothing comes, or nothing that could be known.
    """
    until = time.monotonic() + _SILENT_SECONDS
    while reader.header is None:
        for _ in reader.take(line.read()):
            pass  # samples before the first recording could begin
        if time.monotonic() > until:
            advice = "upload the sketch that `rudel data sketch` writes"
            if reader.received:
                raise DataError(f"What the board at {line.name} sends is not from Rudel's sketch: {advice}.")
            raise DataError(
                f"The board at {line.name} has sent nothing for {_SILENT_SECONDS:g} s: {advice}, and close other "
                "programs that use the port."
            )


def _shown(
    name: str,
    done: int,
    recordings: int,
    cutter: "Cutter",
    reader: "Reader",
    plot: tuple[list[float], float, float, str],
) -> str:
    from rudel.data.collecting.cutting import sparks

    levels, low, high, unit = plot
    doing = "recording" if cutter.recording else "waiting"
    lost = f"  lost {reader.lost}" if reader.lost else ""
    line = sparks(levels, low, high)
    return f"{name}  {done}/{recordings}  {line} {cutter.level:5.1f} {unit}  {doing}{lost}"


@contextlib.contextmanager
def _display() -> Iterator[Callable[[str], None]]:
    """Yields what shows a line on a terminal, in the place of the one before, and nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda text: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, refresh_per_second=12) as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="crop"))
