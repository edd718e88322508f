"""The order of the packages, from those that use no other to the command line; no imports in a circle.

Imports inside functions, imports for types alone, and strings that name modules count, too. A string that names a
package does not: it says where a file is.
"""

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from pages.blocks import ROOT

SOURCE = ROOT / "src"

ORDER = (
    "errors", "aliases", "array_types", "counted_context", "internals", "files", "limits", "cores", "freed_memory",
    "garbage_collection", "lab", "cache", "backend", "listening", "c_literals", "retry_policy", "terminal", "features",
    "shipping.user_code", "data", "recipes", "report", "micro", "cluster", "loop", "shipping", "runs", "session",
    "replicas.codec", "replicas", "replicas.diloco", "replicas.asynchronous", "mesh", "mesh.hosts", "mesh.mesh_options",
    "planning", "training", "tuning", "play", "export", "serve", "watch", "doctor", "cli", "__main__",
)  # fmt: skip
"""Packages and modules, each of which may use those before it. The longest name that a module begins with counts."""

NAMED_ONLY = {("rudel.cluster.probe", "rudel.replicas.replica_service")}
"""Modules that another names and does not use: a worker imports it before it is ready, the driver not."""

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


def imports(path: Path) -> Iterator[str]:
    """Modules of Rudel that a file imports, anywhere in it, or names in a string."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                found = [name.name for name in names]
            case ast.ImportFrom(module, names, 0):
                found = [f"{module}.{name.name}" for name in names]
            case ast.Constant(str(text)) if re.fullmatch(r"rudel(\.\w+)+", text) and not _is_package(text):
                found = [text]
            case _:
                continue
        for name in found:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name and name != "rudel":
                yield name


def _is_package(name: str) -> bool:
    return name in MODULES and MODULES[name].name == "__init__.py"


@functools.cache
def graph() -> dict[str, set[str]]:
    """What each module uses: read by the process that tests it, not by all that collect tests."""
    return {module: set(imports(path)) - {module} for module, path in MODULES.items() if module != "rudel"}


def place(module: str) -> int:
    """Where a module is in the order."""
    inner = module.removeprefix("rudel.")
    return ORDER.index(max((name for name in ORDER if f"{inner}.".startswith(f"{name}.")), key=len))


@pytest.mark.parametrize("name", ORDER)
def test_every_package_uses_only_those_before_it(name: str) -> None:
    assert any(place(module) == ORDER.index(name) for module in graph()), f"there is no {name}"
    later = [
        f"{module} uses {used}"
        for module in graph()
        if place(module) == ORDER.index(name)
        for used in graph()[module]
        if place(used) > place(module) and (module, used) not in NAMED_ONLY
    ]
    assert later == []


def test_nothing_is_imported_in_a_circle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"imported in a circle: {' <- '.join(error.args[1])}")


def test_a_module_that_is_named_is_there() -> None:
    named = {
        (module, text)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for text in re.findall(r"`(rudel(?:\.[a-z_]+)+)(?:\.[A-Z]\w*)?`|-m (rudel[.\w]+)", node.value)
        for text in text
        if text
    }
    assert {pair for pair in named if not _exists(pair[1])} == set()


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parent, _, last = name.rpartition(".")
    path = MODULES.get(name) or MODULES.get(parent)
    return path is not None and (name in MODULES or re.search(rf"\b{last}\b", path.read_text("utf-8")) is not None)
