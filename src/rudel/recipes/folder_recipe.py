"""Recipes of folders: the recipe that a user means who gives a folder in its place."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rudel.data.file_names import SOUND
from rudel.errors import option
from rudel.files import expanded

_BY_SUFFIX = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".avif", ".bmp", ".gif", ".tif", ".tiff"), "images"),
    **dict.fromkeys(SOUND, "keywords"),
    ".csv": "motion",
}
_BY_KIND = {"sound": "keywords", "motion": "motion"}
_MOST_FILES = 1000


def instead_of(folder: str) -> str:
    """A sentence that names the command for a folder of data or a run, by its first files."""
    path = expanded(folder)
    if (path / "config.json").is_file():
        return (
            f"`{folder}` is a run, not a recipe: give its recipe with {option('run', folder)} and "
            f"{option('resume', True)} to continue it."
        )
    if recipe := _of_records(path) or _of_files(path):
        return (
            f"`{folder}` is a folder, not a recipe: the recipe `{recipe}` learns from it, with "
            f"{option('data', folder)}."
        )
    return (
        f"`{folder}` is a folder, not a recipe, and has no images, sound files or CSV files: give a recipe, and the "
        f"folder with {option('data')}. `rudel recipes` lists all."
    )


def _of_records(path: Path) -> str | None:
    """The recipe for records of `rudel data`."""
    try:
        document = json.loads((path / "dataset.json").read_text())
    except (OSError, ValueError):
        return None
    return _BY_KIND.get(document.get("kind", ""), "images") if isinstance(document, dict) else None


def _of_files(path: Path) -> str | None:
    """The recipe for the first file of a known kind."""
    suffixes = (file.suffix.lower() for file in islice(_files(path), _MOST_FILES))
    return next((_BY_SUFFIX[suffix] for suffix in suffixes if suffix in _BY_SUFFIX), None)


def _files(path: Path) -> Iterator[Path]:
    for entry in sorted(path.iterdir()):
        yield from sorted(entry.iterdir()) if entry.is_dir() else (entry,)
