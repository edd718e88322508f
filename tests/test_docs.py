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

A page about the Sign Language Digits Dataset finds a folder of that name, with made-up photographs in it.

`rudel train montagsmaler`, `rudel plan montagsmaler` and `rudel data quickdraw` would fetch from the internet: where
such a command has no `--data`, it gets the address of a server of this test's own, which has made-up drawings of
everything.

So that a page takes seconds, its test makes some trainings shorter, and lets servers choose a free port: ADDED has the
options that it adds to commands. `sudo` changes nothing here.

A block that cannot be run says why in a comment directly above it, `<!-- not run: reason -->`, and is listed in
NOT_RUN.
"""

import ast
import contextlib
import functools
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import yaml
from missing import skip_or_fail
from PIL import Image, ImageDraw
from processes import started
from slurm import slurm

import rudel
from rudel.cache import cache_folder
from rudel.lab import Lab
from rudel.lab.lab import stop
from rudel.recipes.template import write_template

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NOT_RUN = {
    (
        "lab.md",
        "sudo apt-get install debootstrap qemu-user-static\nsudo rudel lab up --nodes 2 --arch x86_64,arm64 --cpu 1",
    ),
    (
        "cluster.md",
        "rudel hosts run raspi1,raspi2 -- .rudel/env/bin/python -m pip install torch==2.13.0\n"
        "KERAS_BACKEND=torch rudel train digits --on raspi1,raspi2",
    ),
    ("hosts.md", "rudel hosts run raspi1,raspi2 -- .rudel/env/bin/python -m pip install soundfile"),
    (
        "sine.md",
        "arduino-cli core install arduino:mbed_nano\n"
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 --library sine "
        "sine/examples/sine",
    ),
    ("signs.md", "git clone https://github.com/ardamavi/Sign-Language-Digits-Dataset"),
    ("mesh.md", "srun -n 2 rudel train digits --strategy mesh --epochs 2 --run runs/by-slurm"),
    ("mesh.md", "rudel train digits --on raspi1,raspi2,raspi3,raspi4 --strategy mesh --run runs/on-hosts"),
    ("watch.md", "ssh -L 8488:localhost:8488 desktop"),
    (
        "photographs.md",
        "rudel data images shapes --out small-records --max-side 64 --scheduler tcp://192.168.1.2:8786",
    ),
    (
        "gpu.md",
        """nvidia-smi
