import io
import itertools
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from rudel.loop.schedule import plan_schedule
from rudel.replicas.rounds import Arrival, GlobalState, HostChanged, HostReport, RoundClosed
from rudel.session.replicas_display import MOST_LINES, HostLines
from rudel.session.training_display import Display, RichDisplay, choose_display

NAMES = ("raspi1", "raspi2", "raspi3", "raspi4")
NOTHING = np.empty(0, np.float32)


def report_of(name, steps=100, seconds=1.0, waited=0.25):
    return HostReport(name, steps, seconds, waited, 3, 349_000_000, cpu=0.4 * seconds, sent=20_000, received=10_000)


def closed(number, seconds, replicas, sent=0, received=0, arrivals=()):
    return RoundClosed(
        GlobalState(number, 0, NOTHING, NOTHING, NOTHING, []),
        seconds,
        list(replicas),
        [],
        [],
        sent,
        received,
        None,
        arrivals,
    )


def cells_of(line):
    return re.split(" +", line)


class Training:
    """Rounds of a second, shown at a clock that stands where the training does."""

    def __init__(self, names=NAMES):
        self.now, self.names, self._numbers = 1000.0, list(names), itertools.count(1)
        self.lines = HostLines(lambda: self.now)

    def rounds(self, count, **figures):
        for number in itertools.islice(self._numbers, count):
            self.now = 1000.0 + number
            moved = 6_000 * number
            self.lines.round(closed(number, float(number), [report_of(n, **figures) for n in self.names], moved, moved))
        return self

    def event(self, event, name, seconds, reason=""):
        self.now = 1000.0 + seconds
        return self.lines.change(HostChanged(name, event, seconds, reason))

    def shown(self, width=120):
        return self.lines.text(width).plain.splitlines()

    def cells(self, name):
        return next(cells_of(line)[1:] for line in self.shown() if line.startswith(name))


def test_there_are_no_lines_before_the_first_round():
    assert not Training().lines.text(80)


def test_a_line_for_each_host_and_one_for_all():
    lines = Training().rounds(5).shown()
    assert [line.split()[0] for line in lines] == ["steps/s", *NAMES, "round"]
    assert cells_of(lines[1]) == [
        "raspi1",
        "training",
        "100",
        "25\u202f%",
        "40\u202f%",
        "349\u202fMB",
        "30\u202fkB",
        "now",
    ]
    assert lines[-1] == "round 5 · computing 75\u202f%, waiting 25\u202f% · network 60\u202fkB, 12\u202fkB/s"


@pytest.mark.parametrize(("counted", "line"), [("rounds", "round 2 "), ("arrivals", "arrivals 6 ")])
def test_the_line_for_all_counts_rounds_or_arrivals(counted, line):
    lines = HostLines(lambda: 2.0)
    lines.begin(NAMES[:3], counted)
    for number in (1, 2):
        reports = [report_of(name) for name in NAMES[:3]]
        lines.round(closed(number, float(number), reports, arrivals=(Arrival(b"", 1),) * 3))
    assert lines.text(120).plain.splitlines()[-1].startswith(line)


def test_speeds_are_those_of_the_last_seconds():
    training = Training().rounds(30)
    assert training.rounds(20, steps=10).cells("raspi1")[1] == "10"


def test_a_host_that_contributes_next_to_nothing_is_named_once():
    lines, notes = HostLines(), []
    for number in range(1, 60):
        steps = {"raspi1": 100, "raspi2": 90, "raspi3": number % 2}
        notes.append(lines.round(closed(number, float(number), [report_of(n, steps=s) for n, s in steps.items()])))
    (told_of,) = [sentences for sentences in notes if sentences]
    assert told_of == [
        "raspi3 contributes next to nothing: it takes 0.3\u202f% of the steps, and without it the training is as fast."
    ]
    assert not any(notes[:19]), "not before that is known"
    screen = io.StringIO()
    display = RichDisplay(Console(file=screen, width=160))
    for number in range(1, 30):
        display.round(closed(number, float(number), [report_of("raspi1"), report_of("raspi3", steps=1)]))
    assert screen.getvalue().count("raspi3 contributes next to nothing") == 1


