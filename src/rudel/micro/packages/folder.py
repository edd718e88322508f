"""Writes the files of a package."""

from collections.abc import Mapping
from pathlib import Path

from rudel.errors import CompileError
from rudel.files import written_atomically


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Writes files below a folder, which is made if it is not there; files of the same names are replaced.

    Args:
        folder: where.
        files: contents by path below the folder.

    Returns:
        The paths, in the order of `files`.

    Raises:
        CompileError: the folder cannot be written.
    """
    paths = [folder / name for name in files]
    try:
        for path, content in zip(paths, files.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_atomically(path) as file:
                file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise CompileError(f"{folder} cannot be written ({error.strerror}): give another folder.") from error
    return paths
