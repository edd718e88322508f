import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rudel.errors import RunError
from rudel.report import write_report
from rudel.report.read import read_run
from rudel.report.report_page import render

ALL = ["learning", "mistakes", "pictures", "classes", "time", "ran"]
EPOCHS_SO_FAR = [
    {"epoch": 1, "seconds": 2.0, "loss": 1.2, "val_loss": 1.1, "val_accuracy": 0.5},
    {"epoch": 2, "seconds": 2.0, "loss": 0.9, "val_loss": 0.8, "val_accuracy": 0.66},
]


def test_a_whole_run_has_all_sections(whole):
    page = whole.report()
    assert page.sections == ALL
    assert page.words("h1") == "quickdraw"
    words = page.words("header")
    assert "75.0\u202f%" in page.text
    assert "validation accuracy" in words
    assert "20 November 2026, 13:01 UTC" in words
    for number in ("769", "24,600", "204,301"):  # steps/s, examples/s, parameters
        assert number in words
    assert "not finished" not in page.words()


def test_the_page_is_written_beside_the_run_and_nothing_is_left_over(whole):
    before = {file.name for file in whole.path.iterdir()}
    assert write_report(whole.path) == whole.path / "report.html"
    assert {file.name for file in whole.path.iterdir()} == before | {"report.html"}
    assert (whole.path / "report.html").stat().st_size < 300_000


def test_equal_runs_give_equal_pages(whole):
    assert render(read_run(whole.path)) == render(read_run(whole.path))


def test_nothing_is_loaded_from_anywhere(whole):
    class Addresses(HTMLParser):
        found: list[str]

        def handle_starttag(self, tag, attrs):
            assert tag not in ("script", "iframe", "object", "embed", "base", "form")
            for name, value in attrs:
                assert not name.startswith("on")
                assert name not in ("srcset", "data", "action", "poster", "background")
                if name in ("src", "href"):
                    self.found.append(value or "")
                elif name != "content":
                    assert "url(" not in (value or "").replace("url(#", "")

    page = whole.report()
    parser = Addresses()
    parser.found = []
    parser.feed(page.text)
    assert all(address.startswith(("#", "data:")) for address in parser.found)
    assert sum(address.startswith("data:image/png;base64,") for address in parser.found) == 24
    (style,) = (sheet.text or "" for sheet in page.all("style"))
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in {meta.get("content", "").split(";")[0] for meta in page.all("meta")}


def test_ids_are_unique_and_references_lead_somewhere(whole):
    page = whole.report()
    ids = [part.get("id") for part in page.root.iter() if part.get("id")]
    assert len(ids) == len(set(ids))
    links = [part.get("href", "") for part in page.root.iter() if part.get("href", "").startswith("#")]
    assert {link[1:] for link in links} <= set(ids)
    clips = {part.get("clip-path", "")[5:-1] for part in page.root.iter() if part.get("clip-path")}
    assert clips <= set(ids)


def test_pictures_and_tables_speak_to_those_who_do_not_see_them(whole):
    page = whole.report()
    assert page.root.get("lang") == "en"
    assert all(image.get("alt") for image in page.all("img"))
    assert all(drawing.get("role") == "img" and drawing.get("aria-label") for drawing in page.all("svg"))
    for table in page.all("table"):
        assert table.findtext("caption")
        assert all(head.get("scope") for head in table.iter("th"))
        widths = {len(row) for row in table.iter("tr")}
        assert len(widths) == 1


def test_drawings_take_their_colours_and_fonts_from_the_page(whole):
    for drawing in whole.report().all("svg"):
        for part in drawing.iter():
            assert "#" not in part.get("style", "")
            assert "font-family" not in part.get("style", "")


