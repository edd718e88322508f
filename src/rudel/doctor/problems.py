"""Problems that checks find, as sentences: a missing requirement, or a broken package."""

import importlib.metadata
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from rudel.errors import RudelError

Check = Callable[[], object]
"""Raises a RudelError, whose sentence says what is missing and the command that adds it."""


def problem(*checks: Check) -> str | None:
    """The sentence of the first check that fails; None where all pass.

    What is broken raises what it likes when it is imported: that becomes a sentence, too.
    """
    for check in checks:
        try:
            check()
        except RudelError as error:
            return str(error)
        except Exception as error:
            return _described(error)
    return None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


def _described(error: BaseException) -> str:
    module = _culprit(error)
    while error.__cause__ is not None:  # what was raised first, as by a library that another one is built on
        error = error.__cause__
        module = _culprit(error) or module
    said = first_line(error)
    if module is None:
        return f"It cannot be looked at ({type(error).__name__}: {said})."
    if module in sys.stdlib_module_names:
        return f"{module} cannot be imported ({said}): it is a part of Python, so install another Python."
    return (
        f"{module} cannot be imported ({said}): install it again by `pip install --force-reinstall {_package(module)}`."
    )


def _culprit(error: BaseException) -> str | None:
    """The outermost name of the module whose import failed; None where no import did."""
    if isinstance(error, ImportError) and error.name:
        return error.name.partition(".")[0]
    if isinstance(error, SyntaxError) and error.filename:
        source = Path(error.filename)
        for folder in filter(None, sys.path):
            if source.is_relative_to(folder):
                return source.relative_to(folder).parts[0].removesuffix(".py")
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not isinstance(error, ImportError) and all(frame.f_code.co_name != "<module>" for frame in frames):
        return None
    names = [frame.f_globals.get("__name__", "").partition(".")[0] for frame in reversed(frames)]
    return next((name for name in names if name not in (*sys.stdlib_module_names, "__main__")), None)


def _package(module: str) -> str:
    """The package, as it is installed, that a module is of."""
    file = re.compile(rf"^{re.escape(module)}(/|\.py,|\.[^/,]+\.(so|pyd),)", re.MULTILINE)
    for package in importlib.metadata.distributions():  # `packages_distributions` looks at every file of all packages
        owns = file.search(package.read_text("RECORD") or "")
        if (owns or module in (package.read_text("top_level.txt") or "").split()) and package.name:
            return package.name
    return module
