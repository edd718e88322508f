"""The documentation is true: what README.md and docs/ tell a reader to do is done here, page by page.

A page runs in an empty folder of its own, from top to bottom. Its ```python blocks share one namespace in one process,
and its ```sh blocks run by `bash -e` with `rudel` in the PATH; what a block leaves behind, the next one finds. A
```python block that begins with a comment such as `# shapes.py` is written to that file and not run. A ```text block
directly below a block is what it prints, compared without regard to numbers, their units and spacing; `...` in it
stands for anything. Under a comment `<!-- exactly -->`, numbers count, too. Other blocks are only read, so none of them
may have a command in it that is not marked as below.

A block of commands that go on until Ctrl-C says by what line each of them shows that it is ready, in a comment directly
above it, `<!-- until: text -->`. They get Ctrl-C then, one after the other, and nothing that they say later counts.

A page that is there as a notebook too is run cell by cell from the notebook, which has to be what `docs/notebook.py`
makes of the page.

A page that trains on hosts finds two by the names that it uses, in a lab that its test starts; that needs Linux and
root. Where it names four, two do. What one page sets up there, the next one finds. A page about SLURM finds a SLURM
with one node, this computer.

A page about the Sign Language Digits Dataset finds a folder of that name, with made-up photographs in it; those about
words and movements find made-up recordings.

`rudel train quickdraw`, `rudel plan quickdraw` and `rudel data quickdraw` would fetch from the internet: where
such a command has no `--data`, it gets the address of a server of this test's own, which has made-up drawings of
everything.

So that a page takes seconds, its test makes some trainings shorter, and lets servers choose a free port: ADDED has the
options that it adds to commands, and INSTEAD what it runs in the place of others. Pages in SLOW run by --slow alone.
`sudo` changes nothing here.

A block that cannot be run says why in a comment directly above it, `<!-- not run: reason -->`, and is listed in
NOT_RUN.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from missing import skip_or_fail
from pages.blocks import PAGES, ROOT, blocks_of, cells_of
from pages.data import make_movements, make_signs, make_words
from pages.marks import ADDED, INSTEAD, ON_HOSTS, ON_SLURM, OWN_LAB, SIGNS, SLOW, SMALL, WHOLE_BATCHES
from processes import started
from slurm import slurm

from rudel.lab import Lab
from rudel.lab.lab import stop

_FETCHING = re.compile(r"\brudel (?:(?:train|plan) quickdraw|data quickdraw)\b(?![^\n]*--data)")
_OF_DIGITS = re.compile(r"\brudel (?:(?P<tune>tune)|train) digits\b(?![^\n]*--on)|\brudel train(?= --|$)", re.MULTILINE)
_NUMBER = re.compile(
    r"(?:\d+[ \u202f](?:min|h) (?=\d))?[-+]?\d[\d,.]*(?:e[-+−]?\d+)?(?:[ \u202f](?:[kMGT]?B|bytes|ms|s|min|h)\b)?"
)

_RUN_PAGE = """
import contextlib, io, json, os, re, signal, subprocess, sys, time, types

page = types.ModuleType("__main__")
sys.modules["__main__"] = page
outputs, began = [], time.monotonic()
environment = dict(os.environ)  # of the shell, which does not see what Python's blocks change of theirs
for block in json.load(sys.stdin):
    print(f"{time.monotonic() - began:5.1f} s: in line {block['line']}", file=sys.stderr, flush=True)
    name = re.match(r"# (\\w+\\.py)\\n", block["code"])
    if block["kind"] == "python" and name:
        open(name[1], "w").write(block["code"])
        outputs.append("")
    elif block["kind"] == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], f"line {block['line']} and below", "exec"), vars(page))
        outputs.append(printed.getvalue())
    elif block["until"]:
        outputs.append("")
        for command in block["code"].splitlines():
            shell = ["bash", "-e", "-c", "exec " + command]
            how = {"stdout": -1, "stderr": -2, "text": True, "env": environment, "start_new_session": True}
            with subprocess.Popen(shell, **how) as going:
                for line in going.stdout:
                    outputs[-1] += line
                    if block["until"] in line:
                        break
                os.killpg(going.pid, signal.SIGINT)
                rest = going.communicate()[0]
            if block["until"] not in outputs[-1] or going.returncode not in (0, 130, -signal.SIGINT):
                sys.exit(outputs[-1] + rest + f"exit code {going.returncode}")
    else:
        done = subprocess.run(
            ["bash", "-e", "-c", block["code"]], stdout=-1, stderr=-2, text=True, errors="replace", env=environment
        )
        outputs.append(done.stdout)
        if done.returncode:
            sys.exit(done.stdout + f"exit code {done.returncode}")
