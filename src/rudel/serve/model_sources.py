"""Sources of `rudel serve`: runs, folders of versions, and exported models, and when these have changed.

RUN/                a run that is finished; trained again, it is the next version
FOLDER/1, 2, ...    versions, each a run, a SavedModel, a model file or a folder with one
MODEL.tflite        as `rudel export` makes it, or from elsewhere; replaced, it is the next version
MODEL.keras, .h5    the same, as Keras saves it
SAVEDMODEL/         the same
"""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rudel.errors import RunError, ServeError
from rudel.files import expanded
from rudel.runs.model_as_run import SUFFIXES, as_run, class_names
from rudel.runs.run_directory import RunDirectory, open_finished
from rudel.serve.runtimes.runtime import Loaded

Kind = Literal["run", "keras", "litert", "savedmodel"]
Mark = tuple[tuple[str, int, int, int], ...]
"""Names, inodes, sizes and times of the files that a model is read from: another mark means another model."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_UNUSABLE = re.compile(r"[^A-Za-z0-9._-]+")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_FILES: dict[str, Kind] = {".tflite": "litert", **dict.fromkeys(SUFFIXES, "keras")}
"""Kinds of model files; of several in a folder, or of one number, the first kind is served."""


@dataclass(frozen=True)
class Source:
    """A model that is to be served.

    Args:
        name: what clients call it.
        path: where it is.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class FileOptions:
    """How model files are read.

    Args:
        classes, code, unsafe, within: see `rudel.runs.model_as_run.as_run`.
    """

    classes: str | None = None
    code: Path | None = None
    unsafe: bool = False
    within: Path | None = None


@dataclass(frozen=True)
class Found:
    """A version of a model, as it lies on the disk.

    Args:
        path: of its run, file or folder.
        kind: what it is.
        number: of the version; None where the folder does not say, and it counts on.
        mark: of its files.
    """

    path: Path
    kind: Kind
    number: int | None
    mark: Mark


def read_sources(arguments: Sequence[str]) -> list[Source]:
    """Reads `PATH` and `NAME=PATH`.

    Raises:
        ServeError: a name cannot be one, or two models have the same.

    >>> read_sources(["runs/digits", "other=runs/digits-2"])[1].name
    'other'
    """
    sources: list[Source] = []
    for argument in arguments:
        name, equals, place = argument.partition("=")
        if not equals or "/" in name or Path(argument).exists():
            name, place = "", argument
        path = expanded(place)
        own = Path(os.path.abspath(path))  # noqa: PTH100  # a link keeps its name, wherever it leads
        if not name:
            name = own.stem if own.suffix in _FILES else own.name
            name = name if _NAME.fullmatch(name) else _UNUSABLE.sub("-", name).strip("._-")
        if not _NAME.fullmatch(name):
            raise ServeError(
                f"`{name or own.name}` cannot be the name of a model: give one by NAME={shlex.quote(place)}, of "
                "letters and digits."
            )
        if any(source.name == name for source in sources):
            raise ServeError(
                f"Two models would be called `{name}`: give one of them another name by NAME={shlex.quote(place)}."
            )
        sources.append(Source(name, path))
    return sources


def find_versions(source: Source) -> list[Found]:
    """The versions of a model that can be loaded now, oldest first; without those that are not finished.

    Raises:
        ServeError: there is nothing that could be one, or two have the same number.
        RunError: it is a run that is not finished.
    """
    path = source.path
    if not path.exists():
        raise ServeError(f"There is nothing at {path}: give a run, a folder of versions, a model file or a SavedModel.")
    numbered = _numbered(path) if path.is_dir() else []
    if not numbered:
        return [_found(path, None)]
    found = []
    problems: list[Exception] = []
    numbers: dict[int, Path] = {}
    for child in sorted(numbered):
        number = int(child.stem)
        try:
            found.append(_found(child, number))
        except (ServeError, RunError) as error:
            problems.append(error)
            continue
        if number in numbers:
            raise ServeError(f"{numbers[number]} and {child} are both version {number}: rename or remove one of them.")
        numbers[number] = child
    if not found and problems:
        raise problems[0]
    return sorted(found, key=lambda each: each.number or 0)


