"""The page in a browser: what it guesses, how it is used, and that it keeps to itself."""

import dataclasses
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from browser import Browser, Page
from play_support import CLASSES, draw, draw_stroke, folder_server, guessed, serving
from predicting import predict_files

from rudel.errors import DataError
from rudel.export.exporting import Exported
from rudel.play.drawing import Drawing
from rudel.play.page_files import POLICY, write_page
from rudel.play.play_server import PlayServer
from rudel.play.player import Player

NAMES = """[...document.querySelectorAll("button, canvas, summary, [role]")].filter((one) => one.checkVisibility()
  && !(one.getAttribute("aria-label") || one.textContent.trim() || one.getAttribute("aria-labelledby"))).length"""


def test_real_drawings_are_taken_for_what_predict_takes_their_bitmaps_for(
    run: Path, static_address: str, opened: Callable[..., Any], real: Callable[[int], Any], tmp_path: Path
) -> None:
    drawings = real(3)
    np.save(tmp_path / "bitmaps.npy", np.stack([bitmap for _, bitmap in drawings]))
    expected = [prediction.ranking[0][0] for prediction in predict_files(run, [tmp_path / "bitmaps.npy"])]
    with opened(static_address) as page:
        found = [draw(page, drawing) for drawing, _ in drawings]
        assert page.value("document.getElementById('where').textContent") == "this page, on your device"
        assert page.problems == []
    assert np.mean([a == b for a, b in zip(found, expected, strict=True)]) >= 0.97


def test_without_a_network_it_guesses(exported: Path, browser: Browser, real: Callable[[int], Any]) -> None:
    server = folder_server(exported)
    with browser.page() as page:
        with serving(server) as address:
            page.open(address)
            page.until("document.body.dataset.ready && navigator.serviceWorker.ready.then(() => true)")
            page.until("navigator.serviceWorker.controller !== null")
        page.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        page.value("document.body.dataset.ready = ''")
        page.open(address)
        page.until("document.body.dataset.ready === 'true'")
        assert draw(page, real(1)[7][0]) in CLASSES
        assert page.problems == []


def write_fixed_page(folder: Path, classes: list[str]) -> None:
    """Writes a page whose model takes everything for the first class."""
    folder.mkdir(exist_ok=True)
    shares = [1, *(0 for _ in classes[1:])]
    (folder / "fixed.js").write_text(f"export const load = async () => ({{ run: () => {shares} }});")
    about = {"classes": classes, "side": 28, "lineWidth": 16, "inputSide": 28, "margin": None, "logits": False}
    write_page(folder, about | {"module": "fixed.js", "offline": True, "attribution": ""})


@pytest.fixture
def fixed_address(tmp_path: Path) -> Iterator[str]:
    """Where a page of the classes `cat` and `constructor` is served, which takes everything for a `cat`."""
    write_fixed_page(tmp_path / "fixed", ["cat", "constructor"])
    with serving(folder_server(tmp_path / "fixed")) as address:
        yield address


def test_what_the_server_has_comes_before_what_the_browser_keeps(browser: Browser, tmp_path: Path) -> None:
    folder, unanswered = tmp_path / "page", set[str]()
    shown = "[...document.querySelectorAll('#bars li')].map((one) => one.dataset.name)"
    failed = "document.getElementById('problem').textContent.startsWith('The model could not be loaded')"
    with serving(folder_server(folder, unanswered)) as address, browser.page() as page:
        write_fixed_page(folder, ["cat", "dog"])
        page.open(address)
        page.until("document.body.dataset.ready && navigator.serviceWorker.controller !== null")
        unanswered.add("/model.json")
        page.open(address)
        assert page.until(f"document.body.dataset.ready && {shown}") == ["cat", "dog"], "the same version is kept"
        write_fixed_page(folder, ["cat", "fish"])
        page.open(address)
        assert page.until(failed), "a new page does not take the old model"
        unanswered.clear()
        page.open(address)
        assert page.until(f"document.body.dataset.ready && {shown}") == ["cat", "fish"]
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "index.html").write_text("<title>another site</title>")
        os.utime(folder / "index.html", (0, 0))
        page.open(address)
        page.until("document.title === 'another site'")
        page.until("navigator.serviceWorker.getRegistrations().then((found) => found.length === 0)")
        assert page.value("caches.keys()") == []


def test_why_the_server_does_not_guess_is_shown(player: Player, browser: Browser) -> None:
    def refuse(image: Any) -> NoReturn:
        raise DataError("There is too little ink in this drawing.")

    refusing = dataclasses.replace(player, drawing=Drawing(64, 48, 28, by_recipe=True), read_image=refuse)
    problem = "!document.getElementById('problem').hidden && document.getElementById('problem').textContent"
    with serving(PlayServer(refusing)) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        draw_stroke(page, [[0, 255], [0, 255]])
        assert page.until(problem) == "There is too little ink in this drawing."
        page.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        draw_stroke(page, [[255, 0], [0, 255]])
        page.until("document.getElementById('problem').textContent.startsWith('Rudel no longer answers.')")