json.dump(outputs, sys.stdout)
"""


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name in SLOW)) for page in PAGES]
)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, homes: Callable[[], Path], drawings: str, environment: dict[str, str]
) -> None:
    if SIGNS in page.read_text(encoding="utf-8"):
        make_signs(tmp_path / SIGNS / "Dataset")
    if page.name == "word.md":
        make_words(tmp_path / "free-spoken-digit-dataset" / "recordings")
    if page.name == "movement.md":
        make_movements(tmp_path / "movements")
    on_hosts = page.name in {*ON_HOSTS, *OWN_LAB}
    if on_hosts and os.geteuid() != 0:
        skip_or_fail(f"{page.name} needs a lab, and that root: sudo env PATH=$PATH python -m pytest {__file__}")
    place = homes() if on_hosts else tmp_path
    with _hosts_for(page, tmp_path, place, environment) as found:
        _check_page(page, tmp_path, found, {"drawings": drawings, "homes": str(place)})


def _check_page(page: Path, tmp_path: Path, environment: dict[str, str], places: dict[str, str]) -> None:
    blocks = [b for b in blocks_of(page) if b.kind in ("python", "sh") and not b.reason]
    notebook = page.with_suffix(".ipynb")
    run = cells_of(notebook) if notebook.exists() else blocks
    todo = [
        {"line": b.line, "kind": b.kind, "code": _as_run(b.code, page.name, **places), "until": b.until} for b in run
    ]
    done = subprocess.run(
        ["python", "-c", _RUN_PAGE],
        input=json.dumps(todo), stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment, check=False,
        executable=shutil.which("python", path=environment["PATH"]),
    )  # fmt: skip
    assert done.returncode == 0, f"{page.name} fails in the last line that its standard error names"
    for block, output in zip(blocks, json.loads(done.stdout), strict=True):
        if block.output is not None:
            assert _fits(output, block.output, block.exact), f"{page.name}, line {block.line} prints:\n{output}"


def _as_run(code: str, page: str, drawings: str, homes: str) -> str:
    """The code of a block with what this test adds to its commands."""
    code = code.replace("\\\n", " ").replace("raspi1,raspi2,raspi3,raspi4", "raspi1,raspi2")
    for text, other in INSTEAD.get(page, {}).items():
        code = code.replace(text, other)
    for begin, options in ADDED.get(page, {}).items():
        options = options.format(homes=homes)
        whole = re.escape(begin.removesuffix("$")) + ("$" if begin.endswith("$") else r"(?![\w-])[^\n#&|>]*(?<! )")
        code = re.sub(whole, lambda found, o=options: f"{found[0]} {o}", code, flags=re.MULTILINE)
    code = _OF_DIGITS.sub(lambda command: f"{command[0]} {WHOLE_BATCHES}{'' if command['tune'] else ' ' + SMALL}", code)
    return _FETCHING.sub(lambda command: f"{command[0]} --data {drawings}", code)


def _fits(printed: str, expected: str, exact: bool = False) -> bool:
    printed, expected = (" ".join((text if exact else _NUMBER.sub("0", text)).split()) for text in (printed, expected))
    return re.fullmatch(re.escape(expected).replace(re.escape("..."), ".*"), printed) is not None


@contextlib.contextmanager
def _hosts_for(page: Path, folder: Path, homes: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Starts the hosts that a page names, if it names any; yields its environment, which says where they are."""
    with contextlib.ExitStack() as stack:
        if page.name in ON_SLURM:
            environment = environment | stack.enter_context(slurm())
        if page.name in OWN_LAB:
            stack.callback(stop, "raspi")
            environment = environment | {"RUDEL_SSH_CONFIG": str(homes / "ssh_config")}
        if page.name in ON_HOSTS:
            environment = environment | {"RUDEL_SSH_CONFIG": str(folder / "ssh_config")}
            stack.enter_context(_lab(ON_HOSTS[page.name], folder / "ssh_config", homes))
        yield environment


