"""What is said of hosts where there are none is refused, before anything is begun."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rudel
from rudel.backend import keras_on_jax
from rudel.cli.application import app
from rudel.cluster.calls import clients_of
from rudel.cluster.hosts import Host
from rudel.cluster.ssh_config import read_settings
from rudel.errors import ModelError, OptionError, RudelError, speaking_options
from rudel.lab import Lab
from rudel.runs.predictions_table import check_can_be_written
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
    ("call", "in_python", "on_command_line"),
    [
        (lambda: clients_of("raspi1", ADDRESS).__enter__(), "as `on=` and as `client=`", "as --on and as --scheduler"),
        (
            lambda: rudel.tune("digits", {}, on="raspi1", client=ADDRESS),
            "as `on=` and as",
            "as --on and as --scheduler",
        ),
        (lambda: rudel.tune("digits", {}, trials=0), "`trials=` must be", "--trials must be"),
        (lambda: rudel.train_recipe("digits", keep=0), "`keep=` must be", "--keep-checkpoints must be"),
        (lambda: rudel.train_recipe("digits", stop_early=0), "`stop_early=` must be", "--early-stopping must be"),
        (lambda: rudel.train_recipe("digits", strategy="so"), "`strategy=` can be", "--strategy can be"),
        (lambda: rudel.Diloco(round_steps=0), "`round_steps=` must be", "--sync-every must be"),
        (lambda: rudel.Async(patience=-1), "`patience=` must be", "--host-timeout must be"),
        (lambda: rudel.Cluster("raspi1", min_hosts=2), "`min_hosts=` must be", "--min-hosts must be"),
        (lambda: read_settings(Host("raspi1"), Path("no")), "file with `ssh_config=`", "file with --ssh-config"),
        (lambda: check_can_be_written(Path("a.txt")), "`out='a.txt'` must end", "--out a.txt must end"),
        (lambda: Lab(nodes=0), "another number to `nodes=`", "another number to --nodes"),
        (lambda: Lab(nodes=3, cpu=[1, 1]), "2 values of `cpu=`", "2 values of --cpu"),
    ],
)
def test_messages_name_arguments_in_python_and_options_on_the_command_line(
    call: Callable[[], object], in_python: str, on_command_line: str
) -> None:
    with pytest.raises(RudelError) as caught:
        call()
    assert in_python in str(caught.value)
    with speaking_options(), pytest.raises(RudelError) as caught:
        call()
    assert on_command_line in str(caught.value)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rudel.train_recipe("digits", options=["filters"]), "`options` is a dict"),  # type: ignore[arg-type]
        (lambda: rudel.load(3), "A path is a text or a pathlib.Path, not 3"),  # type: ignore[arg-type]
        (lambda: rudel.export(3, "c"), "A path is a text or a pathlib.Path, not 3"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_another_type_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(RudelError) as caught:
        call()
    assert sentence in str(caught.value)


def test_callbacks_are_checked_before_the_data_is_loaded(tmp_path: Path) -> None:
    recipe = tmp_path / "slow.py"
    recipe.write_text("def data():\n    raise OSError('loaded')\n\ndef model(dataset):\n    return None\n")
    with pytest.raises(ModelError, match="`3` is not a Keras callback"):
        rudel.train_recipe(str(recipe), callbacks=3, verbose=False)  # type: ignore[arg-type]


def test_a_recipe_takes_a_single_callback(tmp_path: Path) -> None:
    seen: list[dict[str, float]] = []
    callback = keras_on_jax().callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    rudel.train_recipe("sine", steps=1, run=tmp_path / "run", callbacks=callback, verbose=False)
    assert len(seen) == 1


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