python3 -m venv ~/rudel-env
. ~/rudel-env/bin/activate
pip install . "jax[cuda13]\"""",
    ),
    (
        "gpu.md",
        "rudel train signs --data sign-records --precision mixed_bfloat16\n"
        "rudel predict runs/signs Sign-Language-Digits-Dataset/Dataset/7/IMG_1125.JPG",
    ),
    ("gpu.md", "rudel train signs --data sign-records --precision mixed_bfloat16 --strategy mesh --batch-size 128"),
    ("gpu.md", "python benchmarks/gpu.py --json gpu.json"),
    ("laptop-and-gpu-box.md", "sudo apt-get install openssh-server python3\nnvidia-smi"),
    ("laptop-and-gpu-box.md", "ssh-keygen -t ed25519\nssh-copy-id you@192.168.1.20"),
    (
        "laptop-and-gpu-box.md",
        "rudel hosts run gpubox -- .rudel/env/bin/python -m pip install "
        "\"jax[cuda13]==$(python -c 'import jax; print(jax.__version__)')\"\n"
        "rudel hosts run gpubox -- .rudel/env/bin/python -c 'import jax; print(jax.devices())'",
    ),
    ("laptop-and-gpu-box.md", "ssh gpubox\ntmux\n.rudel/env/bin/rudel train mine.py --run runs/mine"),
    (
        "slurm.md",
        """docker build -t registry.example.com/rudel:0.1.0 .
docker push registry.example.com/rudel:0.1.0
helm install --repo https://helm.dask.org --create-namespace -n dask-operator --generate-name dask-kubernetes-operator
kubectl apply -f rudel.yaml""",
    ),
    (
        "slurm.md",
        """kubectl port-forward service/rudel-scheduler 8786 &
rudel train digits --scheduler tcp://localhost:8786 --min-hosts 4 --run runs/on-kubernetes
kubectl delete daskcluster rudel""",
    ),
    (
        "tpu.md",
        """gcloud compute tpus tpu-vm create rudel --zone=us-west4-a \\
    --accelerator-type=v5litepod-4 --version=v2-alpha-tpuv5-lite
gcloud compute tpus tpu-vm ssh rudel --zone=us-west4-a""",
    ),
    (
        "tpu.md",
        """sudo apt-get update && sudo apt-get install -y python3.11 python3.11-venv git
python3.11 -m venv ~/rudel-env
. ~/rudel-env/bin/activate
pip install . "jax[tpu]"
python -c "import jax; print(jax.devices())\"""",
    ),
    (
        "tpu.md",
        """git clone https://github.com/ardamavi/Sign-Language-Digits-Dataset
rudel data images Sign-Language-Digits-Dataset/Dataset --out sign-records
rudel train signs --data sign-records --precision mixed_bfloat16 --strategy mesh --batch-size 128
rudel predict runs/signs Sign-Language-Digits-Dataset/Dataset/7/IMG_1125.JPG""",
    ),
    (
        "tpu.md",
        """gcloud compute tpus tpu-vm scp --recurse rudel:runs/signs runs/signs --zone=us-west4-a
gcloud compute tpus tpu-vm delete rudel --zone=us-west4-a""",
    ),
    (
        "tpu.md",
        """gcloud compute tpus tpu-vm ssh rudel --zone=us-west4-a --worker=all --command="
    . ~/rudel-env/bin/activate
    rudel train signs --data gs://bucket/sign-records --precision mixed_bfloat16 --strategy mesh --batch-size 512\"""",
    ),
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/rudel train"),
    (
        "README.md",
        "python3 -m venv .venv-dev && .venv-dev/bin/pip install -e '.[dev]' && .venv-dev/bin/python -m pytest",
    ),
}
"""The blocks that may say that they are not run."""

RASPIS = {"raspi1": 0.8, "raspi2": 0.8}
ON_HOSTS = {
    "README.md": RASPIS,
    "hosts.md": RASPIS,
    "laptop-and-gpu-box.md": {"laptop": 0.8, "gpubox": 1.6},
    "photographs.md": RASPIS,
    "plan.md": RASPIS,
}
"""Pages that find hosts: what these are called there, and how many cores each has."""

OWN_LAB = {"cluster.md", "lab.md"}
"""Pages that start a lab themselves."""

ON_SLURM = {"slurm.md"}
"""Pages that submit jobs."""

SIGNS = "Sign-Language-Digits-Dataset"
"""A data set of photographs, and the folder that a clone of it is."""

ADDED: dict[str, dict[str, str]] = {
    "README.md": {
        "rudel train digits": "--epochs 2",
        "rudel train signs": "--steps 2 --set side=32 --set augmentation=none",
        "rudel train montagsmaler": "--steps 1024",
        "rudel serve": "--port 0",
        "rudel play": "--port 0 --no-browser",
    },
    "cluster.md": {
        "rudel lab up --background": "--cpu 0.8 --rate 1000 --latency 1 --state {homes}",
        "rudel train digits --on": "--epochs 2",
    },
    "first-steps.md": {
        "rudel train$": "--epochs 20",
        "rudel train digits --set filters=8 --set": "--epochs 1",
        "rudel train montagsmaler$": "--steps 1024",
        "rudel train montagsmaler --set": "--steps 100",
        "rudel train montagsmaler --set net=cnn": "--steps 5 --set drawings=100",
    },
    "lab.md": {"sudo rudel lab stats": "--prefix raspi", "sudo rudel lab down": "--prefix raspi"},
    "laptop-and-gpu-box.md": {
        "rudel train digits --on laptop,gpubox": "--epochs 2",
        "rudel hosts run gpubox -- .rudel/env/bin/rudel train": "--epochs 1",
    },
    "mesh.md": {
        "rudel train digits --devices 4": "--epochs 1",
        "rudel train digits --devices 2": "--epochs 2",
        "rudel train montagsmaler": "--steps 64",
        "rudel train digits --strategy mesh": "--steps 4",
    },
    "plan.md": {"rudel train montagsmaler": "--steps 512"},
    "play.md": {"python3 -m http.server": "0"},
    "export.md": {"rudel train digits": "--epochs 2"},
    "runs.md": {"rudel train digits --run runs/killed": "--epochs 20"},
    "signs.md": {
        "rudel train signs --data sign-records$": "--epochs 4",
        "rudel train signs --data few": "--epochs 1",
    },
    "slurm.md": {"mpirun": "--epochs 1"},
    "recommend.md": {
        "rudel train recommend": "--set users=1000 --set items=1000 --set tastes=4 --set held_out=200 --epochs 1"
    },
}
"""Options that are added to commands, by page; commands are known by how they begin, or, with a `$`, by all of it."""