def test_a_host_on_standby_is_named_and_has_a_line():
    screen = io.StringIO()
    display = RichDisplay(Console(file=screen, width=160))
    display.start(plan_schedule(10_000, 32, None, 100, 0), 0, 0.0)
    display.hosts(["raspi1", "raspi2"])
    display.host(HostChanged("raspi2", "standby", 0.0, "it is 50 times slower than the fastest host"))
    for number in range(1, 60):
        display.round(closed(number, float(number), [report_of("raspi1")]))
    display.stop()
    message = "raspi2 is on standby: it is 50 times slower than the fastest host; 1 host trains."
    assert " ".join(screen.getvalue().split()).count(message) == 1
    assert "raspi2 contributes" not in screen.getvalue()
    training = Training(["raspi1"])
    training.event("standby", "raspi2", 0.0)
    assert training.rounds(5).cells("raspi2")[0] == "standby"


SILENT = "raspi2 contributes next to nothing: it takes 0.0\u202f% of the steps, and without it the training is as fast."


@pytest.mark.parametrize("rounds", [5, 60])
def test_a_host_that_never_answers_is_named_once_and_has_a_line(rounds):
    screen = io.StringIO()
    display = RichDisplay(Console(file=screen, width=160))
    display.start(plan_schedule(10_000, 32, None, 100, 0), 0, 0.0)
    display.hosts(["raspi1", "raspi2", "raspi3"])
    display.host(HostChanged("raspi3", "lost", 0.5, "its connection was closed"))
    for number in range(1, rounds):
        display.round(closed(number, float(number), [report_of("raspi1")]))
    display.stop()
    assert screen.getvalue().count(SILENT) == 1
    assert "raspi3 contributes" not in screen.getvalue()
    training = Training(["raspi1"])
    training.lines.begin(NAMES)
    assert training.rounds(5).cells("raspi2")[0] == "late"


def test_a_lost_host_says_so_until_it_is_back():
    training = Training().rounds(4)
    sentence = training.event("lost", "raspi2", 4.5, "it did not answer in time")
    assert sentence == "raspi2 was lost: it did not answer in time; 3 hosts train."
    training.names.remove("raspi2")
    training.rounds(4)
    assert training.cells("raspi2") == ["lost", "–", "–", "–", "349\u202fMB", "30\u202fkB", "4", "s", "ago"]
    assert training.event("joining", "raspi2", 8.0) == "raspi2 is joining; 3 hosts train."
    assert training.cells("raspi2")[0] == "joining"
    assert training.event("joined", "raspi2", 8.5) == "raspi2 is back after 4.00\u202fs; 4 hosts train."
    assert training.cells("raspi2")[0] == "training"
    training.names.append("raspi2")
    assert training.rounds(1, steps=60).cells("raspi2")[:2] == ["training", "120"]  # half a second


def test_a_round_that_ends_late_does_not_bring_a_lost_host_back():
    training = Training().rounds(2)
    training.event("lost", "raspi2", 2.5, "its connection was closed")
    assert training.rounds(1).cells("raspi2")[0] == "lost"


def test_new_hosts_and_the_last_that_is_lost():
    training = Training(["1"]).rounds(2)
    assert training.event("joined", "raspi9", 2.5) == "raspi9 has joined; 2 hosts train."
    training.event("lost", "raspi9", 2.6, "its connection was closed")
    last = training.event("lost", "1", 2.7, "its connection was closed")
    assert last == "host 1 was lost: its connection was closed; no host is left, waiting for one to come back."


def test_a_host_that_mostly_waits_and_one_that_is_not_heard_of():
    training = Training().rounds(3, waited=0.75)
    assert training.cells("raspi1")[0] == "waiting"
    training.rounds(3)
    training.names.remove("raspi3")
    training.rounds(8)
    assert training.cells("raspi1")[0] == "training"
    assert training.cells("raspi3")[0] == "late"


def test_of_many_hosts_only_those_that_do_not_train_have_a_line():
    training = Training([f"raspi{n}" for n in range(1, 65)]).rounds(3)
    training.event("lost", "raspi33", 3.5, "it did not answer in time")
    lines = training.shown()
    assert [line.split()[0] for line in lines] == ["steps/s", "raspi33", "64", "round"]
    assert lines[2] == "64 hosts: 63 training, 1 lost, 100 to 100 steps/s each"
    for n in range(1, 60):
        training.event("lost", f"raspi{n}", 4.0, "")
    assert len(training.shown()) == MOST_LINES + 3


