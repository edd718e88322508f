"""What `rudel doctor` says, and that it is what the commands themselves say."""

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from rudel.cli.main import app
from rudel.doctor import devices, features, packages
from rudel.lab import requirements


def of(command: str, **settings: Any) -> features.Feature:
    return next(each for each in features.look(**settings) if each.command == command)


def test_everything_in_this_environment_is_told() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    told = json.loads(done.stdout)
    assert told["devices"]["devices"][0]["platform"] == "cpu"
    assert {each["name"] for each in told["packages"]} >= {"jax", "keras", "distributed"}
    assert all(each["fits"] for each in told["packages"])
    ready = {each["command"] for each in told["features"] if each["problem"] is None}
    assert ready >= {"train", "export --to litert", "export --to onnx", "serve, play, watch", "train --dashboard"}


def test_the_page_names_every_feature_and_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    told = CliRunner().invoke(app, ["doctor"], catch_exceptions=False).stdout
    assert "apt-get install qemu-system-arm" in told or "apt-get install gcc-arm-none-eabi" in told
    assert "ssh-keygen -t ed25519" in told
    assert "ready" in told


def test_a_key_a_configuration_or_an_agent_will_do(tmp_path: Path) -> None:
    assert "ssh-keygen" in (of("train --on", environment={}, home=tmp_path).problem or "")
    assert of("train --on", environment={"SSH_AUTH_SOCK": "/agent"}, home=tmp_path).problem is None
    (tmp_path / ".ssh").mkdir()
    assert of("train --on", environment={}, home=tmp_path).problem
    (tmp_path / ".ssh" / "id_ed25519").write_text("")
    assert of("train --on", environment={}, home=tmp_path).problem is None


def test_a_package_that_is_too_old_is_seen() -> None:
    seen = packages.look(Requirement("keras>=99"))
    assert (seen.name, seen.wanted, seen.fits) == ("keras", ">=99", False)
    assert seen.installed
    assert packages.look(Requirement("there-is-no-such-package")).installed is None
    assert packages.look(Requirement("keras>=3")).fits


def test_packages_of_an_extra_are_those_alone() -> None:
    own, serving = ({package.name for package in packages.packages_of(extra)} for extra in ("", "serve"))
    assert "starlette" in serving - own
    assert not own & serving


def test_the_lab_is_told_as_the_lab_itself_tells_it() -> None:
    problem = of("lab").problem
    if problem is None:
        requirements.check_machine()
    else:
        with pytest.raises(Exception, match=r"lab") as caught:
            requirements.check_machine()
        assert str(caught.value) == problem


def test_a_device_that_does_not_answer_and_one_without_a_plugin(tmp_path: Path) -> None:
    slow = tmp_path / "jax.py"
    slow.write_text("import time; time.sleep(60)")
    assert "within 1 s" in (devices.look({"PYTHONPATH": str(tmp_path)}, seconds=1).problem or "")
    slow.write_text("raise RuntimeError('the driver is too old')")
    seen = devices.look({"PYTHONPATH": str(tmp_path)})
    assert not seen.devices
    assert "the driver is too old" in (seen.problem or "")
    slow.write_text(
        "class D: platform = device_kind = 'cpu'; memory_stats = lambda s: None\ndef local_devices(): return [D()]"
    )
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    seen = devices.look({"PYTHONPATH": str(tmp_path)}, root=tmp_path)
    assert seen.devices
    assert seen.mend == "pip install -U 'jax[cuda13]'"
    assert devices.look({"PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"}, root=tmp_path).problem is None
