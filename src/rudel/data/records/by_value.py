"""Code of the user's that is pickled by value, for processes and hosts that cannot import it."""

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

_PACKAGES = {"site-packages", "dist-packages"}
"""Folders in which packages are installed."""

_STANDARD = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}


@contextlib.contextmanager
def modules_by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Lets cloudpickle pickle code of these modules by value, for as long as the block lasts.

    Modules that are registered with cloudpickle already, as by the user, stay registered afterwards.
    """
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    new = {module.__name__: module for module in modules if module.__name__ not in before}
    for module in new.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for name in new.keys() & cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(new[name])


def own_modules() -> list[ModuleType]:
    """The imported modules that are files of the user's: those that are not where packages are installed."""
    return [module for module in list(sys.modules.values()) if _is_own(module)]


def _is_own(module: ModuleType) -> bool:
    path, name = getattr(module, "__file__", None), getattr(module, "__name__", "")
    if not path or sys.modules.get(name) is not module or name.partition(".")[0] in ("rudel", "__main__"):
        return False
    where = Path(path).resolve()
    return not _PACKAGES.intersection(where.parts) and not any(where.is_relative_to(place) for place in _STANDARD)
