"""Sources of `rudel serve`: runs, folders of versions, and exported models, and when these have changed.

RUN/                a run that is finished; trained again, it is the next version
FOLDER/1, 2, ...    versions, each a run, a SavedModel, a .tflite file or a folder with one
MODEL.tflite        as `rudel export` makes it, or from elsewhere
SAVEDMODEL/         the same
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rudel.errors import RunError, ServeError
from rudel.files import expanded
from rudel.serve.runtimes.runtime import Loaded

Kind = Literal["run", "litert", "savedmodel"]
Mark = tuple[tuple[str, int, int, int], ...]
"""Names, inodes, sizes and times of the files that a model is read from: another mark means another model."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Source:
    """A model that is to be served.

    Args:
        name: what clients call it.
        path: where it is.
        file: the model file that `path` was made of, if any.
        problem: why it cannot be served, as far as that is known already.
    """

    name: str
    path: Path
    file: Path | None = None
    problem: RunError | None = None


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
        own = path.resolve().name
        name = name or (path.stem if path.suffix in (".tflite", ".keras", ".h5") else own)
        if not _NAME.fullmatch(name):
            raise ServeError(
                f"`{name}` cannot be the name of a model: give one by NAME={place}, of letters and digits."
            )
        if any(source.name == name for source in sources):
            raise ServeError(f"Two models would be called `{name}`: give one of them another name by NAME={place}.")
        sources.append(Source(name, path))
    return sources


def find_versions(source: Source) -> list[Found]:
    """The versions of a model that can be loaded now, oldest first; without those that are not finished.

    Raises:
        ServeError: there is nothing that could be one.
        RunError: it is a run that is not finished.
    """
    path = source.path
    if source.problem:
        raise source.problem
    if not path.exists():
        raise ServeError(
            f"There is nothing at {path}: give a run, a folder of versions, a .tflite file or a SavedModel."
        )
    numbered = _numbered(path) if path.is_dir() else []
    if not numbered:
        return [_found(path, None)]
    found = []
    problems: list[Exception] = []
    for child in numbered:
        try:
            found.append(_found(child, int(child.stem)))
        except (ServeError, RunError) as error:
            problems.append(error)
    if not found and problems:
        raise problems[0]
    return sorted(found, key=lambda each: each.number or 0)


def numbers_there(source: Source) -> set[int]:
    """Numbers of the versions in a folder, also of those that cannot be loaded now, as a run that is resumed."""
    return {int(child.stem) for child in _numbered(source.path)} if source.path.is_dir() else set()


def load(found: Found, most: int) -> Loaded:
    """Loads a version.

    Args:
        found: where it is.
        most: the largest batch.

    Raises:
        RudelError: it cannot be loaded.
    """
    if found.kind == "run":
        from rudel.serve.runtimes.keras_runtime import load_run

        return load_run(found.path, most)
    if found.kind == "litert":
        from rudel.serve.runtimes.litert_runtime import load_litert

        return load_litert(found.path)
    from rudel.serve.runtimes.savedmodel_runtime import load_savedmodel

    return load_savedmodel(found.path)


def _numbered(path: Path) -> list[Path]:
    """The versions in a folder; none in a folder that is a model itself."""
    if (path / "config.json").is_file() or (path / "saved_model.pb").is_file():
        return []
    return [child for child in path.iterdir() if _VERSION.fullmatch(child.stem) and child.suffix in ("", ".tflite")]


def _found(path: Path, number: int | None) -> Found:
    if path.is_file():
        if path.suffix != ".tflite":
            raise ServeError(
                f"{path} cannot be served: give a run, a folder of versions, a .tflite file or a SavedModel."
            )
        return Found(path, "litert", number, _mark(path))
    if (path / "config.json").is_file():
        from rudel.runs.run_directory import open_finished

        run = open_finished(path)
        return Found(path, "run", number, _mark(run.model, path / "summary.json"))
    if (path / "saved_model.pb").is_file():
        return Found(path, "savedmodel", number, _mark(*sorted(path.rglob("*"))))
    files = sorted(path.glob("*.tflite"))
    if len(files) == 1:
        return Found(files[0], "litert", number, _mark(files[0]))
    raise ServeError(
        f"There is no run at {path}, no SavedModel, and no single .tflite file: nothing that can be served."
    )


def _mark(*files: Path) -> Mark:
    marks = []
    for file in files:
        if file.exists():
            about = file.stat()
            marks.append((file.name, about.st_ino, about.st_size, about.st_mtime_ns))
    return tuple(marks)
