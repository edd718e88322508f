"""Pages, and the blocks of code in them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"(?:^<!-- (?:not run: (?P<reason>[^\n]+)|until: (?P<until>[^\n]+)) -->\n+)?"
    r"^```(?P<kind>\w*)\n(?P<code>.*?)^```\n"
    r"(?:\n*^(?:<!-- (?P<exact>exactly) -->\n)?```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Args:
        line: where it is.
        kind: the word behind its fence.
        code: its content.
        output: what it should print, or None.
        reason: why it is not run, or None.
        until: what the commands print when they may be ended, or None where they end by themselves.
        exact: whether the numbers that it prints are always the same.
    """

    line: int
    kind: str
    code: str
    output: str | None
    reason: str | None
    until: str | None = None
    exact: bool = False


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text[: found.start("code")].count("\n"),
            *found.group("kind", "code", "output", "reason", "until"),
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
        printed = "".join(line for output in cell["outputs"] for line in output["text"])
        found.append(Block(number, kind, code, printed or None, None))
    return found
