"""What MkDocs makes the site of, beside the pages of this folder: pages of the root, and the reference of Python.

MkDocs calls these functions by their names; mkdocs.yml names this file under `hooks`.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]

FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "LICENSE": "licence.md",
}
"""Pages that lie elsewhere in the project, and what they are called here."""

_LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made here."""
    for source, page in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if not source.endswith(".md"):
            text = f"# {Path(page).stem.title()}\n\n```text\n{text}\n```\n"
        files.append(File.generated(config, page, content=moved(text, posixpath.dirname(source))))
    files.append(File.generated(config, "api.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mends the links of pages of this folder to those that lie elsewhere."""
    return markdown if page.file.generated_by else moved(markdown, "docs")


def moved(text: str, folder: str) -> str:
    """A page whose links, which are relative to a folder of the project, are made relative to the site's.

    >>> moved("[a](docs/a.md#b), [c](https://c.org/d.md)", "")
    '[a](a.md#b), [c](https://c.org/d.md)'
    >>> moved("[r](../README.md)", "docs")
    '[r](index.md)'
    """

    def mended(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        page = FROM_ROOT.get(path, path.removeprefix("docs/"))
        return f"{link['before']}{page}{link['anchor'] or ''})"

    return _LINK.sub(mended, text)


GIVEN = (
    "train.from_recipe.TrainedRun",
    "export.exporting.Exported",
    "data.records.batches.Batches",
    "data.stream.Stream",
    "train.mesh.hosts.processes.Processes",
)
"""What public functions give and take that is not in `import rudel` itself, by where it is in the package."""


def reference() -> str:
    """The page on everything that `import rudel` gives, with the docstrings of all of it."""
    import rudel

    parts = ["# Python", "Everything that `import rudel` gives."]
    parts += [f"::: {rudel._HOMES[name]}.{name}" for name in rudel.__all__]
    below = "\n    options:\n      heading_level: 3"
    parts += ["## What these give and take", *(f"::: rudel.{place}{below}" for place in GIVEN)]
    parts += [f"## What they raise\n\n::: rudel.errors{below}"]
    parts[-1] += "\n      show_root_heading: false\n      filters: ['!^_', '!^RudelError$']"
    return "\n\n".join(parts) + "\n"
