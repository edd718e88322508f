"""Golden files: what a test found once, in JSON, against which later ones are compared.

`--regenerate` writes them again in place of comparing; what has changed is then to be seen by `git diff`.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Golden:
    """Compares with golden files, or writes them.

    Args:
        regenerate: whether to write.
    """

    regenerate: bool

    def check(self, path: Path, rounding: float = 0.0, **found: Any) -> None:
        """Fails if these parts of a golden file differ, and names each value that does.

        Args:
            path: the file, a JSON object.
            rounding: how far fractions may be apart, as a share of them.
            found: JSON by key; what else the file has is left as it is.
        """
        document = self.read(path)
        if self.regenerate:
            path.write_text(json.dumps(document | found, indent=1) + "\n", encoding="utf-8")
            return
        changed = list(differences({part: document.get(part) for part in found}, found, rounding=rounding))
        if changed:
            pytest.fail(
                f"{path.name} has another value at {len(changed)} places; where that is meant, write it again with "
                "--regenerate:\n" + "\n".join(changed),
                pytrace=False,
            )

    def read(self, path: Path) -> dict[str, Any]:
        """A golden file; empty if there is none."""
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def differences(before: Any, after: Any, where: str = "", rounding: float = 0.0) -> Iterator[str]:
    """Describes what differs between two JSON documents, one line a value; fractions may differ by rounding.

    >>> list(differences({"a": {"b": 100, "c": 1}}, {"a": {"b": 98, "d": "x"}}))
    ['  a: b: 100 -> 98 (-2.0 %)', '  a: c: 1 -> nothing', '  a: d: nothing -> x']
    >>> list(differences([{"loss": 0.5}, {"loss": 0.4}], [{"loss": 0.5001}, {"loss": 0.3}], "a", rounding=0.01))
    ['a: 1: loss: 0.4 -> 0.3 (-25.0 %)']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            place = f"{where}{': ' if where else '  '}{key}"
            yield from differences(before.get(key), after.get(key), place, rounding)
    elif isinstance(before, list) and isinstance(after, list) and any(isinstance(v, dict) for v in before + after):
        yield from differences(dict(enumerate(before)), dict(enumerate(after)), where, rounding)
    elif before != after and not (
        isinstance(before, float) and isinstance(after, float) and math.isclose(before, after, rel_tol=rounding)
    ):
        change = ""
        if isinstance(before, int | float) and isinstance(after, int | float) and before:
            change = f" ({100 * (after / before - 1):+.1f} %)"
        old, new = ("nothing" if value is None else value for value in (before, after))
        yield f"{where}: {old} -> {new}{change}"
