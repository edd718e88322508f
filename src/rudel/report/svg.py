"""Matplotlib figures as SVG that lives inside a page: its text is text, and its colours are the page's.

One unit of a drawing is one CSS pixel. Colours are drawn as tokens, each an unlikely colour, which become CSS variables
in the end: the same drawing then serves light and dark pages.
"""

import io
import re
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rudel.report.markup import Html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE, TRAIN, VALIDATION, RIGHT, WRONG, ON_RIGHT, TEST = (f"#fe01{number:02x}" for number in range(16, 25))
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    TRAIN: "train",
    VALIDATION: "validation",
    RIGHT: "right",
    WRONG: "wrong",
    ON_RIGHT: "on-right",
    TEST: "test",
}


_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}"
_REFERENCE = re.compile(r"^#(\S+)$|url\(#([^)]+)\)")


def figure(width: float, height: float) -> "Figure":
    """An empty figure of so many CSS pixels, without a background."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), dpi=72, frameon=False)


def literal(name: str) -> str:
    """A text as Matplotlib must be given it to draw just that, and no formula between dollar signs."""
    return name.replace("$", r"\$")


def as_svg(drawing: "Figure", name: str, label: str) -> Html:
    """The figure as one `<svg>` element.

    Args:
        drawing: a figure of `figure`.
        name: begins every id inside; must differ from that of any other drawing on the page.
        label: what the picture shows, in words, for those who do not see it.
    """
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    file = io.StringIO()
    with _settings(name), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        drawing.savefig(file, format="svg", metadata=nothing)
    return _inlined(file.getvalue(), name, label)


def _settings(name: str) -> AbstractContextManager[None]:
    import matplotlib as mpl

    return mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name})


def _inlined(written: str, name: str, label: str) -> Html:
    """Only what a drawing inside a page needs: no header, no style sheet, no fonts, no ids but those referred to."""
    root = ElementTree.fromstring(written)
    used = {found for part in root.iter() for value in part.attrib.values() for found in _references(value)}
    for part in root.iter():
        part.tag = part.tag.removeprefix(_SVG)
        part.attrib = {
            key.removeprefix(_LINK): _for_page(key, value, name)
            for key, value in part.attrib.items()
            if not (key == "id" and value not in used) and not (key == "transform" and value.startswith("rotate(-0 "))
        }
    _prune(root)
    view = root.attrib["viewBox"]
    _, _, width, height = view.split()
    root.attrib = {"role": "img", "aria-label": label, "width": width, "height": height, "viewBox": view}
    return Html(re.sub(r"\s*\n\s*", "\n", ElementTree.tostring(root, encoding="unicode")))


def _references(value: str) -> list[str]:
    return [whole or within for whole, within in _REFERENCE.findall(value)]


def _for_page(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        value = re.sub(r"font(-family)?: [^;]*\'[^;]*(; )?", "", value)
        return re.sub("|".join(_VARIABLES), lambda token: f"var(--{_VARIABLES[token[0]]})", value)
    return _REFERENCE.sub(lambda found: found[0].replace("#", f"#{name}-"), value)


def _prune(parent: ElementTree.Element) -> None:
    for part in list(parent):
        _prune(part)
        empty = part.tag in ("g", "defs") and not len(part)
        if empty or part.tag in ("metadata", "style"):
            parent.remove(part)
