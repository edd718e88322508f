"""What `rudel doctor` says, and that it is what the commands themselves say."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from rudel.cli.application import app
from rudel.doctor import feature_checks, installed_packages
from rudel.doctor.asking import Answers
from rudel.errors import RudelError
from rudel.lab import requirements
from rudel.micro import interpreters
from rudel.play import module

RUN = [sys.executable, "-P", "-c", "from rudel.cli.main import run; run()", "doctor"]


def of(command: str, answers: Answers, **settings: Any) -> feature_checks.Feature:
    return next(each for each in feature_checks.check_all(answers, **settings) if each.command == command)


def output_with(folder: Path, *options: str) -> str:
    """What a process says that looks for packages in a folder first."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "500"}
    done = subprocess.run([*RUN, *options], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def problems(document: dict[str, Any]) -> dict[str, str]:
    return {each["command"]: each["problem"] for each in document["features"] if each["problem"]}


@pytest.mark.usefixtures("warm_answers")
def test_everything_in_this_environment_is_told() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)
    assert document["devices"]["devices"][0]["platform"] == "cpu"
    assert {each["name"] for each in document["packages"]} >= {"jax", "keras", "distributed"}
    assert all(each["fits"] for each in document["packages"])
    ready = {each["command"] for each in document["features"] if each["problem"] is None}
    assert ready >= {"train", "export --to litert", "export --to onnx", "serve, watch", "play", "train --dashboard"}


def test_the_page_names_every_feature_and_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("RUDEL_SSH_CONFIG", raising=False)
    output = CliRunner().invoke(app, ["doctor"], catch_exceptions=False).stdout
    assert "apt-get install qemu-system-arm" in output or "apt-get install gcc-arm-none-eabi" in output
    assert "ssh-keygen -t ed25519" in output
    assert "ready" in output
    assert "(empty)" in output


def test_a_key_a_configuration_or_an_agent_will_do(tmp_path: Path, answers: Answers) -> None:
    def lack(**environment: str) -> str:
        return of("train --on", answers, environment=environment, home=tmp_path).problem or ""

    assert "ssh-keygen" in lack()
    assert lack(SSH_AUTH_SOCK="/agent") == ""
    (tmp_path / ".ssh").mkdir()
    assert lack()
    (tmp_path / ".ssh" / "id_ed25519.pub").write_text("")
    assert "ssh-keygen" in lack()
    (tmp_path / ".ssh" / "id_ed25519").write_text("")
    assert lack() == ""
    own = tmp_path / "own-config"
    assert "RUDEL_SSH_CONFIG names" in lack(RUDEL_SSH_CONFIG=str(own))
    own.write_text("Host raspi\n")
    (tmp_path / ".ssh" / "id_ed25519").unlink()
    assert lack(RUDEL_SSH_CONFIG=str(own)) == ""


def test_a_home_that_cannot_be_read_is_told_and_hides_nothing(
    tmp_path: Path, lacking: Callable[[str], NoReturn]
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    for folder, mode in ((home / ".ssh", 0), (home, 0o500)):
        folder.chmod(mode)
    like_others = []
    if os.geteuid() == 0:  # which may read and write everything, unless these rights are taken from it
        like_others = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
        look = [*like_others, sys.executable, "-P", "-c", "import rudel"]
        if shutil.which("setpriv") is None or subprocess.run(look, capture_output=True, cwd="/").returncode:
            lacking("root cannot give up its rights for this Python: apt-get install util-linux")
    environment = {**os.environ, "HOME": str(home), "RUDEL_CACHE": str(home / "new" / "cache"), "COLUMNS": "300"}
    for name in ("SSH_AUTH_SOCK", "RUDEL_SSH_CONFIG"):
        environment.pop(name, None)
    done = subprocess.run([*like_others, *RUN], env=environment, capture_output=True, text=True, cwd="/")
    home.chmod(0o700)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert f"{home / '.ssh'} cannot be read (Permission denied)" in done.stdout
    assert "on this computer" in done.stdout
    assert "cannot be written: set RUDEL_CACHE" in done.stdout


@pytest.mark.parametrize("name", ["numpy", "packaging", "distributed"])
def test_a_broken_package_is_told_and_hides_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise ImportError('libgone.so.1: cannot open shared object file')")
    output = output_with(tmp_path)
    sentence = f"{name} cannot be imported (libgone.so.1: cannot open shared object file): install it again by "
    needing = {
        "numpy": {"train", "train --on", "micro check", "micro bench", "play"},
        "packaging": {"train", "serve, watch", "export --to litert"},
        "distributed": {"train --on"},
    }
    lines = {line.split("  ")[0]: line for line in output.splitlines()}
    assert [command for command in needing[name] if sentence not in lines[command]] == [], output
    assert {"system", "cores", "rudel", "train --dashboard", "lab"} <= set(lines)


@pytest.mark.usefixtures("warm_answers")
def test_metadata_that_are_missing_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> NoReturn:
        raise installed_packages.PackageNotFoundError(name)

    monkeypatch.setattr(installed_packages, "requires", gone)
    document = json.loads(CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False).stdout)
    assert document["packages"] == []
    assert problems(document)["train"].startswith("Rudel's own metadata are missing")


