"""Help, completion, names of version 0.1, and the one format of all errors."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

COMMAND = str(Path(sys.executable).with_name("rudel"))


def panels(help_text: str) -> dict[str, str]:
    """What stands in each panel, by its title."""
    parts = re.split(r"╭─ (\w+) ─+╮", help_text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_commands_are_in_panels(rudel: Callable[..., Any]) -> None:
    result = rudel("--help")
    found = panels(result.out)
    assert list(found) == ["Options", "Train", "Inspect", "Deploy", "Computers", "Data", "Tools"]
    homes = {"Train": "train plan", "Inspect": "evaluate watch", "Deploy": "export serve micro", "Computers": "hosts"}
    for panel, commands in (homes | {"Data": "data cache", "Tools": "doctor"}).items():
        for command in commands.split():
            assert re.search(rf"│ {command}\s", found[panel])
    assert "Example: rudel train digits" in found["Tools"]


def test_options_of_train_are_in_panels(rudel: Callable[..., Any]) -> None:
    found = panels(rudel("train", "--help").out)
    assert {"Training", "Checkpoints", "Hosts", "Mesh"} <= found.keys()
    homes = {"Training": "--epochs", "Checkpoints": "--keep-checkpoints", "Hosts": "--sync-every", "Mesh": "--layout"}
    for panel, option in homes.items():
        assert option in found[panel]
    assert not re.search(r"--(patience|stop-early|keep|round-steps|steps-between)\b(?!-)", "".join(found.values()))


def test_help_of_train_shows_the_options_of_the_recipe(rudel: Callable[..., Any]) -> None:
    result = rudel("train", "--data", "digits", "sine", "--help")
    assert result.code == 0
    assert "sine  " in result.out
    assert "noise" in result.out
    assert "augmentation" not in result.out
    assert "augmentation" in rudel("recipes", "digits").out
    rudel("new", "moons")
    assert "hidden" in rudel("train", "moons.py", "-h").out
    assert [each["name"] for each in json.loads(rudel("recipes", "moons.py", "--json").out)] == ["moons"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("train --epoch 1", "Error: No such option: --epoch (Possible options: --epochs"),
        ("train -e many", "Error: Invalid value for '--epochs' / '-e'"),
        ("train --precision float8", "Error: Invalid value for '--precision': 'float8' is not one of 'float32'"),
        ("train --sync-every 0", "Error: Invalid value for '--sync-every'"),
        ("trian", "Error: No such command 'trian'. Did you mean 'train'?"),
        ("hosts chek", "Error: No such command 'chek'. Did you mean 'check'? Run `rudel hosts --help` for usage."),
        ("evaluate", "Error: Missing argument 'RUN'. Run `rudel evaluate --help` for usage."),
        ("evaluate nowhere", "Error: There is no run at nowhere"),
    ],
)
def test_all_errors_have_one_format(rudel: Callable[..., Any], arguments: str, error: str) -> None:
    result = rudel(*arguments.split())
    assert result.code == 2
    assert result.err.startswith(error)
    assert result.err.count("\n") == 1


def test_names_of_version_0_1_still_work(rudel: Callable[..., Any]) -> None:
    rudel("train", "sine", "--steps", "40", "--eval-every", "10", "--stop-early", "3", "--keep", "4", "--run", "r")
    config = json.loads(Path("r/config.json").read_text())
    assert (config["stop_early"], config["keep"]) == (3, 4)
    for options in ("--patience 5", "--round-steps 5", "--steps-between 5", "--host-timeout 5", "--sync-every 5"):
        assert "needs hosts: name them" in rudel("train", *options.split()).error
    assert "strategy `async` needs hosts" in rudel("train", "--steps-between", "5").error


def test_short_options_and_quiet(rudel: Callable[..., Any]) -> None:
    result = rudel("train", "-q", "-e", "1", "-b", "64", "-s", "filters=4")
    assert (result.out, result.err) == ("runs/digits\n", "")
    config = json.loads(Path("runs/digits/config.json").read_text())
    assert (config["epochs"], config["batch_size"], config["options"]["filters"]) == (1, 64, 4)
    assert rudel("-V").out.startswith("rudel ")


def test_train_says_what_can_be_done_next(rudel: Callable[..., Any]) -> None:
    last = rudel("train", "-e", "1", "--set", "filters=4", "--set", "validation=0.1987").out.splitlines()[-1]
    assert last == (
        "next     rudel evaluate runs/digits; rudel serve runs/digits; rudel play runs/digits; "
        "rudel export runs/digits --to litert-int8"
    )
    last = rudel("train", "sine", "-e", "1", "--run", "a b").out.splitlines()[-1]
    assert last.startswith("next     rudel evaluate 'a b'; ")
    assert "play" not in last
    command = shlex.split(last.removeprefix("next").split(";")[0])
    assert rudel(*command[1:]).code == 0


def test_a_folder_names_the_recipe_for_it(rudel: Callable[..., Any]) -> None:
    for folder in ("photographs/cats", "scans/cats", "words/yes", "movements", "nothing", "run"):
        Path(folder).mkdir(parents=True)
    Image.fromarray(np.zeros((40, 40, 3), "uint8")).save("photographs/cats/1.jpg")
    Image.fromarray(np.zeros((40, 40, 3), "uint8")).save("scans/cats/1.tiff")
    Path("words/yes/1.wav").write_bytes(b"RIFF")
    Path("movements/wave.csv").write_text("x,y\n")
    Path("run/config.json").write_text("{}")
    recipes = {"photographs": "images", "scans": "images", "words": "keywords", "movements": "motion"}
    for folder, recipe in recipes.items():
        expected = f"`{folder}` is a folder, not a recipe: the recipe `{recipe}` learns from it, with --data {folder}."
        assert expected in rudel("train", folder).error
    assert "has no images, sound files or CSV files" in rudel("train", "nothing").error
    assert "give its recipe with --run run and --resume to continue it" in rudel("train", "run").error


def completed(line: str, folder: Path) -> set[str]:
    """What Bash offers for the last word of a line."""
    environment = {"_RUDEL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [COMMAND], env=os.environ | environment | {"HOME": str(folder)}, cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return set(done.stdout.split())


def test_the_shell_completes_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "runs/digits").mkdir(parents=True)
    (tmp_path / "runs/digits/config.json").write_text("{}")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_bytes(b"# caf\xe9\nHost raspi1 raspi2\n  User pi\nHost *\n  Port 22\n")
    for line, offered in (
        ("rudel train qu", {"quickdraw"}),
        ("rudel train mi", {"mine.py"}),
        ("rudel recipes si", {"sine"}),
        ("rudel train --precision mixed_b", {"mixed_bfloat16"}),
        ("rudel train --strategy d", {"diloco"}),
        ("rudel train --on raspi1,ra", {"raspi1,raspi1", "raspi1,raspi2"}),
        ("rudel hosts check ra", {"raspi1", "raspi2"}),
        ("rudel evaluate run", {"runs/digits"}),
        ("rudel evaluate runs/", {"runs/digits"}),
        ("rudel export runs/digits --to litert-i", {"litert-int16", "litert-int8"}),
        ("rudel micro compile x.tflite --target pi", {"pico", "pico2"}),
    ):
        assert completed(line, tmp_path) == offered, line
