"""The page in a browser."""

import contextlib
import http.client
import http.server
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from processes import LONG
from watch_support import Served, Training, closed_round, epoch

from rudel.files import write_json
from rudel.recipes.template import write_template
from rudel.report.recordings import player
from rudel.report.report_page import document

Begin = Callable[..., Training]
Serve = Callable[..., Served]

STATE = "document.querySelector('.badge')?.textContent"
POINTS = (
    "[...document.querySelectorAll('.plots .line.validation')].map(l => l.getAttribute('d').split(/[ML]/).length - 1)"
)


@pytest.fixture
def trained(tmp_path: Path, warm_python: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `rudel train moons.py ...` into `tmp_path/run`."""
    started: list[subprocess.Popen[bytes]] = []
    write_template("moons", tmp_path)

    def train(*arguments: str) -> subprocess.Popen[bytes]:
        command = [Path(warm_python).with_name("rudel"), "train", "moons.py", "--run", "run", *arguments]
        nowhere = subprocess.DEVNULL
        started.append(subprocess.Popen(command, cwd=tmp_path, stdout=nowhere, stderr=nowhere))
        return started[-1]

    yield train
    for process in started:
        process.kill()
        process.wait()


def test_a_real_training_is_watched_while_it_goes_on_stops_and_goes_on(
    tmp_path: Path, browser: Browser, served: Serve, trained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with browser.page(served(tmp_path / "run").url) as page:
        page.until(f"{STATE} === 'Waiting'")
        first = trained("--epochs", "100000")
        page.until(f"{STATE} === 'Running'")
        few = page.value(f"{POINTS}[0]")
        page.until(f"{POINTS}[0] > {few}")
        page.until(
            r"/^\d+.% · [\d,]+ of 5,000,000 steps · epoch [\d,]+ of 100,000 · about .* left$/"
            ".test(document.querySelector('.done').textContent)"
        )
        first.send_signal(signal.SIGTERM)
        assert first.wait(LONG) == 143
        page.until(f"{STATE} === 'Stopped'")
        done = page.value("document.querySelector('.done').textContent")
        assert "left" not in done
        step = int(done.split(" of ")[0].split()[-1].replace(",", ""))
        second = trained("--epochs", str(step // 50 + 20), "--resume")
        page.until(f"{STATE} === 'Finished'")
        assert second.wait(LONG) == 0
        assert page.value("document.querySelector('progress').value") == 1
        link = page.value("document.querySelector('a[href=\"runs/0/report\"]').href")
        assert page.problems == []
        assert {address.split("/")[2] for address in page.requested} == {link.split("/")[2]}
        page.open(link)
        assert page.until("document.querySelector('h1')?.textContent") == "moons"
        assert page.value("getComputedStyle(document.body).marginTop") == "0px"  # its own styles are let through
        assert page.problems == []


class Proxy(http.server.BaseHTTPRequestHandler):
    """Forwards what is below a prefix, as a Jupyter server does."""

    port = 0
    prefix = "/user/ada/proxy/8488"

    def do_GET(self) -> None:
        if not self.path.startswith(f"{self.prefix}/"):
            self.send_error(404)
            return
        inner = http.client.HTTPConnection("127.0.0.1", self.port)
        inner.request("GET", self.path.removeprefix(self.prefix), headers=dict(self.headers.items()))
        answer = inner.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError, http.client.HTTPException):
            while part := answer.read1():
                self.wfile.write(part)
        inner.close()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextlib.contextmanager
def behind_a_prefix(port: int) -> Iterator[str]:
    """The address of a proxy for the server at this port."""
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("To", (Proxy,), {"port": port}))
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}{Proxy.prefix}/"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def test_behind_a_proxy_with_a_prefix(training: Begin, browser: Browser, served: Serve) -> None:
    run = training().begin().epochs(1)
    with behind_a_prefix(served(run.path).port) as address:
        with browser.page(address) as page:
            page.until(f"{STATE} === 'Running'")
            run.epochs(2)
            run.end()
            page.until(f"{STATE} === 'Finished'")
            link = page.value("document.querySelector('a[href=\"runs/0/report\"]').href")
            assert link == f"{address}runs/0/report"
            assert all(url.startswith((address, "data:")) for url in page.requested)
        with browser.page(link) as page:
            page.until("document.title === 'the report'")


def test_curves_numbers_and_hosts(tmp_path: Path, browser: Browser, training: Begin, served: Serve) -> None:
    run = training().begin(strategy="diloco").epochs(1, 2, 3)
    run.rounds(*(closed_round(number) for number in range(1, 4)))
    with browser.page(served(run.path).url) as page:
        page.until("document.querySelectorAll('.plots .chart .line').length === 7")
        headings = page.value("[...document.querySelectorAll('h3')].map(h => h.firstChild.textContent.trim())")
        assert headings == ["Loss", "Accuracy", "Steps a second", "Timeline", "Over the network"]
        caption = "document.querySelectorAll('figcaption')[1].textContent"
        assert page.value(caption).replace("\u202f", " ") == (
            "Latest: training 86.7 %, validation 83.3 %. Best in validation: 83.3 %, epoch 3."
        )
        rows = page.value(
            "[...document.querySelectorAll('#none, section:nth-of-type(3) tbody tr')].map(r => r.innerText)"
        )
        assert [row.split()[:4] for row in rows] == [
            ["pi@raspi1", "training", "10", "15"],
            ["pi@raspi2", "training", "10", "15"],
        ]
        run.rounds({"event": "lost", "host": "pi@raspi2", "seconds": 1.6, "reason": "it does not answer"})
        page.until("document.querySelector('.host-lost')?.textContent === 'lost'")
        page.until("document.body.innerText.includes('was lost: it does not answer')")
        assert page.problems == []


def test_by_keyboard_and_for_those_who_do_not_see_it(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    run = training().begin().epochs(1, 2, 3)
    with browser.page(served(run.path).url) as page:
        page.until("document.querySelectorAll('.chart .line').length > 3")
        page.press("Tab")
        assert page.value("document.activeElement.getAttribute('aria-label')").startswith(
            "Line plot of the loss. Latest: "
        )
        caption = "document.querySelector('figcaption').textContent"
        page.press("ArrowRight")
        assert page.value(caption) == "Epoch 1: training 1, validation 1.1."
        page.press("ArrowRight")
        assert page.value(caption) == "Epoch 2: training 0.5, validation 0.55."
        page.press("End")
        assert page.value(caption).startswith("Epoch 3: ")
        run.epochs(4)
        page.until(f"{POINTS}[0] === 4")
        assert page.value(caption).startswith("Epoch 3: ")  # what is new takes nobody's place away
        page.press("Tab")
        assert page.value(caption).startswith("Latest: ")
        assert page.value("document.querySelector('[role=status]').textContent") == "The training is running."
        unnamed = (
            "[...document.querySelectorAll('svg[role=img], progress, [role=region]')]"
            ".filter(part => part.checkVisibility() && !part.ariaLabel).length"
        )
        assert page.value(unnamed) == 0
        assert page.value("document.documentElement.lang") == "en"
        page.value("document.querySelector('summary').click()")
        assert page.until("document.querySelector('details tbody')?.rows.length") == 4
        assert page.value("document.querySelector('details tbody').rows[1].innerText").split()[:2] == ["2", "0.5"]


def test_on_a_phone_nothing_is_wider_than_the_screen(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    run = training(tmp_path / (20 * "a_long_name")).begin().epochs(1, 2)
    run.rounds(closed_round(1, ("a-user-with-a-name@a-host-with-a-long-name.example", "b")))
    with browser.page(served(run.path).url, 360, 740) as page:
        page.until("document.querySelectorAll('.timeline svg').length === 1")
        assert page.value("document.documentElement.scrollWidth") == 360
        drawn = page.value(
            "[...document.querySelectorAll('main svg')].map(s => s.getBoundingClientRect()).map(b => [b.left, b.right])"
        )
        assert all(left >= 0 and right <= 360 for left, right in drawn)


def test_dark_and_light(browser: Browser, training: Begin, served: Serve) -> None:
    run = training().begin().epochs(1, 2)
    address = served(run.path).url
    for scheme in ("light", "dark"):
        with browser.page(address, prefers_color_scheme=scheme) as page:
            page.until("document.querySelectorAll('.line').length > 3")
            colours = [
                page.value(f"getComputedStyle(document.querySelector('{part}')).{name}")
                for part, name in (
                    ("body", "backgroundColor"), ("body", "color"), (".line.train", "stroke"), (".badge", "color"),
                    (".line.validation", "stroke"), (".chart text", "fill"), (".done", "color"),
                )
            ]  # fmt: skip
            ground, *inks = (luminance(colour) for colour in colours)
            assert (ground > 0.5) == (scheme == "light")
            ratios = [(max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) for ink in inks]
            assert min(ratios) >= 4.5, (scheme, ratios)


def test_why_a_training_failed(browser: Browser, training: Begin, served: Serve) -> None:
    run = training().begin().epochs(1)
    with browser.page(served(run.path).url) as page:
        page.until(f"{STATE} === 'Running'")
        write_json(run.path / "failure.json", {"error": "The loss became NaN at <b>step</b> 12."})
        run.stop()
        page.until(f"{STATE} === 'Failed'")
        assert (
            page.value("document.querySelector('[role=status]').textContent")
            == "The loss became NaN at <b>step</b> 12."
        )


def test_several_runs_are_compared(tmp_path: Path, browser: Browser, training: Begin, served: Serve) -> None:
    training(tmp_path / "small").begin().epochs(1, 2).stop()
    large = training(tmp_path / "large").begin().epochs(1)
    with browser.page(served(tmp_path / "small", tmp_path / "large").url) as page:
        page.until("document.querySelectorAll('.card').length === 2")
        names = "[...document.querySelectorAll('.several > section .chart .name')].slice(0, 2).map(n => n.textContent)"
        assert page.until(f"{names}.length === 2 && {names}") == ["small", "large"]
        assert page.value("[...document.querySelectorAll('.card .badge')].map(b => b.textContent)") == [
            "Stopped",
            "Running",
        ]
        assert page.value("document.querySelectorAll('.several > section .run-1.line').length") == 2
        large.epochs(2, 3, 4).end()
        page.until("document.querySelectorAll('.card .badge')[1].textContent === 'Finished'")
        page.value("document.querySelectorAll('.several details summary')[2].click()")
        page.until("document.querySelectorAll('.several section details[open] .line').length > 3")
        assert page.problems == []


def test_each_run_has_the_colour_of_its_state(tmp_path: Path, browser: Browser, training: Begin, served: Serve) -> None:
    training(tmp_path / "done").begin().epochs(1).end()
    failed = training(tmp_path / "failed").begin().epochs(1)
    write_json(failed.path / "failure.json", {"error": "The disk is full."})
    failed.stop()
    with browser.page(served(tmp_path / "done", tmp_path / "failed").url) as page:
        page.until("document.querySelectorAll('.card .badge')[1]?.textContent === 'Failed'")
        colours = page.value("[...document.querySelectorAll('.card .badge')].map(b => getComputedStyle(b).color)")
        style = "getComputedStyle(document.documentElement).getPropertyValue"
        tones = page.value(f"['--ok', '--bad'].map(tone => {style}(tone).slice(1))")
        assert [re.findall(r"\d+", colour) for colour in colours] == [
            [str(part) for part in bytes.fromhex(tone)] for tone in tones
        ]


def test_runs_without_validation_beside_one_with(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    runs = [tmp_path / name / "seed1/model" for name in ("experiment_a", "experiment_b", "other")]
    for run in runs:
        run.parent.mkdir(parents=True)
        lines = [epoch(number) for number in (1, 2)]
        if run != runs[0]:
            lines = [{key: line[key] for key in line if not key.startswith("val_")} for line in lines]
        training(run).begin().metrics(*lines)
    with browser.page(served(*runs).url) as page:
        names = "[...document.querySelector('.several > section .chart').querySelectorAll('.name')]"
        page.until(f"{names}.length === 3")
        assert page.value(f"{names}.map(n => n.textContent)") == ["…a/seed1/m…", "…b/seed1/m…", "other/see…"]
        assert page.value("document.querySelector('.several > section h3 small').textContent") == ""
        grid = [f"experiment-{number}{letter}/seed1/model" for number in (1, 2) for letter in "ab"]
        short = page.value(f"import('./page/chart.js').then(({{ shortened }}) => shortened({grid}))")
        assert short == ["…1a/seed1/…", "…1b/seed1/…", "…2a/seed1/…", "…2b/seed1/…"]


def test_values_that_differ_little_have_different_ticks(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        lines = [epoch(n, loss=2.3025 + n / 5000, accuracy=0.999 + n / 20000) for n in (1, 2, 3)]
        training(run).begin().metrics(*[{key: line[key] for key in line if key[:4] != "val_"} for line in lines])
    ticks = "[...chart.querySelectorAll('text[text-anchor=end]')].map(tick => tick.textContent)"
    for shown in (runs[:1], runs):
        with browser.page(served(*shown).url) as page:
            page.until("document.querySelectorAll('.plots .line').length > 1")
            charts = page.value(f"[...document.querySelectorAll('.plots .chart')].slice(0, 2).map(chart => {ticks})")
            assert all(len(set(found)) == len(found) > 2 for found in charts), charts


def test_runs_of_the_same_name_have_names_of_their_own(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    runs = [tmp_path / "laptop/digits-large", tmp_path / "server/digits-large"]
    for run in runs:
        training(run).begin().epochs(1, 2)
    with browser.page(served(*runs).url) as page:
        names = "[...document.querySelectorAll('.several > section .chart .name')].slice(0, 2).map(n => n.textContent)"
        assert page.until(f"{names}.length === 2 && {names}") == ["laptop/di…", "server/di…"]
        latest = page.value("document.querySelector('figcaption').textContent")
        assert "laptop/digits-large 0.55, server/digits-large 0.55" in latest


def test_the_server_may_come_back_with_more_runs_or_fewer(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        training(run).begin().epochs(1)
    server = served(runs[0])
    with browser.page(server.url) as page:
        page.until(f"{STATE} === 'Running'")
        for count in (2, 1):
            server.end()
            server = served(*runs[:count], port=server.port)
            page.value("document.dispatchEvent(new Event('visibilitychange'))")  # tries again at once
            page.until(f"document.querySelectorAll('main > * > header, .card').length === {count}")
            page.until("document.querySelector('.lost').hidden")
        assert not [problem for problem in page.problems if "TypeError" in problem]


def test_many_tabs_are_served_and_show_what_is_new(
    tmp_path: Path, browser: Browser, training: Begin, served: Serve
) -> None:
    run = training().begin().epochs(1)
    address = served(run.path).url
    with browser.page(address) as first:
        page = first
        for _ in range(7):
            page = page.another(address)
            page.until(f"{STATE} === 'Running'", 20)
        assert first.value("document.hidden")
        assert first.value("document.title").replace("\u202f", " ") == "25 % · Digits – Rudel"
        run.epochs(2)
        page.until("document.title.startsWith('50')")
        first.ask("Page.bringToFront")
        first.until("document.title.startsWith('50')")


def test_a_report_with_sound_can_be_heard(browser: Browser, training: Begin, served: Serve) -> None:
    run = training().begin().epochs(1)
    run.end()
    sound = player(np.zeros(800, np.int16), 8000, "silence")
    (run.path / "report.html").write_text(document("the report", sound))
    with browser.page(f"{served(run.path).url}runs/0/report") as page:
        heard = """new Promise((done) => {
          const audio = document.querySelector("audio");
          audio.onloadedmetadata = () => done(audio.duration);
          audio.onerror = () => done(audio.error.message);
          audio.load();
        })"""
        page.until("document.querySelector('audio') !== null")
        page.value("document.querySelector('audio').preload = 'auto'")
        assert page.value(heard) == 0.1
        assert page.problems == []


def test_when_the_server_is_gone_the_page_says_so_and_comes_back(
    tmp_path: Path, browser: Browser, training: Begin, command: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    run = training().begin().epochs(1)
    process, address = command("run", "--port", "0")
    with browser.page(address) as page:
        page.until(f"{STATE} === 'Running'")
        assert page.value("document.querySelector('.lost').hidden")
        process.send_signal(signal.SIGINT)
        page.until("!document.querySelector('.lost').hidden")
        assert process.wait(LONG) == 130
        assert page.value(STATE) == "Running"  # what was seen last stays
        run.epochs(2)
        command("run", "--port", address.split(":")[-1].rstrip("/"))
        page.until("document.querySelector('.lost').hidden")
        page.until(f"{POINTS}[0] === 2")


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(...)`, as WCAG defines it."""
    shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