@contextlib.contextmanager
def _lab(cores: dict[str, float], config: Path, homes: Path) -> Iterator[None]:
    """Starts nodes that are reached by these names, with so many cores each."""
    with Lab(nodes=len(cores), cpu=tuple(cores.values()), rate=1000, latency=1, prefix="raspi", state=homes) as lab:
        text = lab.ssh_config.read_text()
        for node, name in zip(lab.hosts, cores, strict=True):
            text = re.sub(rf"^Host {node}\b", f"Host {name}", text, flags=re.MULTILINE)
        config.write_text(text)
        yield


def test_what_is_added_to_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDED, "x.md", {"rudel train a": "--steps 1", "rudel play": "--port 0", "rudel b$": "-v"})
    code = "rudel train a --epochs 3  # said\nrudel train a-b\nrudel train a &\n"
    code += "rudel play > x || true\nrudel b\nrudel b c\n"
    added = "rudel train a --epochs 3 --steps 1  # said\nrudel train a-b\nrudel train a --steps 1 &\n"
    assert _as_run(code, "x.md", "", "") == added + "rudel play --port 0 > x || true\nrudel b -v\nrudel b c\n"
    code = "rudel tune digits --run r\nrudel train\nrudel train digits --on a,b\n"
    added = (
        f"rudel tune digits {WHOLE_BATCHES} --run r\nrudel train {WHOLE_BATCHES} {SMALL}\nrudel train digits --on a,b\n"
    )
    assert _as_run(code, "x.md", "", "") == added


def test_manifest_of_kubernetes_starts_what_rudel_trains_on(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> None:
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    spec = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])["spec"]
    arguments = {part: spec[part]["spec"]["containers"][0]["args"] for part in ("scheduler", "worker")}
    assert [args[:2] for args in arguments.values()] == [["dask", "scheduler"], ["dask", "worker"]]
    file = tmp_path / "scheduler.json"  # Kubernetes says by a variable where it is
    own = ["--scheduler-file", str(file), "--port", "0", "--no-dashboard"]
    how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": tmp_path}
    with contextlib.ExitStack() as stack:
        stack.enter_context(started([*arguments["scheduler"], *own], env=environment, **how))
        for number in range(2):
            args = [f"worker-{number}" if "NAME" in word else word for word in arguments["worker"]]
            stack.enter_context(started([*args, *own[:2], *own[-1:]], env=environment, **how))
        train = "rudel new moons && rudel train moons.py --min-hosts 2 --epochs 1 --scheduler "
        until = f"until [ -s {file} ]; do sleep 0.05; done; "
        address = f'$(python -c \'import json; print(json.load(open("{file}"))["address"])\')'
        done = subprocess.run(
            ["bash", "-e", "-c", until + train + address],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hosts    2, " in done.stdout
    listens = spec["scheduler"]["spec"]["containers"][0]["ports"]
    ports = {port["name"]: port["containerPort"] for port in listens}
    assert {port["targetPort"]: port["port"] for port in spec["scheduler"]["service"]["ports"]} == ports
    assert ports["tcp-comm"] == 8786
