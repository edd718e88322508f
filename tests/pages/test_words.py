"""The documentation is short: every page has a budget of words, and all pages together have one."""

import re

import pytest
from pages.blocks import ROOT

ALL = 32_000
"""Words of all pages but the README, as `wc -w` counts them, code and tables included."""

README = 700

BUDGETS = {
    ("install",): 250,
    ("first-steps",): 700,
    ("concepts",): 600,
    ("your-own-model",): 1000,
    ("signs",): 1100,
    ("cluster",): 1400,
    ("laptop-and-gpu-box",): 900,
    ("sine",): 1300,
    ("word",): 1000,
    ("movement",): 800,
    ("table",): 200,
    ("serve",): 600,
    ("tune",): 600,
    ("recipes",): 900,
    ("strategies", "plan"): 800,
    ("hosts",): 900,
    ("slurm",): 900,
    ("mesh", "gpu"): 1400,
    ("records",): 1000,
    ("watch",): 500,
    ("export",): 1000,
    ("micro",): 900,
    ("play",): 400,
    ("lab",): 700,
    ("numpy",): 400,
    ("platforms",): 400,
    ("doctor",): 200,
    ("troubleshooting",): 1200,
    ("kubernetes",): 500,
    ("tpu",): 500,
    ("recommend",): 600,
    ("runs",): 2000,
    ("coming-from",): 850,
    ("how-it-works",): 2000,
    ("guarantees",): 700,
    ("results",): 1800,
    ("architecture",): 1500,
    ("CONTRIBUTING",): 700,
    ("benchmarks/README",): 900,
}
"""Words of each page; some pages share a budget."""


def _words(name: str) -> int:
    page = ROOT / f"{name}.md" if name[0].isupper() or "/" in name else ROOT / "docs" / f"{name}.md"
    return len(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("pages", BUDGETS, ids="+".join)
def test_a_page_keeps_to_its_budget(pages: tuple[str, ...]) -> None:
    assert sum(map(_words, pages)) <= BUDGETS[pages]


def test_all_pages_have_a_budget_and_keep_to_the_whole() -> None:
    named = [name for pages in BUDGETS for name in pages]
    assert sorted(named) == sorted(
        [*(path.stem for path in (ROOT / "docs").glob("*.md")), "CONTRIBUTING", "benchmarks/README"]
    )
    assert sum(map(_words, named)) <= ALL
    assert _words("README") <= README


def test_the_site_has_the_sections_in_their_order() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n")[2]
    sections = re.findall(r"^  - ([\w-]+):$", navigation, re.MULTILINE)
    wanted = "Start Tutorials How-to Experimental Reference Explanation Results Contributing"
    assert sections == wanted.split()