def test_it_asks_for_nothing_but_its_own_files(
    static_address: str, served_address: str, opened: Callable[..., Any], real: Callable[[int], Any]
) -> None:
    for address in (static_address, served_address):
        with opened(address) as page:
            draw(page, real(1)[0][0])
            assert {url[: len(address)] for url in page.requested} == {address}
            assert page.value("document.querySelector('meta[http-equiv]').content") == POLICY
            assert page.value("fetch('http://127.0.0.1:9/').then(() => 'went out', () => 'kept in')") == "kept in"


def test_the_server_guesses_where_the_page_cannot(
    run: Path, served_address: str, opened: Callable[..., Any], real: Callable[[int], Any], tmp_path: Path
) -> None:
    drawing, bitmap = real(1)[9]
    np.save(tmp_path / "fish.npy", bitmap)
    ranking = predict_files(run, [tmp_path / "fish.npy"])[0].ranking
    with opened(served_address) as page:
        assert draw(page, drawing) == ranking[0][0]
        assert page.value("document.getElementById('where').textContent") == "Rudel on this computer"
        share = page.value("document.querySelector('#bars li').innerText").split()[-1]
        assert int(share.strip("%")) / 100 == pytest.approx(ranking[0][1], abs=0.05)


def test_the_server_guesses_where_the_browser_cannot_run_the_model(
    player: Player, opened: Callable[..., Any], real: Callable[[int], Any], tmp_path: Path
) -> None:
    (tmp_path / "net.js").write_text("export const load = async () => { throw new WebAssembly.CompileError('SIMD'); };")
    with serving(PlayServer(player, module=lambda: tmp_path)) as address, opened(address) as page:
        assert draw(page, real(1)[9][0]) in CLASSES
        assert page.value("document.getElementById('where').textContent") == "Rudel on this computer"


def test_drawing_by_keyboard(static_address: str, opened: Callable[..., Any]) -> None:
    with opened(static_address) as page:
        page.value("document.getElementById('pad').focus()")
        for key in ["ArrowLeft"] * 6 + [" "] + ["ArrowRight"] * 12 + ["ArrowDown"] * 6 + [" "] + ["ArrowUp"] * 3:
            page.press(key)
        assert guessed(page) in CLASSES
        data = "document.getElementById('seen').getContext('2d').getImageData(0, 0, 28, 28).data"
        assert 28 <= page.value(f"[...{data}].filter((value, i) => i % 4 === 0 && value > 0).length") <= 160
        page.press("Backspace")
        page.until("document.getElementById('time').textContent === '–'")
        page.until("document.getElementById('said').textContent !== ''")


def test_focus_goes_through_all_controls_in_order(static_address: str, opened: Callable[..., Any]) -> None:
    with opened(static_address) as page:
        seen = []
        for _ in range(12):
            page.press("Tab")
            seen.append(
                page.value(
                    "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
                )
            )
            if seen[-1] == "SUMMARY":
                break
        assert seen == ["skip", "free", "play", "voice", "en", "de", "pad", "SUMMARY"]


def test_screen_readers_hear_of_guesses(
    static_address: str, opened: Callable[..., Any], real: Callable[[int], Any]
) -> None:
    with opened(static_address) as page:
        assert page.value(NAMES) == 0
        assert page.value("document.getElementById('said').ariaLive") == "polite"
        best = draw(page, real(1)[7][0])
        page.until(f"document.getElementById('said').textContent.startsWith('{best} ')")
        page.value("document.getElementById('play').click()")
        assert page.value(NAMES) == 0
        assert page.value("document.activeElement.textContent") == "Start"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(static_address: str, opened: Callable[..., Any], scheme: str) -> None:
    """At least 4.5 to 1, as WCAG wants it of small text."""
    pairs = """ink page, muted page, muted paper, on blue, blue soft, ink bar, ink card, orange paper, green card,
        ink glow, ink pressed, ink rule"""
    with opened(static_address, prefers_color_scheme=scheme) as page:
        style = "getComputedStyle(document.documentElement).getPropertyValue"
        for text, behind in (pair.split() for pair in pairs.split(",")):
            light, dark = sorted(
                (_luminance(page.value(f"{style}('--{name}')")) for name in (text, behind)), reverse=True
            )
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, behind)


def test_it_fits_on_a_phone(static_address: str, opened: Callable[..., Any]) -> None:
    with opened(static_address, width=360, height=740) as page:
        assert page.value("document.documentElement.scrollWidth") == 360
        board, bars = page.value(
            "['frame', 'bars'].map((id) => document.getElementById(id).getBoundingClientRect().bottom)"
        )
        assert board < bars < 740
        small = "[...document.querySelectorAll('button')].filter((b) => b.checkVisibility()).map((b) => b.offsetHeight)"
        assert min(page.value(small)) >= 40