@pytest.mark.parametrize(
    ("backend", "sentence"), [("nonsense", "on which Rudel cannot train"), ("tensorflow", "on JAX alone")]
)
def test_a_training_is_not_ready_where_it_would_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, sentence: str
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    message = problems(json.loads(output_with(tmp_path, "--json")))["train"]
    assert sentence in message
    if backend == "nonsense":
        train = [*RUN[:-1], "train", "digits", "--epochs", "1", "--run", str(tmp_path / "run")]
        done = subprocess.run(train, capture_output=True, text=True)
        assert done.stderr.strip() == f"Error: {message}"


def test_a_training_is_not_ready_where_there_is_no_device() -> None:
    answers = Answers(failure="JAX finds no device: none")
    assert of("train", answers).problem == "JAX finds no device: none"
    assert of("train --dashboard", answers).problem != "JAX finds no device: none"


def test_a_package_that_is_too_old_is_seen() -> None:
    seen = installed_packages.describe(Requirement("keras>=99"))
    assert (seen.name, seen.wanted, seen.fits) == ("keras", ">=99", False)
    assert seen.installed
    assert installed_packages.describe(Requirement("there-is-no-such-package")).installed is None
    assert installed_packages.describe(Requirement("keras>=3")).fits


@pytest.mark.parametrize(
    ("name", "other"),
    [("tensorflow", "tensorflow-cpu"), ("tensorflow", "tf-nightly"), ("onnxruntime", "onnxruntime-gpu")],
)
def test_a_package_may_be_installed_under_another_name(tmp_path: Path, name: str, other: str) -> None:
    metadata = tmp_path / f"{other.replace('-', '_')}-9.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {other}\nVersion: 9.1.0\n")
    code = (
        "import importlib.metadata as m, sys; found = m.version\n"
        f"m.version = lambda n: found('no-such-package') if n == {name!r} else found(n)\n"  # as where it is missing
        "from packaging.requirements import Requirement\nfrom rudel.doctor.installed_packages import describe\n"
        f"print(describe(Requirement('{name}>=2')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"Package(name='{name}', wanted='>=2', installed='9.1.0', fits=True)"


def test_packages_of_an_extra_are_those_alone() -> None:
    own, serving = ({package.name for package in installed_packages.packages_of(extra)} for extra in ("", "serve"))
    assert "starlette" in serving - own
    assert not own & serving


def test_the_lab_is_told_as_the_lab_itself_tells_it(answers: Answers) -> None:
    problem = of("lab", answers).problem
    if problem is None:
        requirements.check_machine()
    else:
        with pytest.raises(Exception, match=r"lab") as caught:
            requirements.check_machine()
        assert str(caught.value) == problem


def test_the_bench_needs_a_compiler_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    for name in ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with_zig = of("micro bench", answers).problem
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, found=importlib.util.find_spec: None if name == "ziglang" else found(name),
    )
    assert with_zig is None or "no C compiler" in with_zig
    assert "no C compiler" in (of("micro bench", answers).problem or "")


def test_interpreters_and_the_page_are_told_as_their_commands_tell_them(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    hidden = ("ai_edge_litert", "ziglang")
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, found=importlib.util.find_spec: None if name in hidden else found(name)
    )
    with pytest.raises(RudelError) as caught:
        interpreters.reference_outputs(b"", "litert", [])
    assert of("micro check", answers).problem in (str(caught.value), "There is no C compiler on this computer")
    play = of("play", answers)
    assert (play.problem, play.note) == (None, module.what_is_missing())
    assert "install ziglang by" in (play.note or "")