MADE = {"evaluation.md"}
"""Pages that a program writes; a test of their own runs their commands."""

_BLOCK = re.compile(
    r"(?:^<!-- (?:not run: (?P<reason>[^\n]+)|until: (?P<until>[^\n]+)) -->\n+)?"
    r"^```(?P<kind>\w*)\n(?P<code>.*?)^```\n"
    r"(?:\n*^(?:<!-- (?P<exact>exactly) -->\n)?```text\n(?P<told>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(
    r"^ *(?:\$ |(?:\w+=\S* +)*(?:rudel|sudo|python3?|pip3?|dask|jupyter|tensorboard|arduino-cli|west|cmake|"
    r"make|cc|gcc|ssh|ssh-\w+|scp|rsync|tmux|srun|sbatch|mpirun|docker|kubectl|helm|gcloud|apt|apt-get|git|curl|wget|"
    r"systemd-inhibit|caffeinate|cd) (?=\S)|nvidia-smi$|tmux$|export +\w+=)",
    re.MULTILINE,
)
_FETCHING = re.compile(r"\brudel (?:(?:train|plan) montagsmaler|data quickdraw)\b(?![^\n]*--data)")
_NUMBER = re.compile(
    r"(?:\d+[ \u202f](?:min|h) (?=\d))?[-+]?\d[\d,.]*(?:e[-+]?\d+)?(?:[ \u202f](?:[kMGT]?B|bytes|ms|s|min|h)\b)?"
)

_RUN_PAGE = """
import contextlib, io, json, os, re, signal, subprocess, sys, time, types

page = types.ModuleType("__main__")
sys.modules["__main__"] = page
told, began = [], time.monotonic()
for block in json.load(sys.stdin):
    print(f"{time.monotonic() - began:5.1f} s: in line {block['line']}", file=sys.stderr, flush=True)
    name = re.match(r"# (\\w+\\.py)\\n", block["code"])
    if block["kind"] == "python" and name:
        open(name[1], "w").write(block["code"])
        told.append("")
    elif block["kind"] == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], f"line {block['line']} and below", "exec"), vars(page))
        told.append(printed.getvalue())
    elif block["until"]:
        told.append("")
        for command in block["code"].splitlines():
            shell = ["bash", "-e", "-c", "exec " + command]
            with subprocess.Popen(shell, stdout=-1, stderr=-2, text=True, start_new_session=True) as going:
                for line in going.stdout:
                    told[-1] += line
                    if block["until"] in line:
                        break
                os.killpg(going.pid, signal.SIGINT)
                rest = going.communicate()[0]
            if block["until"] not in told[-1] or going.returncode not in (0, 130, -signal.SIGINT):
                sys.exit(told[-1] + rest + f"exit code {going.returncode}")
    else:
        done = subprocess.run(["bash", "-e", "-c", block["code"]], stdout=-1, stderr=-2, text=True, errors="replace")
        told.append(done.stdout)
        if done.returncode:
            sys.exit(done.stdout + f"exit code {done.returncode}")
json.dump(told, sys.stdout)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Args:
        line: where it is.
        kind: the word behind its fence.
        code: its content.
        told: what it should print, or None.
        reason: why it is not run, or None.
        until: what the commands print when they may be ended, or None where they end by themselves.
        exact: whether the numbers that it prints are always the same.
    """

    line: int
    kind: str
    code: str
    told: str | None
    reason: str | None
    until: str | None = None
    exact: bool = False


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text[: found.start("code")].count("\n"),
            *found.group("kind", "code", "told", "reason", "until"),
            exact=bool(found["exact"]),
        )
        for found in _BLOCK.finditer(text)
    ]