@pytest.mark.parametrize("width", [40, 80, 200])
def test_long_names_make_room_for_the_figures(width):
    training = Training(["somebody@a-long-name.of-a-host.example.org:2222", "b"]).rounds(2)
    line = training.shown(width)[2]
    assert "2222  training" in line
    assert len(line) <= max(width, 70)


def test_the_whole_display_on_a_terminal():
    screen = io.StringIO()
    display = RichDisplay(Console(file=screen, force_terminal=True, width=140, height=30))
    schedule = plan_schedule(960, 32, epochs=4, steps=None, seed=0, shuffle=True)
    display.start(schedule, 0, 0.0)
    for number in range(1, 5):
        display.advance(30 * number, {"loss": 0.5}, float(number))
        display.round(closed(number, float(number), [report_of(name) for name in NAMES]))
    display.host(HostChanged("raspi2", "lost", 4.5, "it did not answer in time"))
    display.stop()
    shown = screen.getvalue()
    assert "4.50\u202fs  raspi2 was lost: it did not answer in time; 3 hosts train." in shown
    assert re.search(r"raspi4  \x1b\[32mtraining", shown)
    assert "round 4 · computing 75\u202f%" in shown


class Log:
    """What some programs put in the place of standard error."""

    def write(self, text):
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize("stream", [None, Log()])
def test_where_standard_error_is_no_terminal_there_is_no_display(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(choose_display("auto")) is Display
    display = choose_display(True)
    display.start(plan_schedule(960, 32, epochs=1, steps=None, seed=0, shuffle=True), 0, 0.0)
    display.advance(30, {"loss": 0.5}, 1.0)
    display.stop()


def test_where_standard_error_is_a_file_events_of_hosts_are_lines(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    display = choose_display("auto", on_hosts=True)
    display.start(plan_schedule(960, 32, epochs=1, steps=None, seed=0, shuffle=True), 0, 60.0)
    display.hosts(NAMES)
    for number in range(1, 3):
        display.round(closed(number, float(number), [report_of(name) for name in NAMES]))
    display.host(HostChanged("raspi2", "lost", 3.0, "it did not answer in time"))
    display.note("Something to know.")
    display.stop()
    event = "1 min 3 s  raspi2 was lost: it did not answer in time; 3 hosts train."
    assert log.getvalue().replace("\u202f", " ").splitlines() == [event, "Something to know."]
    log.close()
    display.note("Nobody reads it.")
    assert type(choose_display(False, on_hosts=True)) is Display
    monkeypatch.setattr(sys, "stderr", None)
    assert type(choose_display("auto", on_hosts=True)) is Display


def test_on_one_computer_there_is_nothing_below_the_bar():
    screen = io.StringIO()
    display = RichDisplay(Console(file=screen, force_terminal=True, width=140, height=30))
    display.start(plan_schedule(960, 32, epochs=1, steps=None, seed=0, shuffle=True), 0, 0.0)
    display.advance(30, {"loss": 0.5}, 1.0)
    display.stop()
    assert "round" not in screen.getvalue()
    assert "\x1b[1A" not in screen.getvalue().removesuffix("\x1b[1A\x1b[2K")  # one line, never two


def test_a_notebook_without_ipywidgets_has_a_bar_until_the_training_ends(monkeypatch):
    shown = []

    class Cell:
        """What IPython's `display` returns: an output of the cell that is replaced."""

        def update(self, output, raw=False):
            shown.append(output["text/plain"] if raw else output._repr_mimebundle_((), ())["text/plain"])

    def show(output, display_id=False):
        shown.append(output._repr_mimebundle_((), ())["text/plain"])
        return Cell() if display_id else None

    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=show))
    display = RichDisplay(Console(force_jupyter=True))
    display.start(plan_schedule(320, 32, 2, None, 0), 0, 0.0)
    display.advance(5, {"loss": 0.25}, 1.0)
    display.epoch({"epoch": 1, "loss": 0.125})
    display.stop()
    display.advance(10, {"loss": 0.25}, 10.0)
    first, bar, line, last = shown
    assert "0/20 steps" in first
    assert "5/20 steps" in bar
    assert "loss 0.2500" in bar
    assert "epoch 1  loss 0.1250" in line
    assert not last
