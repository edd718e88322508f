"""The documentation as a site: every link leads somewhere, and the reference has everything that is public."""

import doctest
import importlib.util
import re
import subprocess
from pathlib import Path

import rudel
import rudel.errors

ROOT = Path(__file__).parents[1]


BUILD = "import os; os.environ['NO_MKDOCS_2_WARNING'] = '1'; from mkdocs.__main__ import cli; cli()"
"""`mkdocs`, for a process that begins with everything imported: the reference imports it."""


def test_the_site_is_whole(tmp_path: Path, warm_python: str) -> None:
    done = subprocess.run(
        [warm_python, "-c", BUILD, "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    documented = set(re.findall(r'<h2 id="rudel\.[\w.]*?(\w+)"', reference))
    assert documented == set(rudel.__all__)
    errors = {
        name
        for name, thing in vars(rudel.errors).items()
        if getattr(thing, "__module__", "") == "rudel.errors" and isinstance(thing, type)
    }
    also = set(re.findall(r'<h[34] id="rudel\.[\w.]*?(\w+)"', reference))
    assert errors | {"TrainedRun", "Exported", "Batches", "Stream", "Processes"} <= also | documented
    taught = {"Lab", "TwoTower", "compile_model", "convert", "decode", "random_flip", "write_examples"}
    assert taught <= also | documented
    commands = (tmp_path / "commands" / "index.html").read_text(encoding="utf-8")
    for command, option in (("rudel train", "--strategy"), ("rudel hosts setup", "--minimal"), ("rudel new", "NAME")):
        assert f"<code>{command}</code>" in commands
        assert option in commands
    modules = {path.name for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"}
    assert modules == set(re.findall(r"<code>(\w+\.py)</code>", (tmp_path / "map" / "index.html").read_text("utf-8")))
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    navigated = set(re.findall(r"(\w[\w-]*)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert pages <= navigated
    outside = [
        f"{page}: {address}"
        for page in tmp_path.rglob("*.html")
        for address in re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="(https?:[^"]*)"', page.read_text("utf-8"))
    ]
    assert outside == []
    dead = [
        f"{page.relative_to(tmp_path)}: {link}"
        for page in tmp_path.rglob("*.html")
        if page.name != "404.html"  # whose links begin at the address of the site
        for link in re.findall(r'<a[^>]* href="([^"#:]+)["#]', page.read_text("utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_links_are_mended() -> None:
    spec = importlib.util.spec_from_file_location("site_of_rudel", ROOT / "docs" / "site.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tried = doctest.testmod(module)
    assert tried.attempted
    assert not tried.failed
