"""What is told of packages that cannot be imported."""

import importlib
import sys
from pathlib import Path

import pytest

from rudel.doctor.problems import problem
from rudel.errors import ExportError


def refuse() -> None:
    raise ExportError("There is no oven: buy one.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_first_check_that_fails_is_told() -> None:
    assert problem() is None
    assert problem(lambda: None, refuse, lambda: 1 / 0) == "There is no oven: buy one."


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('\\n\\nbuilt for another processor\\nand much more')", "built for another processor"),
        ("raise ImportError('libx.so: cannot open', name='broken_parts.inner')", "libx.so: cannot open"),
        ("raise ImportError('no name')", "no name"),
        ("def (:", "invalid syntax"),
        ("raise ValueError", "ValueError"),
        ("import json\njson.loads('{')", "Expecting property name"),
        ("try: import no_such_module\nexcept ImportError: raise ValueError('without')", "without"),
    ],
    ids=["an error", "a library", "no name", "syntax", "no words", "an error of Python's own", "after another"],
)
def test_a_broken_package_is_told_by_its_name(folder: Path, code: str, reason: str) -> None:
    (folder / "broken_parts").mkdir()
    (folder / "broken_parts" / "__init__.py").write_text("import broken_parts.inner")
    (folder / "broken_parts" / "inner.py").write_text(code)
    message = problem(lambda: importlib.import_module("broken_parts")) or ""
    assert message.startswith(f"broken_parts cannot be imported ({reason}")
    assert message.endswith("install it again by `pip install --force-reinstall broken_parts`.")
    assert "\n" not in message
    sys.modules.pop("broken_parts", None)


def test_the_package_that_another_one_needs_is_the_broken_one(folder: Path) -> None:
    (folder / "wrapping_parts.py").write_text(
        "try:\n    import lower_parts\nexcept ImportError as error:\n    raise ImportError('READ THIS') from error"
    )
    (folder / "lower_parts.py").write_text("raise ImportError('libx.so: cannot open')")
    message = problem(lambda: importlib.import_module("wrapping_parts")) or ""
    assert message.startswith("lower_parts cannot be imported (libx.so: cannot open)")


def test_a_module_has_the_name_of_its_package(folder: Path) -> None:
    message = problem(lambda: importlib.import_module("yaml.no_such_part")) or ""
    assert "`pip install --force-reinstall PyYAML`" in message


def test_a_part_of_python_is_not_in_the_index(folder: Path) -> None:
    def ask() -> None:
        raise ModuleNotFoundError("No module named '_lzma'", name="_lzma")

    assert problem(ask) == (
        "_lzma cannot be imported (No module named '_lzma'): it is a part of Python, so install another Python."
    )


def test_other_errors_are_told_as_what_they_are() -> None:
    assert problem(lambda: 1 / 0) == "It cannot be looked at (ZeroDivisionError: division by zero)."


@pytest.mark.parametrize("file", ["oven/__init__.py", "oven.py", "oven.cpython-311.so"])
def test_the_package_of_a_module_may_have_another_name(folder: Path, file: str) -> None:
    for name, record in (("oven-gloves", "oven_gloves/__init__.py,,\nof/oven.py,,\n"), ("Baking", f"{file},,\n")):
        metadata = folder / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "RECORD").write_text(record)

    def broken() -> None:
        raise ImportError("no heat", name="oven.heater")

    assert (problem(broken) or "").endswith("`pip install --force-reinstall Baking`.")
