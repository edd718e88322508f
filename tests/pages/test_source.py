"""The source as the documentation describes it: what its map is made of, and the public names."""

import ast
import inspect
import re

import pytest
from pages.blocks import ROOT

import rudel


def test_modules_begin_with_a_sentence_for_the_map() -> None:
    first = {
        path: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        for path in (ROOT / "src/rudel").rglob("*.py")
    }
    assert [path for path, sentence in first.items() if not 10 < len(sentence) < 300] == []


def test_the_public_names_are_all_there_and_sorted() -> None:
    assert rudel.__all__ == sorted(set(rudel.__all__))
    assert all(getattr(rudel, name) is not None for name in rudel.__all__)
    assert set(rudel.__all__) <= set(dir(rudel))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rudel.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", rudel.__all__)
def test_public_names_say_what_they_take_and_give(name: str) -> None:
    thing = getattr(rudel, name)
    docstring = inspect.getdoc(thing) or ""
    assert docstring
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    parameters = [parameter for parameter in inspect.signature(thing).parameters if parameter != "self"]
    arguments = re.split(r"\n\S", docstring.partition("Args:\n")[2])[0]
    assert [parameter for parameter in parameters if f"    {parameter}: " not in arguments] == []
    if inspect.isfunction(thing):
        assert "\nReturns:\n" in docstring
        assert "\nRaises:\n" in docstring


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
