"""What is said of hosts where there are none is refused, before anything is begun."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rudel
from rudel.backend import keras_on_jax
from rudel.cli.main import app
from rudel.errors import OptionError, speaking_options
from rudel.training.strategies import Auto

ADDRESS = "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_hosts": 2}, "`min_hosts=` says how many hosts to begin with, and none are named"),
        ({"dashboard": True}, "`dashboard=` shows what hosts do"),
        ({"ssh_config": "config"}, "`ssh_config=` says how hosts are reached over SSH"),
        ({"dashboard": True, "client": ADDRESS}, "`dashboard=` shows what hosts do that are started"),
        ({"ssh_config": "config", "client": ADDRESS}, "`ssh_config=` says how"),
    ],
    ids=str,
)
def test_a_recipe_on_no_hosts(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        rudel.train_recipe("digits", run=tmp_path / "run", **options)
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "run").exists()


def test_the_patience_of_auto_without_hosts() -> None:
    keras = keras_on_jax()
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((64, 1), np.float32)
    with pytest.raises(OptionError, match=r"`patience=` says how long to wait when all hosts are lost"):
        rudel.fit(model, x, x, strategy=Auto(patience=5))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train digits --min-hosts 2", "--min-hosts"),
        ("train digits --dashboard", "--dashboard"),
        ("train digits --ssh-config x", "--ssh-config"),
        ("train digits --host-timeout 5", "needs hosts: name them"),
        ("train digits --strategy auto --host-timeout 5", "--host-timeout"),
        ("train digits --strategy single --patience 5", "--host-timeout belongs to the strategy diloco and async"),
        ("train digits --strategy mesh --patience 5", "--host-timeout belongs to the strategy diloco and async"),
        (
            "train digits --strategy mesh --sync-every 5",
            "--sync-every belongs to the strategy diloco and async, not to",
        ),
        ("train digits --strategy async --layout a=b", "--layout belongs to the strategy mesh, not to async"),
        ("train digits --strategy auto --sync-every 5", "--sync-every belongs to the strategy diloco and async, which"),
        ("train digits --strategy mesh --round-steps 5", "--round-steps belongs to the strategy diloco, not to mesh"),
        ("train digits --strategy diloco --steps-between 9", "--steps-between belongs to the strategy async"),
        ("plan digits --simulate hosts=3 --ssh-config x", "--ssh-config"),
        ("plan digits --scheduler tcp://127.0.0.1:1 --ssh-config x", "--ssh-config"),
        ("data images . --out records --min-hosts 2", "--min-hosts"),
        ("data images . --out records --ssh-config x", "--ssh-config"),
    ],
)
def test_the_command_line(command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with speaking_options():
        result = CliRunner().invoke(app, command.split())
    assert isinstance(result.exception, OptionError)
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []
