"""Options and commands that messages name exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from rudel.cli.application import app

SOURCE = Path(__file__).parents[2] / "src" / "rudel"

OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
COMMAND = re.compile(r"`rudel ([a-z][^`]*)`")

OTHERS = {
    "pip": {"--dest", "--find-links", "--force-reinstall", "--hash", "--isolated", "--no-cache-dir", "--no-compile"}
    | {"--no-deps", "--no-index", "--no-input", "--only-binary", "--progress-bar", "--quiet", "--require-hashes"}
    | {"--retries"},
    "apt-get and dpkg": {"--force-confdef", "--force-confold", "--yes"},
    "python -m http.server": {"--directory"},
    "python -m venv": {"--without-pip"},
    "systemctl": {"--now"},
    "wsl": {"--shutdown"},
    "C": {"--bytes", "--column"},
}
"""What stands in texts and belongs to other programs, or decrements a variable."""


def commands() -> dict[tuple[str, ...], set[str]]:
    """The options of every command."""
    found = {}

    def visit(command: Any, words: tuple[str, ...]) -> None:
        names = [name for each in command.params for name in (*each.opts, *each.secondary_opts)]
        found[words] = {"--help", *(name for name in names if name.startswith("--"))}
        for name, below in getattr(command, "commands", {}).items():
            visit(below, (*words, name))

    visit(typer.main.get_command(app), ())
    return found


COMMANDS = commands()


def texts() -> Iterator[tuple[str, str]]:
    """Every text in the source with spaces in it, with its place; `{}` stands for what is filled in."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                text = node.value
            else:
                continue
            if " " in text:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", text


def mistakes(text: str) -> list[str]:
    """Options and commands in a text that do not exist."""
    known = set.union(*COMMANDS.values(), *OTHERS.values())
    wrong = [option for option in OPTION.findall(text) if option not in known]
    for command in COMMAND.findall(text):
        words: tuple[str, ...] = ()
        for word in command.split():
            if (*words, word) not in COMMANDS:
                break
            words = (*words, word)
        is_group = any(other[:-1] == words for other in COMMANDS if other)
        goes_on = len(command.split()) > len(words)
        if (is_group and goes_on) or not set(OPTION.findall(command)) <= COMMANDS[words]:
            wrong.append(f"rudel {command}")
    return wrong


def test_options_and_commands_in_messages_exist() -> None:
    wrong = {place: found for place, text in texts() if (found := mistakes(text))}
    assert wrong == {}


def test_those_that_do_not_are_found() -> None:
    assert mistakes("leave them out by skip_corrupt=True (--skip-corrupt)") == ["--skip-corrupt"]
    assert mistakes("see `rudel host check`") == ["rudel host check"]
    assert mistakes("see `rudel hosts chck`") == ["rudel hosts chck"]
    assert mistakes("export by `rudel train {} --to litert-int8`") == ["rudel train {} --to litert-int8"]
    assert mistakes("`rudel hosts setup` and `rudel export RUN --to litert-int8`, or pip's --no-deps") == []
    assert len(list(texts())) > 1000
