"""The words of the documentation, the command line and errors: the field's terms, and British spelling."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from pages.blocks import PAGES, ROOT

import rudel.errors
from rudel.cli.application import app

INSTEAD = {
    r"told": "reported, described",
    r"anew": "again",
    r"(go|goes|going|went) on": "continue",
    r"computer that drives": "driver",
    r"(?<!there )(is|are) no (JSON|list|object|number|text|image|picture|host|model|name|address)s?": "is not a",
    r"errands?": "task",
    r"(on|through) the air": "on the network",
    r"what (it|they|hosts) (has|have )?learned": "pseudo-gradient",
    r"times as fast as": "x faster",
    r"mends?|mended": "correct, repair",
    r"held-out ones": "validation set",
    r"what it mixes up": "confusion matrix",
    r"where it was surest": "most confident predictions",
    r"pretend(ed|s)?": "simulated",
    r"in the place of|in its place": "instead",
    r"(come|comes|came) apart": "is split",
    r"who has real ones": "if you have them",
    r"cut short|broke off": "truncated, closed",
    r"look(s|ed)? after|see to": "check",
    r"there already": "exists",
    r"shall": "should, will",
    r"whoever (wrote|converted) (it|them)": "any",
    r"(end|begin|start)s? (after|with) so many": "number of",
    r"tells? (classes apart|good from bad)": "distinguish, compare",
    r"cannot be told": "is not known",
    r"mistake in Rudel": "bug",
    r"cut into|cut over": "sharded",
    r"standing": "snapshot",
    r"nets": "neural networks, models",
    r"(?-i:quant|optim|initial|normal|serial|regular|synchron|factor)iz(e|es|ed|ing|ation)": "-ise, -isation",
    r"behavior|color|center(ed)?|gray|labeled|modeling|neighbor": "British spelling",
}
"""Phrases that a reader stumbles over, and what to write."""

_CODE = re.compile(r"^```.*?^```$|`[^`]*`|\]\([^)]*\)|<!--.*?-->|\*[^*\n]+\*|<[^>]+>", re.MULTILINE | re.DOTALL)
_WORDS = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in INSTEAD), re.IGNORECASE)


def _found(text: str) -> list[str]:
    """Phrases in a text, code, links and titles left out, with what to write.

    >>> _found("It goes on, as `anew` said.")
    ['goes on: write continue']
    """
    words = [match[0] for match in _WORDS.finditer(_CODE.sub(" ", text))]
    return [
        f"{word}: write {instead}"
        for word in words
        for phrase, instead in INSTEAD.items()
        if re.fullmatch(phrase, word, re.IGNORECASE)
    ]


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"], ids=lambda p: p.name
)
def test_a_page_uses_the_fields_terms(page: Path) -> None:
    assert _found(page.read_text(encoding="utf-8")) == []


def test_help_uses_the_fields_terms() -> None:
    found = {name: _found(text) for name, text in _help("rudel", typer.main.get_command(app))}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_errors_use_the_fields_terms() -> None:
    found = {name: _found(text) for name, text in _errors()}
    assert len(found) > 500
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def _errors() -> Iterator[tuple[str, str]]:
    """Where errors are raised that users see, and the texts in them."""
    kinds = {name for name, thing in vars(rudel.errors).items() if isinstance(thing, type)}
    for path in sorted((ROOT / "src" / "rudel").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in kinds:
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                text = " ".join(text for text in texts if isinstance(text, str))
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def _help(name: str, command: object) -> Iterator[tuple[str, str]]:
    """The help of a command and of its options, and that of the commands below it."""
    options = [getattr(parameter, "help", None) or "" for parameter in getattr(command, "params", ())]
    yield name, " ".join([getattr(command, "help", None) or "", *options])
    for below, other in getattr(command, "commands", {}).items():
        yield from _help(f"{name} {below}", other)
