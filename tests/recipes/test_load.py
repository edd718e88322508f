"""Recipes in files: which modules they see."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rudel.recipes.load import find_recipe

RECIPE = """
from {module} import NAME
def data(): return NAME
def model(dataset): ...
"""


@pytest.fixture(autouse=True)
def imports_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def recipe(folder: Path, module: str, beside: dict[str, str]) -> str:
    for name, text in beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "mine.py").write_text(RECIPE.format(module=module))
    return str(folder / "mine.py")


@pytest.mark.parametrize("file", ["near.py", "near/__init__.py"])
def test_a_recipe_sees_the_module_beside_itself_and_not_its_namesake_elsewhere(tmp_path: Path, file: str) -> None:
    first = recipe(tmp_path / "one", "near", {file: "NAME = 'one'"})
    second = recipe(tmp_path / "two", "near", {file: "NAME = 'two'"})
    read = [find_recipe(path).module.data() for path in (first, second, first)]
    assert read == ["one", "two", "one"]


def test_parts_of_a_namesake_are_forgotten_with_it(tmp_path: Path) -> None:
    package = {"near/__init__.py": "", "near/part.py": "NAME = 'one'"}
    first = recipe(tmp_path / "one", "near.part", package)
    second = recipe(tmp_path / "two", "near.part", package | {"near/part.py": "NAME = 'two'"})
    assert [find_recipe(path).module.data() for path in (first, second)] == ["one", "two"]


def test_a_module_beside_is_read_once_and_one_that_is_no_neighbour_stays(tmp_path: Path) -> None:
    path = recipe(tmp_path, "near", {"near.py": "NAME = object()", "json.py": "raise SystemExit"})
    import json

    assert find_recipe(path).module.data() is find_recipe(path).module.data()
    assert sys.modules["json"] is json
