"""`rudel data sound` and `rudel data motion`: recordings become records."""

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rudel.cli.output import count_display, print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import JsonOption
from rudel.files import expanded

if TYPE_CHECKING:
    import numpy as np

    from rudel.data.windows import Windows

_NAMED = 5

OutOption = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the records.")]
ValidationOption = Annotated[float, typer.Option(help="Validation share, chosen by the hash of the file's name.")]


def sound(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER|FILE.csv|URL", help="Folders of classes; or a table of paths and labels.")
    ],
    out: OutOption,
    rate: Annotated[int, typer.Option(help="Samples per second; other rates are resampled.")] = 8000,
    seconds: Annotated[float, typer.Option(help="Length of a window in seconds.")] = 1.0,
    validation: ValidationOption = 0.1,
    split: Annotated[
        Literal["recording", "speaker"], typer.Option(help="Hold out recordings, or whole speakers.")
    ] = "recording",
    speakers: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Speakers to hold out, instead of a share.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Convert recordings (WAV, FLAC) into TFRecord files for training: one rate, windows of one length."""
    from rudel.data.sound.noise import BACKGROUND
    from rudel.data.sound.recording_folders import read_folder, settings_of

    with reporting_interrupts(), count_display("reading") as progress:
        found = read_folder(folder, rate, seconds, progress)
        named = [name.strip() for name in (speakers or "").split(",") if name.strip()]
        held_out = found.held_out(validation, split, named)
        _finish(found, out, "sound", settings_of(rate, seconds), held_out, json)
    if (noise := expanded(folder) / BACKGROUND).is_dir():
        typer.echo(f"note      {noise} is not a class: train with --set noise={shlex.quote(str(noise))}.", err=True)


def motion(
    folder: Annotated[str, typer.Argument(metavar="FOLDER|URL", help="CSV files, or folders of them, one per class.")],
    out: OutOption,
    samples: Annotated[int, typer.Option("--samples", "-n", help="Length of a window in rows.")] = 119,
    validation: ValidationOption = 0.2,
    json: JsonOption = False,
) -> None:
    """Convert recordings of a motion sensor (CSV, separated by blank lines) into TFRecord files for training."""
    from rudel.data.motion import read_folder

    with reporting_interrupts():
        found = read_folder(folder, samples)
        _finish(found, out, "motion", {"samples": samples}, found.held_out(validation), json)


def _finish(
    found: "Windows", out: str, kind: str, settings: Mapping[str, Any], held_out: "np.ndarray", json: bool
) -> None:
    import numpy as np

    from rudel.data.window_records import write_windows

    path, mask = expanded(out), held_out
    write_windows(path, found, kind, settings, mask)
    count = len(found.classes)
    parts = {"train": found.labels[~mask], "validation": found.labels[mask]}
    counts = {name: np.bincount(part, minlength=count).tolist() for name, part in parts.items()}
    splits = {name: dict(zip(found.classes, part, strict=True)) for name, part in counts.items()}
    if json:
        left_out = [{"name": one.name, "reason": one.reason, "detail": one.detail} for one in found.left_out]
        print_json({"path": str(path), "classes": list(found.classes), "splits": splits, "left_out": left_out})
        return
    rows = [[name, *(f"{splits[split][name]:,}" for split in splits)] for name in found.classes]
    rows.append(["all", *(f"{len(part):,}" for part in parts.values())])
    print_table(["class", *splits], rows, right=(1, 2))
    for reason, count in Counter(one.reason for one in found.left_out).most_common():
        these = [one for one in found.left_out if one.reason == reason]
        names = [f"{one.name} ({one.detail})" if one.detail else one.name for one in these]
        more = ", ..." if count > _NAMED else ""
        typer.echo(f"left out  {count:,}, {reason}: {', '.join(names[:_NAMED])}{more}")
    typer.echo(f"records   {path}")
    if len(found.left_out) > _NAMED:
        typer.echo(f"note      All that was left out is named in {path / 'dataset.json'}.", err=True)
