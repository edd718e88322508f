"""Numbers in the report and on the page of `rudel watch`: one table of cases holds both."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Browser

from rudel.report import formatting

CASES = json.loads(Path(__file__).with_name("numbers.json").read_text(encoding="utf-8"))
SCRIPT = Path(str(formatting.__file__)).parents[1] / "watch/page/words.js"
PYTHON: dict[str, Callable[..., str]] = {"value": formatting.number, "epochNumber": formatting.epoch_number} | {
    name: getattr(formatting, name) for name in ("percent", "count", "rate", "duration", "size", "plural")
}


def by_javascript(browser: Browser, questions: list[tuple[str, list[Any]]]) -> list[str]:
    script = SCRIPT.read_text(encoding="utf-8").replace("export function", "function")
    asked = f"{json.dumps(questions)}.map(([name, given]) => all[name](...given))"
    with browser.page() as page:
        return page.value(f"(() => {{ {script}; const all = {{{', '.join(PYTHON)}}}; return {asked}; }})()")


@pytest.mark.parametrize("name", list(CASES))
def test_the_report_writes_numbers_as_the_table_says(name: str) -> None:
    assert [PYTHON[name](*given) for given, _ in CASES[name]] == [wanted for _, wanted in CASES[name]]


def test_the_page_writes_numbers_as_the_table_says(browser: Browser) -> None:
    questions = [(name, given) for name, cases in CASES.items() for given, _ in cases]
    wanted = [text for cases in CASES.values() for _, text in cases]
    written = by_javascript(browser, questions)
    assert list(zip(questions, written, strict=True)) == list(zip(questions, wanted, strict=True))


def test_both_write_any_number_alike(browser: Browser) -> None:
    made = random.Random(1)
    questions: list[tuple[str, list[Any]]] = []
    for _ in range(2000):
        size = 10 ** made.uniform(-9, 13)
        number = made.choice([size, round(size, made.randrange(4)), round(size * 8) / 8])
        questions += [(name, [number]) for name in ("count", "rate", "duration", "size", "epochNumber")]
        questions += [("value", [made.choice([1, -1]) * number]), ("percent", [number / 1e6])]
    written = by_javascript(browser, questions)
    different = [
        (question, other, here)
        for question, other in zip(questions, written, strict=True)
        if other != (here := PYTHON[question[0]](*question[1]))
    ]
    assert different == []