def cells_of(notebook: Path) -> list[Block]:
    """The code cells of a notebook, with the outputs that it shows."""
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    found = []
    for number, cell in enumerate(cells):
        first, _, rest = (code := "".join(cell["source"]) + "\n").partition("\n")
        kind, code = ("sh", rest) if first == "%%sh" else ("python", code)
        told = "".join(line for output in cell["outputs"] for line in output["text"])
        found.append(Block(number, kind, code, told or None, None))
    return found


class _Drawings(BaseHTTPRequestHandler):
    """Any class of drawings there could be, as Quick, Draw!'s bucket would serve it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = _file_of_drawings(unquote(self.path).rpartition("/")[2])
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        self.send_response(206)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@functools.cache
def _file_of_drawings(name: str, count: int = 4000) -> bytes:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    thing = random.integers(0, 2, 784, np.uint8) * 255
    smudges = random.integers(0, 4, (count, 784), np.uint8) == 0
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    said = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 784), }}"
    return header + said.ljust(117).encode() + b"\n" + np.where(smudges, 255 - thing, thing).tobytes()


def _make_signs(folder: Path, count: int = 12) -> None:
    """Ten folders with pictures of digits, named as the photographs of the data set are."""
    random = np.random.default_rng(0)
    for digit in range(10):
        (folder / str(digit)).mkdir(parents=True)
        for number in range(count):
            ground = random.integers(130, 255, 3)
            picture = Image.fromarray((ground + random.integers(-20, 20, (100, 100, 3))).clip(0, 255).astype(np.uint8))
            place = tuple(random.integers(10, 40, 2).tolist())
            ImageDraw.Draw(picture).text(place, str(digit), "black", font_size=60)
            picture.save(folder / str(digit) / f"IMG_{1118 + digit + 10 * number}.JPG")


@pytest.fixture(scope="session")
def drawings() -> Iterator[str]:
    """The address of a server with drawings."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Drawings)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's environment, with a cache that all pages share, in other processes too."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    for name in ("jax", "wheels", "zig"):  # what is the same whoever makes it, and takes long
        kept, place = cache_folder() / name, folder / "cache" / name
        kept.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            place.symlink_to(kept)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KERAS_", "JAX_"))}
    return kept | {
        "PATH": os.pathsep.join([str(_programs(folder / "bin")), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "RUDEL_CACHE": str(folder / "cache"),
        "PYTHONUNBUFFERED": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "NO_PROXY": "*",
        "no_proxy": "*",
    }


def _programs(folder: Path) -> Path:
    """A folder with a `sudo` that changes nothing, and with OpenSSH's programs, which ask RUDEL_SSH_CONFIG, too."""
    folder.mkdir(exist_ok=True)
    scripts = {
        name: f'exec {shutil.which(name)} ${{RUDEL_SSH_CONFIG:+-F "$RUDEL_SSH_CONFIG"}}' for name in ("ssh", "scp")
    }
    for name, script in {"sudo": "exec", **scripts}.items():
        made = folder / f".{name}-{os.getpid()}"
        made.write_text(f'#!/bin/sh\n{script} "$@"\n')
        made.chmod(0o755)
        made.replace(folder / name)
    return folder


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the labs of all pages."""
    return tmp_path_factory.mktemp("homes")


@contextlib.contextmanager
def _hosts_for(page: Path, folder: Path, homes: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Starts the hosts that a page names, if it names any; yields its environment, which says where they are."""
    with contextlib.ExitStack() as stack:
        if page.name in ON_SLURM:
            environment = environment | stack.enter_context(slurm(folder / "slurm"))
        if page.name in {*ON_HOSTS, *OWN_LAB} and os.geteuid() != 0:
            skip_or_fail(f"{page.name} needs a lab, and that root: sudo env PATH=$PATH python -m pytest {__file__}")
        if page.name in OWN_LAB:
            stack.callback(stop, "raspi")
            environment = environment | {"RUDEL_SSH_CONFIG": str(homes / "ssh_config")}
        if page.name in ON_HOSTS:
            environment = environment | {"RUDEL_SSH_CONFIG": str(folder / "ssh_config")}
            stack.enter_context(_lab(ON_HOSTS[page.name], folder / "ssh_config", homes))
            if not any("rudel hosts setup" in block.code for block in blocks_of(page)):
                command = ["rudel", "hosts", "setup", ",".join(ON_HOSTS[page.name])]
                subprocess.run(command, env=environment, check=True, capture_output=True)
        yield environment


@contextlib.contextmanager
def _lab(cores: dict[str, float], config: Path, homes: Path) -> Iterator[None]:
    """Starts nodes that are reached by these names, with so many cores each."""
    with Lab(nodes=len(cores), cpu=tuple(cores.values()), rate=1000, latency=1, prefix="raspi", state=homes) as lab:
        text = lab.ssh_config.read_text()
        for node, name in zip(lab.hosts, cores, strict=True):
            text = text.replace(f"Host {node}\n", f"Host {name}\n")
        config.write_text(text)
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, homes: Path, drawings: str, environment: dict[str, str]
) -> None:
    if SIGNS in page.read_text(encoding="utf-8"):
        _make_signs(tmp_path / SIGNS / "Dataset")
    if page.name == "README.md":
        _make_signs(tmp_path / "photographs")
    with _hosts_for(page, tmp_path, homes, environment) as found:
        _check_page(page, tmp_path, found, {"drawings": drawings, "homes": str(homes)})


def _check_page(page: Path, tmp_path: Path, environment: dict[str, str], places: dict[str, str]) -> None:
    blocks = [b for b in blocks_of(page) if b.kind in ("python", "sh") and not b.reason]
    notebook = page.with_suffix(".ipynb")
    run = cells_of(notebook) if notebook.exists() else blocks
    todo = [
        {"line": b.line, "kind": b.kind, "code": _as_run(b.code, page.name, **places), "until": b.until} for b in run
    ]
    done = subprocess.run(
        [sys.executable, "-c", _RUN_PAGE],
        input=json.dumps(todo), capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    print(done.stderr)  # with `pytest -rP`: how long its blocks take
    assert done.returncode == 0, f"{page.name}: {done.stderr}"
    for block, told in zip(blocks, json.loads(done.stdout), strict=True):
        if block.told is not None:
            assert _fits(told, block.told, block.exact), f"{page.name}, line {block.line} prints:\n{told}"


def _as_run(code: str, page: str, drawings: str, homes: str) -> str:
    """The code of a block with what this test adds to its commands."""
    code = code.replace("\\\n", " ").replace("raspi1,raspi2,raspi3,raspi4", "raspi1,raspi2")
    for begin, options in ADDED.get(page, {}).items():
        options = options.format(homes=homes)
        whole = re.escape(begin.removesuffix("$")) + ("$" if begin.endswith("$") else r"(?![\w-])[^\n#&|>]*(?<! )")
        code = re.sub(whole, lambda found, o=options: f"{found[0]} {o}", code, flags=re.MULTILINE)
    return _FETCHING.sub(lambda command: f"{command[0]} --data {drawings}", code)


def _fits(told: str, expected: str, exact: bool = False) -> bool:
    told, expected = (" ".join((text if exact else _NUMBER.sub("0", text)).split()) for text in (told, expected))
    return re.fullmatch(re.escape(expected).replace(re.escape("..."), ".*"), told) is not None


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_its_page(notebook: Path) -> None:
    page = notebook.with_suffix(".md")
    command = [sys.executable, ROOT / "docs/notebook.py", "--check", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    blocks = [b for b in blocks_of(page) if b.kind in ("python", "sh") and not b.reason]
    cells = cells_of(notebook)
    assert [(cell.kind, cell.code) for cell in cells] == [(block.kind, block.code) for block in blocks]
    shown = [None if "..." in (block.told or "") else block.told for block in blocks]
    assert [cell.told for cell in cells] == shown


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MADE], ids=lambda page: page.name)
def test_a_command_is_run_or_says_why_not(page: Path) -> None:
    read = [block for block in blocks_of(page) if block.kind not in ("python", "sh") and not block.reason]
    assert [block.line for block in read if _COMMAND.search(block.code + (block.told or ""))] == []


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


def test_what_is_added_to_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDED, "x.md", {"rudel train a": "--steps 1", "rudel play": "--port 0", "rudel b$": "-v"})
    code = "rudel train a --epochs 3  # said\nrudel train a-b\nrudel train a &\n"
    code += "rudel play > x || true\nrudel b\nrudel b c\n"
    added = "rudel train a --epochs 3 --steps 1  # said\nrudel train a-b\nrudel train a --steps 1 &\n"
    assert _as_run(code, "x.md", "", "") == added + "rudel play --port 0 > x || true\nrudel b -v\nrudel b c\n"


