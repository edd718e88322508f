"""What the pages say is so, as far as that can be seen without running them."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pages.blocks import PAGES, ROOT, blocks_of, cells_of
from pages.marks import MADE, NOT_RUN

import rudel
from rudel.recipes.template import write_template

_COMMAND = re.compile(
    r"^ *(?:\$ |(?:\w+=\S* +)*(?:rudel|sudo|python3?|pip3?|dask|jupyter|tensorboard|arduino-cli|west|cmake|"
    r"make|cc|gcc|ssh|ssh-\w+|scp|rsync|tmux|srun|sbatch|mpirun|docker|kubectl|helm|gcloud|apt|apt-get|git|curl|wget|"
    r"systemd-inhibit|caffeinate|cd) (?=\S)|nvidia-smi$|tmux$|export +\w+=)",
    re.MULTILINE,
)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MADE], ids=lambda page: page.name)
def test_a_command_is_run_or_says_why_not(page: Path) -> None:
    read = [block for block in blocks_of(page) if block.kind not in ("python", "sh") and not block.reason]
    assert [block.line for block in read if _COMMAND.search(block.code + (block.output or ""))] == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("rudel train\n", True),
        ("# first\n$ anything else\n", True),
        ("  A=1 B=2 rudel train &\n", True),
        ("export A='1'\n", True),
        ("ssh -L 8488:localhost:8488 desktop\n", True),
        ("Host raspi1\n  User pi\n", False),
        ("run      runs/digits\n", False),
        ("rudel          0.1.0\n", False),
    ],
)
def test_what_is_a_command(text: str, is_one: bool) -> None:
    assert bool(_COMMAND.search(text)) == is_one


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_its_page(notebook: Path) -> None:
    page = notebook.with_suffix(".md")
    command = [sys.executable, ROOT / "docs/notebook.py", "--check", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    blocks = [b for b in blocks_of(page) if b.kind in ("python", "sh") and not b.reason]
    cells = cells_of(notebook)
    assert [(cell.kind, cell.code) for cell in cells] == [(block.kind, block.code) for block in blocks]
    shown = [None if "..." in (block.output or "") else block.output for block in blocks]
    assert [cell.output for cell in cells] == shown


def test_every_block_that_is_not_run_is_known() -> None:
    marked = {(page.name, block.code.strip()) for page in PAGES for block in blocks_of(page) if block.reason}
    assert marked == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_found(page: Path) -> None:
    fences = re.findall(r"^ *(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = blocks_of(page)
    assert len(fences) == 2 * (len(blocks) + sum(block.output is not None for block in blocks))
    assert {block.kind for block in blocks} <= {"python", "sh", "text", "json", "yaml", "cpp", "js", ""}


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks/README.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(page)):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_file_and_key_of_a_run_is_described(tmp_path: Path) -> None:
    recipe = write_template("moons", tmp_path)
    run = rudel.train_recipe(str(recipe), epochs=1, run=tmp_path / "run").path
    text = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
    config, summary = (json.loads((run / name).read_text()) for name in ("config.json", "summary.json"))
    record = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    inner = {key for name in ("model", "data") for key in config[name]}
    inner |= {re.sub(r"^option .*", "option", key) for key in config["identity"]}
    stored = set(np.load(run / "predictions.npz").files)
    names = {path.name for path in run.iterdir()} | {*config, *summary, *record, *inner, *stored}
    assert sorted(name for name in names if f"`{name}" not in text) == []


def test_the_evaluation_is_made_by_its_last_command(tmp_path: Path) -> None:
    page = ROOT / "docs/results.md"
    (command,) = re.findall(r"^python (benchmarks/evaluate.py .* --page .*)$", page.read_text(encoding="utf-8"), re.M)
    (tmp_path / "docs").mkdir()
    for name in ("evaluation.json", "results.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    words = command.replace("benchmarks", str(ROOT / "benchmarks")).split()
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("evaluation.csv", "results.md"):
        assert (tmp_path / "docs" / name).read_bytes() == (ROOT / "docs" / name).read_bytes()
    assert list((tmp_path / "docs/images").glob("*.svg"))


def test_pages_that_train_the_same_net_say_the_same_of_it() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("micro.md", "sine.md")]
    compiled = [
        re.findall(r"^(\d+) multiplications .*, (\d+) bytes .*, (\d+) bytes of RAM", page, re.M) for page in pages
    ]
    assert compiled[0] == compiled[1]
    assert len(compiled[0]) == 1


def test_troubleshooting_quotes_what_is_really_said() -> None:
    messages = " ".join(_sentences(path) for path in (ROOT / "src/rudel").rglob("*.py"))
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = [
        quote for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for quote in re.findall(r"`([^`]+)`", row)
    ]
    assert len(quoted) > 15
    assert [quote for quote in quoted if quote not in messages] == []


def _sentences(path: Path) -> str:
    """All texts of a file but docstrings; what is put into them when they are said is left out."""
    texts = []
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            texts.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            texts.append("".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values))
    return " ".join(" ".join(texts).split())