def numbers_there(source: Source) -> set[int]:
    """Numbers of the versions in a folder, also of those that cannot be loaded now, as a run that is resumed."""
    return {int(child.stem) for child in _numbered(source.path)} if source.path.is_dir() else set()


def model_files(source: Source) -> list[Path]:
    """The model files of a source: its own, or those of the versions in a folder."""
    children = _numbered(source.path) if source.path.is_dir() else []
    files = [_file_of(path) for path in children or [source.path]]
    return [file for file in files if file]


def load(found: Found, most: int, options: FileOptions) -> Loaded:
    """Loads a version.

    Args:
        found: where it is.
        most: the largest batch.
        options: for a model file.

    Raises:
        OptionError: the options do not fit the model file.
        RudelError: it cannot be loaded.
    """
    if found.kind in ("run", "keras"):
        from rudel.serve.runtimes.keras_runtime import load_run

        if found.kind == "run":
            return load_run(found.path, most)
        with as_run(found.path, options.classes, options.code, options.unsafe, options.within) as run:
            return load_run(run, most)
    if found.kind == "litert":
        from rudel.serve.runtimes.litert_runtime import load_litert

        return load_litert(found.path, class_names(options.classes))
    from rudel.serve.runtimes.savedmodel_runtime import load_savedmodel

    return load_savedmodel(found.path)


def _numbered(path: Path) -> list[Path]:
    """The versions in a folder; none in a folder that is a model itself.

    Nor in one with a single model file of a kind that comes before those of all numbered files: `net.tflite` beside
    `10.keras`.
    """
    if _is_model(path):
        return []
    kinds = ("", *_FILES)
    found = [child for child in path.iterdir() if _VERSION.fullmatch(child.stem) and child.suffix in kinds]
    ranks = {child: kinds.index(child.suffix) for child in found}
    own = _file_of(path)
    if own and all(rank > kinds.index(own.suffix) for rank in ranks.values()):
        return []
    return [
        child
        for child in found
        if not any(other.stem == child.stem and 0 < ranks[other] < ranks[child] for other in found)
    ]


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or (folder / "saved_model.pb").is_file()


def _file_of(path: Path) -> Path | None:
    """The model file at a path, or the only one of its kind in a folder that is not a model itself."""
    if path.is_file():
        return path if path.suffix in _FILES else None
    files = () if _is_model(path) else [sorted(path.glob(f"*{suffix}")) for suffix in _FILES]
    found = next((of_a_kind for of_a_kind in files if of_a_kind), [])
    return found[0] if len(found) == 1 else None


def _found(path: Path, number: int | None) -> Found:
    if file := _file_of(path):
        of_run = file != path and file in (RunDirectory(path).model, RunDirectory(path).best)
        read = sorted(path.rglob("*")) if of_run else [file]  # it may be a run that is still copied here
        return Found(file, _FILES[file.suffix], number, _mark(*read))
    if path.is_file():
        raise ServeError(f"{path} cannot be served: give a run, a folder of versions, a model file or a SavedModel.")
    if (path / "config.json").is_file():
        run = open_finished(path)
        return Found(path, "run", number, _mark(run.model, path / "summary.json"))
    if (path / "saved_model.pb").is_file():
        return Found(path, "savedmodel", number, _mark(*sorted(path.rglob("*"))))
    raise ServeError(
        f"There is no run at {path}, no SavedModel, and no single model file ({', '.join(_FILES)}): nothing that can "
        "be served."
    )


def _mark(*files: Path) -> Mark:
    marks = []
    for file in files:
        if file.exists():
            about = file.stat()
            marks.append((file.name, about.st_ino, about.st_size, about.st_mtime_ns))
    return tuple(marks)
