"""Every error that Rudel raises on purpose.

A message is one sentence that says what is wrong, where, and what to do. The command line prints it and exits with 2.

    RudelError
    ├── DataError            examples that cannot be trained on: lengths, labels, NaN, images
    │   └── DownloadError    examples that could not be fetched
    ├── RecipeError          a recipe that cannot be found, read or used
    │   └── OptionError      an option that a recipe or a command does not have, or a value it cannot take
    ├── ModelError           a Keras model, callback or metric that the compiled loop cannot train
    ├── NonFiniteError       the loss became NaN or infinite
    ├── RunError             a run directory that is missing, in use, unfinished or of another training
    │   └── CheckpointError  a checkpoint that could not be written or read
    ├── HostError            a host that cannot be reached, or cannot be used
    ├── ClusterError         workers that cannot be started, or that were all lost
    ├── ExportError          a run that cannot be brought into another form, or a tool for that which is missing
    ├── CompileError         a .tflite file that cannot be read, or cannot be compiled to C
    ├── ServeError           what cannot be served, an address that is taken, or a package that is missing
    ├── LabError             the pretend Wi-Fi cluster cannot be built, or has no such node
    ├── DoctorError          what a feature lacks on this computer
    └── UnsupportedError     a release of a library on whose private parts Rudel cannot rely
"""

import contextlib
import csv
import io
import shlex
from collections.abc import Iterator

_on_command_line = False


class RudelError(Exception):
    """Base class: a problem that the user can mend; the message says how."""


class DataError(RudelError):
    """Examples that cannot be trained on."""


class DownloadError(DataError):
    """Examples that could not be fetched."""


class RecipeError(RudelError):
    """A recipe that cannot be found, read or used."""


class OptionError(RecipeError):
    """An option that does not exist, or a value that it cannot take."""


class ModelError(RudelError):
    """A Keras model, callback or metric that the compiled loop cannot train."""


class NonFiniteError(RudelError):
    """The loss became NaN or infinite."""


class RunError(RudelError):
    """A run directory that is missing, in use, unfinished or of another training."""


class CheckpointError(RunError):
    """A checkpoint that could not be written or read."""


class HostError(RudelError):
    """A host that cannot be reached, or cannot be used."""


class ClusterError(RudelError):
    """Workers that cannot be started, or that were all lost."""


class LabError(RudelError):
    """The pretend Wi-Fi cluster cannot be built, or has no such node."""


class ExportError(RudelError):
    """A run that cannot be brought into another form, or a tool for that which is missing."""


class CompileError(RudelError):
    """A .tflite file that cannot be read, or cannot be compiled to C."""


class ServeError(RudelError):
    """A model that cannot be served, an address that is taken, or a package that is missing."""


class DoctorError(RudelError):
    """A feature lacks a requirement on this computer."""


class UnsupportedError(RudelError):
    """A release of a library on whose private parts Rudel cannot rely."""


def error_named(name: str) -> type[RudelError]:
    """The class of this name, as another process has sent it; `RudelError` itself where there is none.

    >>> error_named("ModelError"), error_named("annotations")
    (<class 'rudel.errors.ModelError'>, <class 'rudel.errors.RudelError'>)
    """
    known = {kind.__name__: kind for kind in globals().values() if isinstance(kind, type)}
    found = known.get(name, RudelError)
    return found if issubclass(found, RudelError) else RudelError


_ON_COMMAND_LINE = {
    "client": "scheduler",
    "keep": "keep_checkpoints",
    "patience": "host_timeout",
    "round_steps": "sync_every",
    "steps_between": "sync_every",
    "stop_early": "early_stopping",
}
"""Arguments that have another name on the command line."""


@contextlib.contextmanager
def speaking_options() -> Iterator[None]:
    """Lets messages name options of the command line, not arguments of Python, for as long as the block lasts."""
    global _on_command_line
    _on_command_line = True
    try:
        yield
    finally:
        _on_command_line = False


def option(name: str, value: object = None) -> str:
    """An argument in a message, as the user gives it: on the command line or in Python.

    Args:
        name: in Python.
        value: True for a flag; None where any will do.

    >>> option("resume", True), option("run"), option("run", "runs/first")
    ('`resume=True`', '`run=`', "`run='runs/first'`")
    >>> with speaking_options():
    ...     option("run", "runs/first day")
    "--run 'runs/first day'"
    """
    if _on_command_line:
        shown = f"--{_ON_COMMAND_LINE.get(name, name).replace('_', '-')}"
        return shown if value is None or value is True else f"{shown} {shlex.quote(str(value))}"
    return f"`{name}={'' if value is None else value if isinstance(value, int) else repr(str(value))}`"


def recipe_option(name: str, value: str | tuple[str, ...]) -> str:
    """An option of a recipe in a message, as the user gives it; see `option`.

    >>> recipe_option("target", "COLUMN")
    "`options={'target': 'COLUMN'}`"
    """
    if not _on_command_line:
        return f"`options={{{name!r}: {value!r}}}`"
    if isinstance(value, tuple):
        line = io.StringIO()
        csv.writer(line).writerow(value)
        value = line.getvalue().removesuffix("\r\n")
    return f"`--set {shlex.quote(f'{name}={value}')}`"
