"""`rudel data images`: photographs become records."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli.output import count_display, print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import JsonOption, SshConfigOption, hosts_option

if TYPE_CHECKING:
    from rudel.data.images.dataset_file import Converted

_NAMED = 5


def images(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER|FILE.csv|URL", help="Folders of classes; or a table of paths and labels."),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the records.")],
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A table of file names and labels, for a folder without folders of classes."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="FILE", help="Names of the classes, one per line, in the order of labels.")
    ] = None,
    validation: Annotated[
        str,
        typer.Option(
            metavar="SHARE|FOLDER",
            help="Validation share, chosen by the hash of the file's name; or a folder of validation images.",
        ),
    ] = "0.1",
    max_side: Annotated[
        int | None, typer.Option(metavar="PIXELS", help="Scale down images with a longer side.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Number of training files.  \\[default: files of about 128 MB]")
    ] = None,
    on: Annotated[
        str | None, hosts_option("Convert on these hosts over SSH; or a file with one host per line.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Convert on the workers of this Dask scheduler.")
    ] = None,
    min_hosts: Annotated[int | None, typer.Option(help="Start with this many hosts.  \\[default: all]")] = None,
    ssh_config: SshConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Convert photographs into TFRecord files for training; continues an interrupted conversion."""
    from rudel.data.images.convert import convert

    began = time.monotonic()
    with (
        reporting_interrupts(),
        _helpers(on, scheduler, ssh_config, min_hosts) as spread,
        count_display("converting") as progress,
    ):
        converted = convert(
            folder,
            out,
            labels=labels,
            classes=classes,
            validation=_share_or_folder(validation),
            max_side=max_side,
            shards=shards,
            spread=spread,
            progress=progress,
        )
    seconds = time.monotonic() - began
    if json:
        print_json(_as_document(converted, seconds))
        return
    _print_result(converted, seconds)


def _share_or_folder(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _helpers(on: str | None, scheduler: str | None, ssh_config: Path | None, min_hosts: int | None) -> Any:
    from rudel.cluster.host_options import check_used

    check_used(on, scheduler, ssh_config=ssh_config, min_hosts=min_hosts)
    if on is None and scheduler is None:
        return contextlib.nullcontext()
    from rudel.cluster.examine_images import image_workers

    return image_workers(on, scheduler, ssh_config, min_hosts)


def _as_document(converted: "Converted", seconds: float) -> dict[str, Any]:
    return {
        "path": str(converted.path),
        "seconds": seconds,
        "classes": list(converted.classes),
        "splits": {split: dict(zip(converted.classes, converted.counts(split), strict=True)) for split in _SPLITS},
        "shards": [{"file": shard.file, "records": shard.records, "bytes": shard.bytes} for shard in converted.shards],
        "shards_made": converted.made,
        "changes": converted.changes,
        "left_out": [{"name": one.name, "reason": one.reason, "detail": one.detail} for one in converted.left_out],
    }


_SPLITS = ("train", "validation")


def _print_result(converted: "Converted", seconds: float) -> None:
    from rudel.report.formatting import plural, size

    rows = []
    for split in _SPLITS:
        shards = [shard for shard in converted.shards if shard.split == split]
        count, amount = sum(shard.records for shard in shards), sum(shard.bytes for shard in shards)
        rows.append([split, f"{count:,}", size(amount), plural(len(shards), "shard")])
    print_table(["", "images", "size", "in"], rows, right=(1, 2, 3))
    typer.echo(f"classes   {len(converted.classes):,}")
    for change, count in converted.changes.items():
        typer.echo(f"changed   {plural(count, 'image')}: {change}")
    _tell_left_out(converted)
    _tell_shards(converted, seconds)
    typer.echo(f"records   {converted.path}")
    for note in _notes(converted):
        typer.echo(f"note      {note}", err=True)


def _tell_left_out(converted: "Converted") -> None:
    from rudel.report.formatting import plural

    left_out = converted.left_out
    for reason, count in Counter(one.reason for one in left_out).most_common():
        names = [one.name for one in left_out if one.reason == reason][:_NAMED]
        more = ", ..." if count > len(names) else ""
        typer.echo(f"left out  {plural(count, 'file')}: {reason}: {', '.join(names)}{more}")


def _tell_shards(converted: "Converted", seconds: float) -> None:
    from rudel.report.formatting import duration, plural

    kept = len(converted.shards) - converted.made
    images = converted.records + sum(len(shard.left_out) for shard in converted.shards)
    if converted.made == 0:
        typer.echo("time      nothing to do: all images are converted")
    elif kept:
        typer.echo(f"time      {duration(seconds)} for {plural(converted.made, 'shard')}; {kept:,} already existed")
    else:
        typer.echo(f"time      {duration(seconds)}, {images / max(seconds, 1e-9):,.0f} images/s")


def _notes(converted: "Converted") -> Iterator[str]:
    if converted.doubt:
        yield converted.doubt
    if len(converted.left_out) > _NAMED:
        yield f"All files that were left out are named in {converted.path / 'left-out.txt'}."
    counts = list(zip(converted.classes, *map(converted.counts, _SPLITS), strict=True))
    if unseen := [name for name, train, _ in counts if not train]:
        yield f"There are no training images of {_classes(unseen)}."
    if not any(held_out for _, _, held_out in counts):
        yield "There are no validation images."
    elif untested := [name for name, train, held_out in counts if train and not held_out]:
        yield f"There are no validation images of {_classes(untested)}."


def _classes(names: list[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:_NAMED])
    if len(names) == 1:
        return f"the class {listed}"
    return f"{len(names):,} classes: {listed}{', ...' if len(names) > _NAMED else ''}"
