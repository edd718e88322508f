"""What MkDocs makes the site of, beside the pages of this folder: pages of the root, and the references.

MkDocs calls these functions by their names; mkdocs.yml names this file under `hooks`.
"""

import ast
import inspect
import posixpath
import re
from collections.abc import Iterator
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

_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'(?P<before><img [^>]*src=")(?P<light>[^"]+)(?P<after>"[^>]*>)\s*</picture>'
)
_LINK = re.compile(r"(?P<before>\]\(|\bsrc(?:set)?=\")(?P<path>[^)#:\s\"]+)(?P<anchor>#[^)\s]*)?(?P<after>[)\"])")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made here."""
    for source, page in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if not source.endswith(".md"):
            text = f"# {Path(page).stem.title()}\n\n```text\n{text}\n```\n"
        files.append(File.generated(config, page, content=moved(text, posixpath.dirname(source))))
    files.append(File.generated(config, "api.md", content=reference()))
    files.append(File.generated(config, "commands.md", content=commands()))
    files.append(File.generated(config, "map.md", content=module_map()))
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
    >>> moved('<img src="docs/images/a.svg">', "")
    '<img src="images/a.svg">'

    A picture that has a dark variant becomes two, of which the theme shows the one of its palette, not of the system's:

    >>> moved('<picture><source srcset="docs/b.svg"><img src="docs/a.svg"></picture>', "")
    '<img src="a.svg#only-light"><img src="b.svg#only-dark">'
    """

    def mended(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        page = FROM_ROOT.get(path, path.removeprefix("docs/"))
        return f"{link['before']}{page}{link['anchor'] or ''}{link['after']}"

    both = "".join(rf"\g<before>\g<{name}>#only-{name}\g<after>" for name in ("light", "dark"))
    return _PICTURE.sub(both, _LINK.sub(mended, text))


GIVEN = (
    "training.from_recipe.TrainedRun",
    "export.exporting.Exported",
    "data.records.batches.Batches",
    "data.stream.Stream",
    "mesh.hosts.processes.Processes",
)
"""What public functions give and take that is not in `import rudel` itself, by where it is in the package."""

TAUGHT = (
    "data.images.convert.convert",
    "data.photographs.decode",
    "data.records.writer.write_examples",
    "lab.lab.Lab",
    "micro.compiler.compile_model",
    "recipes.two_tower.TwoTower",
)
"""What the pages use beside that, which is imported from where it is."""


def reference() -> str:
    """The page on everything that `import rudel` gives, with the docstrings of all of it."""
    import rudel
    from rudel.data import augmentation

    parts = ["# Python", "Everything that `import rudel` gives."]
    parts += [f"::: {rudel._HOMES[name]}.{name}" for name in rudel.__all__]
    below = "\n    options:\n      heading_level: 3"
    parts += ["## What these give and take", *(f"::: rudel.{place}{below}" for place in GIVEN)]
    parts += ["## What is imported from where it is", *(f"::: rudel.{place}{below}" for place in TAUGHT)]
    parts += ["## rudel.data.augmentation", inspect.getdoc(augmentation) or ""]
    parts += [f"::: {getattr(augmentation, name).__module__}.{name}{below}" for name in augmentation.__all__]
    parts += [f"## What they raise\n\n::: rudel.errors{below}"]
    parts[-1] += "\n      show_root_heading: false\n      filters: ['!^_', '!^RudelError$']"
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """The page on the command line: every command with its arguments and options, as `--help` has them."""
    import typer

    from rudel.cli.application import app

    parts = ["# Commands", "Every command has `--help`, which says the same."]
    for name, command in _commands("rudel", typer.main.get_command(app)):
        context = command.context_class(command, info_name=name)
        parts.append(f"## `{name}`\n\n{_plain(command.help)}")
        parts.append(f"```text\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```")
        rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        parts += ["\n".join(["| | | default |", "| --- | --- | --- |", *rows])] if rows else []
    return "\n\n".join(parts) + "\n"


def module_map() -> str:
    """The page with every module and the first line of its docstring, by package."""
    source = ROOT / "src" / "rudel"
    parts = ["# Map of the modules", "The first line of each module's docstring."]
    for folder in [source, *sorted(path.parent for path in source.rglob("__init__.py") if path.parent != source)]:
        name = ".".join(("rudel", *folder.relative_to(source).parts))
        modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        rows = [f"| `{path.name}` | {_summary(path)} |" for path in modules]
        parts.append(f"## `{name}`\n\n{_summary(folder / '__init__.py')}")
        parts += ["\n".join(["| module | |", "| --- | --- |", *rows])] if rows else []
    return "\n\n".join(parts) + "\n"


def _summary(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command's name and itself; of a group, those of all in it."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for below, part in command.commands.items():
        yield from _commands(f"{name} {below}", part)


def _row(parameter: Any) -> str:
    """What a parameter is called, what it does, and its default, as a row of a table."""
    option = parameter.opts[0].startswith("-")
    names = [*parameter.opts, *parameter.secondary_opts] if option else [parameter.metavar or parameter.name.upper()]
    value = "" if not option or parameter.is_bool_flag else f" {parameter.metavar or _kind(parameter)}"
    help, _, told = _plain(parameter.help).partition("[default: ")
    default = told.rstrip("]") or ("" if parameter.default in (None, False) else f"`{parameter.default}`")
    cells = (f"`{', '.join(names)}{value}`", help.strip(), default)
    return "| " + " | ".join(cell.replace("|", "&#124;") if "`" not in cell else cell for cell in cells) + " |"


def _kind(parameter: Any) -> str:
    kind = getattr(parameter.type_descriptor.annotation, "__name__", "")
    return {"int": "N", "float": "X", "Path": "PATH"}.get(kind, "TEXT")


def _plain(help: str | None) -> str:
    """A help text without the marks that keep brackets from being styles.

    >>> _plain("Where.  \\\\[default: here]")
    'Where.  [default: here]'
    """
    return (help or "").replace("\\[", "[")