def test_it_speaks_german(static_address: str, opened: Callable[..., Any], real: Callable[[int], Any]) -> None:
    with opened(static_address) as page:
        draw(page, real(1)[7][0])
        page.value("document.getElementById('de').click()")
        assert page.value("document.documentElement.lang") == "de"
        assert page.value("document.getElementById('pad').ariaLabel") == "Zeichenfläche"
        text = page.value("document.getElementById('top').textContent")
        assert text[0].isupper()
        english = page.value("document.querySelector('#bars li').dataset.name")
        assert text != english


def test_a_class_is_called_by_its_name_whatever_that_is(fixed_address: str, opened: Callable[..., Any]) -> None:
    with opened(fixed_address) as page:
        page.value("document.getElementById('de').click()")
        bars = page.value("[...document.querySelectorAll('#bars li')].map((one) => one.children[1].textContent)")
        assert bars == ["Katze", "constructor"]


@pytest.mark.parametrize(("language", "said"), [("en", "Skipped"), ("de", "Übersprungen")])
def test_a_word_that_is_skipped(fixed_address: str, opened: Callable[..., Any], language: str, said: str) -> None:
    with opened(fixed_address) as page:
        page.value(f"document.getElementById('{language}').click()")
        page.value("document.getElementById('play').click()")
        _press_go(page)
        _press_go(page)
        page.value("document.getElementById('pass').click()")
        assert page.value("document.querySelector('.verdict').textContent").startswith(said)


def test_a_game_from_start_to_end(
    static_address: str, opened: Callable[..., Any], real: Callable[[int], Any], drawings_folder: Path
) -> None:
    """Draws each word as others have drawn it, until it is recognised, or passes after three."""
    by_class: dict[str, list[Any]] = {}
    for i, (drawing, _) in enumerate(real(4)):
        by_class.setdefault(CLASSES[i // 4], []).append(drawing)
    with opened(static_address) as page:
        page.value("document.getElementById('play').click()")
        _press_go(page)
        for number in range(1, 7):
            wanted = page.value("document.querySelector('.draw').textContent")
            _press_go(page)
            assert page.value("document.getElementById('round').textContent") == f"Word {number} of 6"
            assert page.value("document.activeElement.id") == "pad"
            for drawing in by_class[wanted]:
                _draw_in_game(page, drawing)
                if page.value("document.getElementById('task').hidden"):
                    break
            else:
                page.value("document.getElementById('pass').click()")
            assert page.value("document.getElementById('task').hidden")
        results = page.value("[...document.querySelectorAll('.results li')].map((one) => one.className)")
        right = results.count("right")
        assert len(results) == 6
        assert right >= 2
        assert page.value("document.querySelector('.score').textContent").startswith(f"{right} of 6 recognised")
        page.value("[...document.querySelectorAll('.actions button')].at(-1).click()")
        assert page.value("document.getElementById('card').hidden")
        assert draw(page, real(1)[0][0]) in CLASSES
        assert page.problems == []


def test_time_runs_out(static_address: str, opened: Callable[..., Any]) -> None:
    """In virtual time: twenty seconds pass at once."""
    with opened(static_address) as page:
        page.value("document.getElementById('play').click()")
        _press_go(page)
        _press_go(page)
        page.ask("Emulation.setVirtualTimePolicy", policy="advance", budget=21_000)
        page.until("document.getElementById('task').hidden")
        assert page.value("document.querySelector('.verdict').textContent").startswith("Time is up")


def test_a_note_says_how_to_serve_it(export: Exported) -> None:
    command = export.notes[-1].removeprefix("Try it: ")
    assert shlex.split(command) == ["python3", "-m", "http.server", "--directory", str(export.path)]


def test_opened_as_a_file_it_says_what_to_do(exported: Path, browser: Browser, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "page")
    with browser.page((tmp_path / "page/index.html").as_uri()) as page:
        page.until("!document.getElementById('problem').hidden")
        assert "python3 -m http.server" in page.value("document.getElementById('problem').textContent")


def _press_go(page: Page) -> None:
    page.until("document.activeElement.classList.contains('go')")
    page.press("Enter")


def _draw_in_game(page: Page, drawing: Any) -> None:
    if not page.value("document.getElementById('clear').disabled"):
        page.value("document.getElementById('clear').click()")
    for stroke in drawing:
        if page.value("document.getElementById('task').hidden"):
            return
        draw_stroke(page, stroke)
        page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.until("document.getElementById('bars').ariaBusy === 'false'")


def _luminance(colour: str) -> float:
    shares = [int(colour.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