def test_every_block_that_is_not_run_is_known() -> None:
    marked = {(page.name, block.code.strip()) for page in PAGES for block in blocks_of(page) if block.reason}
    assert marked == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_found(page: Path) -> None:
    fences = re.findall(r"^ *(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = blocks_of(page)
    assert len(fences) == 2 * (len(blocks) + sum(block.told is not None for block in blocks))
    assert {block.kind for block in blocks} <= {"python", "sh", "text", "json", "yaml", ""}


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
    told = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
    config, summary = (json.loads((run / name).read_text()) for name in ("config.json", "summary.json"))
    record = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    inner = {key for name in ("model", "data") for key in config[name]}
    inner |= {re.sub(r"^option .*", "option", key) for key in config["identity"]}
    stored = set(np.load(run / "predictions.npz").files)
    names = {path.name for path in run.iterdir()} | {*config, *summary, *record, *inner, *stored}
    assert sorted(name for name in names if f"`{name}" not in told) == []


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


def test_imports_flow_from_left_to_right() -> None:
    rooms = ["errors", "files", "cores", "lab", "cache", "backend", "data", "recipes", "report", "micro"]
    rooms += ["cluster", "train", "play", "export", "serve", "watch", "doctor", "cli"]
    source = ROOT / "src/rudel"
    for path in source.rglob("*.py"):
        room = path.relative_to(source).with_suffix("").parts[0]
        if room == "__init__":
            continue
        for name in _imports(path):
            used = name.split(".")[1]
            assert rooms.index(used) <= rooms.index(room), f"{path.relative_to(source)} imports {name}"


def _imports(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if not alias.name.startswith("_")
    ]
    return [name for name in names if re.match(r"rudel\.[a-z]", name)]


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


def test_the_evaluation_is_made_by_its_last_command(tmp_path: Path) -> None:
    page = ROOT / "docs/evaluation.md"
    (command,) = re.findall(r"^python (benchmarks/evaluate.py .* --page .*)$", page.read_text(encoding="utf-8"), re.M)
    words = command.replace(str(page.relative_to(ROOT)), str(tmp_path / page.name)).split()
    words[words.index("--plots") + 1] = str(tmp_path)
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    assert list(tmp_path.glob("*.svg"))


def test_pages_that_train_the_same_net_say_the_same_of_it() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("micro.md", "sine.md")]
    compiled = [
        re.findall(r"^(\d+) multiplications .*, (\d+) bytes .*, (\d+) bytes of RAM", page, re.M) for page in pages
    ]
    assert compiled[0] == compiled[1] == re.findall(r"^ +all +(\d+) +(\d+) +(\d+)$", pages[0], re.M)
    assert len(compiled[0]) == 1


def test_manifest_of_kubernetes_starts_what_rudel_trains_on(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> None:
    page = (ROOT / "docs/slurm.md").read_text(encoding="utf-8")
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


def test_troubleshooting_quotes_what_is_really_said() -> None:
    said = " ".join(_sentences(path) for path in (ROOT / "src/rudel").rglob("*.py"))
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = [
        quote for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for quote in re.findall(r"`([^`]+)`", row)
    ]
    assert len(quoted) > 15
    assert [quote for quote in quoted if quote not in said] == []


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
