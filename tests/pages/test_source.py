"""The source as the documentation describes it: its map, and the public names."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from pages.blocks import ROOT

import rudel


def test_every_module_is_on_the_map() -> None:
    page = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    told, folder = set(), Path()
    for cell in re.findall(
        r"^\| (\*\*\S+\*\*|`[^|]*`) \|", page.partition("\n| file |")[2].partition("\n## ")[0], re.MULTILINE
    ):
        folder = Path(cell.strip("*")) if cell.startswith("**") else folder
        told |= {folder / name for name in re.findall(r"`([^`]+)`", cell)}
    source = ROOT / "src/rudel"
    modules = {path.relative_to(source) for path in source.rglob("*.py") if path.name != "__init__.py"}
    assert modules - told == set()
    assert {path for path in told if not (source / path).exists()} == set()


OF_DOCSTRINGS = (
    "loop", "shipping", "runs", "session", "replicas", "replicas/codec", "replicas/diloco", "replicas/asynchronous",
    "mesh", "mesh/hosts", "planning", "training", "tuning",
)  # fmt: skip
"""Packages whose part of the map is made of the first lines of docstrings; they follow each other on the map."""


def test_the_map_says_what_docstrings_say(pytestconfig: pytest.Config) -> None:
    page = ROOT / "docs/design.md"
    text = page.read_text(encoding="utf-8")
    begin = text.index(f"| **{OF_DOCSTRINGS[0]}** |")
    end = text.index("\n| **", text.index(f"\n| **{OF_DOCSTRINGS[-1]}** |") + 1) + 1
    rows = "".join(row for folder in OF_DOCSTRINGS for row in _rows(ROOT / "src/rudel" / folder, folder))
    if pytestconfig.option.regenerate:
        page.write_text(text[:begin] + rows + text[end:], encoding="utf-8")
    else:
        told = "docs/design.md is not what docstrings say; pytest tests/pages/test_source.py --regenerate writes it"
        assert text[begin:end].splitlines() == rows.splitlines(), told


def _rows(folder: Path, name: str) -> list[str]:
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    first = f"| **{name}** | {_summary(folder / '__init__.py')} |\n"
    return [first, *(f"| `{path.name}` | {_summary(path)} |\n" for path in modules)]


def _summary(path: Path) -> str:
    """The first paragraph of a module's docstring, as a cell of a table."""
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    words = told.partition("\n\n")[0].replace("\n", " ").removesuffix(".")
    first = words.partition(" ")[0]
    is_name = (len(first) > 1 and first.isupper()) or words.startswith(("Ctrl-C", "Keras"))
    return words if is_name else words[0].lower() + words[1:]


def test_the_public_names_are_all_there_and_sorted() -> None:
    assert rudel.__all__ == sorted(set(rudel.__all__))
    assert all(getattr(rudel, name) is not None for name in rudel.__all__)
    assert set(rudel.__all__) <= set(dir(rudel))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rudel.nothing  # noqa: B018


@pytest.mark.parametrize("name", rudel.__all__)
def test_public_names_say_what_they_take_and_give(name: str) -> None:
    thing = getattr(rudel, name)
    told = inspect.getdoc(thing) or ""
    assert told
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    parameters = [parameter for parameter in inspect.signature(thing).parameters if parameter != "self"]
    arguments = re.split(r"\n\S", told.partition("Args:\n")[2])[0]
    assert [parameter for parameter in parameters if f"    {parameter}: " not in arguments] == []
    if inspect.isfunction(thing):
        assert "\nReturns:\n" in told
        assert "\nRaises:\n" in told


def test_private_parts_of_other_libraries_are_used_in_one_place() -> None:
    private = re.compile(r"(keras\.src|jax\._src|jaxlib\._|jax\.interpreters)(\.\w|$)")
    undocumented = re.compile(r"(distributed\.(core|comm|protocol)|asyncssh)\.")
    for path in (ROOT / "src/rudel").rglob("*.py"):
        if path.parent.name == "internals":
            continue
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = [f"{node.module}." for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        imported += [f"{alias.name}." for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        named = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        used = [name for name in imported + named if private.match(name)]
        used += [name for name in imported if undocumented.match(name) and name != "asyncssh."]
        assert used + _private_attributes(nodes) == [], f"{path} uses private parts"


def _private_attributes(nodes: list[ast.AST]) -> list[str]:
    """Attributes with an underscore of something else than the module's own classes."""
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    own |= {"_asdict", "_fields", "_replace", "_exit"}  # of named tuples and `os`, which document them
    return [
        ast.unparse(node)
        for node in nodes
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in own
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        if not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()")
    ]
