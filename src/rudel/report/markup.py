"""HTML as values: `Html` is markup, any other string is text and is escaped where the two meet.

What is made here is well-formed XML too, so that an XML parser can read a whole page.
"""

import html
import re
from collections.abc import Iterable, Sequence

_VOID = frozenset({"br", "img", "link", "meta", "rect"})
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Html(str):
    """A piece of HTML that is right as it stands."""

    __slots__ = ()


def text(value: str) -> Html:
    """A string as HTML: `Html` unchanged, anything else escaped, without the characters that no page may hold.

    >>> text("<b> & co")
    '&lt;b&gt; &amp; co'
    """
    return value if isinstance(value, Html) else Html(html.escape(printable(value)))


def printable(value: str) -> str:
    """A string with a replacement for each character that XML cannot hold, such as NUL."""
    return _NOT_XML.sub("\ufffd", value)


def join(parts: Iterable[str | None], between: str = "") -> Html:
    """Pieces one after the other; None is left out."""
    return Html(text(between).join(text(part) for part in parts if part is not None))


def element(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """One element. Attributes that are None are left out; `class_` is `class`, `aria_label` is `aria-label`.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written} />")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    foot: Iterable[Sequence[str]] = (),
    *,
    words: Iterable[int] = (0,),
    class_: str | None = None,
) -> Html:
    """A table in a frame that scrolls sideways when the window is narrow; the first cell of each row heads it.

    Args:
        caption: what the table shows, for those who hear the page as well.
        header: the columns' names.
        rows: the cells of each row, as many as columns.
        foot: rows below a line, such as averages.
        words: numbers of the columns that hold words and are set flush left; all others hold numbers.
        class_: more classes for the table.
    """
    left = frozenset(words)

    def cells(row: Sequence[str]) -> Html:
        return join(
            element("th" if i == 0 else "td", cell, scope="row" if i == 0 else None, class_=None if i in left else "n")
            for i, cell in enumerate(row)
        )

    head = join(element("th", name, scope="col", class_=None if i in left else "n") for i, name in enumerate(header))
    last = [element("tr", cells(row)) for row in foot]
    made = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head)),
        element("tbody", join(element("tr", cells(row)) for row in rows)),
        element("tfoot", join(last)) if last else None,
        class_=class_,
    )
    return scrolling(made, caption)


def scrolling(content: Html, label: str) -> Html:
    """A frame that scrolls sideways, by keyboard too, when its content is wider than the window."""
    return element("div", content, class_="wide", role="region", aria_label=label, tabindex="0")
