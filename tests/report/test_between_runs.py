import shutil
from xml.etree import ElementTree

from rudel.report.between_runs import write_comparison
from rudel.report.read import read_run


def test_every_run_is_in_the_legend_whatever_its_name(run, tmp_path_factory):
    run.config().epochs()
    names, folder = ("_baseline", "cost $x$ & more", "_nolegend_"), tmp_path_factory.mktemp("runs")
    runs = [read_run(shutil.copytree(run.path, folder / name)) for name in names]
    write_comparison(runs, folder / "compared.html")
    page = ElementTree.fromstring((folder / "compared.html").read_text("utf-8").removeprefix("<!DOCTYPE html>"))
    drawings = list(page.iter("svg"))
    assert len(drawings) == 2  # loss, accuracy
    for drawing in drawings:
        assert set(names) <= {"".join(text.itertext()) for text in drawing.iter("text")}


def test_a_name_that_no_page_can_hold_is_shown_with_replacements(run, tmp_path_factory):
    run.config().epochs()
    folder = tmp_path_factory.mktemp("runs")
    runs = [read_run(shutil.copytree(run.path, folder / name)) for name in ("a\x01b", "fl\udcf6te")]
    write_comparison(runs, folder / "compared.html")
    page = ElementTree.fromstring((folder / "compared.html").read_text("utf-8").removeprefix("<!DOCTYPE html>"))
    assert page.findtext("head/title") == "a\ufffdb and fl\ufffdte"
    for drawing in page.iter("svg"):
        assert {"a\ufffdb", "fl\ufffdte"} <= {"".join(text.itertext()) for text in drawing.iter("text")}
