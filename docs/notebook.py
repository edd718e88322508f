"""Writes a page of the documentation as a Jupyter notebook beside it.

    python docs/notebook.py docs/sine.md            writes docs/sine.ipynb
    python docs/notebook.py --check docs/sine.md    fails if that would change it

Fences of `python` and `sh` become cells that run, and a `text` fence directly below one becomes its output, unless it
has `...` in it. Everything else, fences under a `<!-- not run: ... -->` included, stays text.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

_RUNS = re.compile(
    r"(?P<skipped>^<!-- not run: [^\n]+ -->\n+)?"
    r"^```(?P<kind>python|sh)\n(?P<code>.*?)^```\n"
    r"(?:\n*^```text\n(?P<told>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def notebook(page: str) -> dict[str, Any]:
    """The notebook of a page, in the notebook format 4.5; equal pages give equal notebooks."""
    cells: list[dict[str, Any]] = []
    done = 0
    for found in _RUNS.finditer(page):
        if found["skipped"]:
            continue
        cells += _text(page[done : found.start()])
        code = found["code"] if found["kind"] == "python" else f"%%sh\n{found['code']}"
        cells.append(_cell("code", code, execution_count=None, outputs=_outputs(found["told"])))
        done = found.end()
    cells += _text(page[done:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _text(source: str) -> list[dict[str, Any]]:
    source = re.sub(r"^<!-- not run: [^\n]+ -->\n", "", source, flags=re.MULTILINE)
    return [_cell("markdown", source)] if source.strip() else []


def _cell(kind: str, source: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "id": "", "metadata": {}, "source": source.strip("\n").splitlines(True), **more}


def _outputs(told: str | None) -> list[dict[str, Any]]:
    return (
        [{"name": "stdout", "output_type": "stream", "text": told.splitlines(True)}]
        if told and "..." not in told
        else []
    )


def main(arguments: list[str]) -> int:
    """Writes or checks the notebooks of the pages that are named."""
    check = "--check" in arguments
    for name in arguments:
        if name == "--check":
            continue
        page = Path(name)
        written = json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"
        path = page.with_suffix(".ipynb")
        if not check:
            path.write_text(written, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != written:
            print(f"{path} is not what {page} says: run `python docs/notebook.py {page}`.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