def test_text_from_the_run_is_escaped_everywhere(run):
    evil = "<b>\"&'</b>"
    names = [evil, r"\$ $x^2$ {", "a\x00\n\tb"]
    metrics = {"epoch": 1, "loss": 1.0, evil: 0.5, f"val_{evil}": 0.5}
    run.config(recipe=evil, class_names=names, options={evil: evil}, attribution=evil, model={"text": evil})
    run.epochs([metrics]).summary(recipe=evil, hosts=[evil], strategy=evil, metrics={f"val_{evil}": 0.5}).predictions()
    page = run.report()
    assert page.words("h1") == evil
    assert "<b>&quot;" not in page.text
    assert '<b>"' not in page.text
    assert all(found.text in [evil, r"\$ $x^2$ {", "a\ufffd b"] for found in page.all("b"))
    assert r"\$ $x^2$ {" in [text.text for text in page.all("text")]


def test_a_name_that_no_font_has_is_no_trouble(run):
    page = run.config(class_names=["鸟", "🐟", "बिल्ली"]).epochs().predictions().report()
    assert "鸟" in [text.text for text in page.all("text")]


def test_an_unfinished_run_says_so_and_shows_what_there_is(run):
    page = run.config(epochs=20).epochs(EPOCHS_SO_FAR).report()
    assert "This run has not finished." in page.words("header")
    assert "after epoch 2 of 20" in page.words("header")
    assert page.sections == ["learning", "ran"]
    assert "66.0\u202f%" in page.text


def test_a_part_of_an_epoch_is_not_rounded(run):
    page = run.config().epochs([EPOCHS_SO_FAR[0] | {"epoch": 0.4}]).summary().report()
    numbers = {part.findtext("dt"): part.findtext("dd") for part in page.root.findall(".//dl/div")}
    assert numbers["epochs"] == "0.4"


def test_a_run_before_its_first_epoch_still_has_a_page(run):
    page = run.config().report()
    assert "before the end of its first epoch" in page.words("header")
    assert page.sections == ["ran"]


def test_the_least_that_a_run_can_hold(run):
    (run.path / "config.json").write_text("{}")
    page = run.report()
    assert page.sections == []
    assert page.words("h1") == run.path.name


def test_a_regression_has_no_sections_for_classes(run):
    lines = [{"epoch": e, "loss": 10.0 ** (1 - e), "val_loss": 10.0 ** (1.1 - e), "mae": 1 / e} for e in range(1, 6)]
    run.config(recipe="recipes/sine.py", class_names=None).epochs(lines)
    page = run.summary(metrics={"loss": 1e-4, "mae": 0.2, "val_loss": 1.3e-4}).report()
    assert page.sections == ["learning", "time", "ran"]
    assert page.words("h1") == "sine"
    assert "0.00013 validation loss" in " ".join(" ".join(part.itertext()) for part in page.all("p"))


def test_a_cut_off_last_line_is_ignored_and_a_repeated_epoch_replaced(run):
    run.config()
    lines = [{"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 2.0}, {"epoch": 1, "loss": 2.5}]
    (run.path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"epoch": 3, "lo')
    assert [line["loss"] for line in read_run(run.path).epochs] == [2.5, 2.0]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", "cannot be read as JSON"),
        ("config.json", "[]", "does not hold a JSON object"),
        ("config.json", b"\xff\xfe", "cannot be read as JSON"),
        ("summary.json", "nonsense", "cannot be read as JSON"),
        ("metrics.jsonl", '{"epoch": 1}\nx\n{"epoch": 2}\n', "line 2 is not a JSON object"),
        ("predictions.npz", "nonsense", "does not hold predictions"),
    ],
)
def test_a_damaged_file_is_named(whole, file, content, message):
    (whole.path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RunError, match=f"{file}.*{message}"):
        write_report(whole.path)
    assert not (whole.path / "report.html").exists()


def test_a_missing_or_foreign_folder_is_an_error(tmp_path):
    with pytest.raises(RunError, match="There is no run directory"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"not a run directory: it has no config\.json"):
        write_report(tmp_path)


def test_a_page_that_cannot_be_written_is_an_error(whole):
    (whole.path / "report.html").mkdir()
    with pytest.raises(RunError, match="could not be written"):
        write_report(whole.path)


def test_importing_the_report_does_not_import_what_only_a_page_needs():
    heavy = "{'matplotlib', 'PIL', 'keras', 'jax'}"
    source = Path(sys.modules["rudel"].__path__[0]).parent
    code = f"import sys, rudel.report; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source), "PATH": ""})
