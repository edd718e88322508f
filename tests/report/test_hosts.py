import re

import pytest

from rudel.report.hosts_timeline import shortened, time_ticks

HOSTS = ("pi@raspi1", "pi@raspi2", "pi@raspi3")
SPREAD = {
    "strategy": "diloco",
    "strategy_options": {"round_steps": 100, "rate_factor": None},
    "hosts": list(HOSTS),
    "steps": 2500,
    "samples": 240_000,
    "rounds": 30,
    "bytes_sent": 900_000,
    "bytes_received": 600_000,
    "workers_lost": 1,
    "workers_joined": 1,
    "train_seconds": 30.0,
}


def log(count=30, hosts=HOSTS, slow=None, events=()):
    """Rounds of a second each, with 100 steps and an eighth of waiting; events as (round, event, host, reason)."""
    lines, away = [], set()
    sent = received = step = 0
    for number in range(1, count + 1):
        for when, event, host, reason in events:
            if when == number:
                lines.append({"event": event, "host": host, "seconds": number - 0.5, "reason": reason})
                (away.discard if event == "joined" else away.add)(host)
        there = [host for host in hosts if host not in away]
        by_host = {
            host: {
                "steps": 50 if host == slow else 100,
                "seconds": 1.0,
                "waited": 0.125,
                "merged_at": 5,
                "memory": 340_000_000,
                "cpu": 0.2,
                "sent": 1000,
                "received": 1000,
            }
            for host in there
        }
        step += sum(figures["steps"] for figures in by_host.values())
        sent, received = sent + 10_000 * len(there), received + 20_000 * len(there)
        lines.append(
            {
                "round": number,
                "step": step,
                "seconds": float(number),
                "sent": sent,
                "received": received,
                "hosts": by_host,
            }
        )
    return lines


LOST = [(10, "lost", HOSTS[1], "it did not answer in time"), (20, "joined", HOSTS[1], "")]


@pytest.fixture
def spread_run(run):
    return run.config().epochs().summary(**SPREAD)


def section(page):
    (found,) = [part for part in page.all("section") if part.get("id") == "hosts"]
    return found


def words(part):
    return " ".join("".join(part.itertext()).split())


def test_a_run_on_one_computer_has_no_such_section(run):
    page = run.config().epochs().summary().report()
    assert "hosts" not in page.sections
    assert "over the network" not in page.words("header")


def test_what_it_says_of_three_hosts(spread_run):
    page = spread_run.rounds(log()).report()
    assert page.sections == ["learning", "hosts", "time", "ran"]
    text = words(section(page))
    assert "3 hosts took 9,000 steps in 30 rounds: computing 88 % of their time, waiting 13 %" in text
    assert "Each took about 33 % of the steps." in text
    assert "A round sent 10 kB to a host and brought 20 kB back, 2.7 MB in all rounds" in text
    assert "All the model's weights would have been 817 kB, each way." in text
    assert page.table("Host by host")[0] == [
        HOSTS[0], "3,000", "33.3\u202f%", "100", "87.5\u202f%", "12.5\u202f%", "20.0\u202f%", "340\u202fMB",
        "2\u202fkB", "0",
    ]  # fmt: skip
    assert "Events" not in text


def test_the_rest_of_the_page_knows_of_the_rounds(spread_run):
    page = spread_run.rounds(log()).report()
    header = page.words("header")
    for text in ("steps/s300", "rounds30", "over the network1.5 MB", "3 hosts"):
        assert text in header
    (training,) = [row for row in page.table("Parts of the run's time") if row[0] == "training"]
    assert training[1] == "rounds: computing 88\u202f%, waiting 13\u202f%"
    ran = page.words()
    for text in ("9,000 in all, 2,500 a host", "round_steps = 100, rate_factor = none", "1, and 1 joined"):
        assert text in ran


def test_a_slow_host_took_fewer_steps(spread_run):
    text = words(section(spread_run.rounds(log(slow=HOSTS[2])).report()))
    assert "Most of the steps were taken by pi@raspi1, 40 %, and fewest by pi@raspi3, 20 %." in text


def test_a_host_that_contributes_next_to_nothing_is_named(spread_run):
    lines = log()
    for line in lines:
        line["hosts"][HOSTS[2]]["steps"] = 1
    text = words(section(spread_run.rounds(lines).report()))
    assert "pi@raspi3 contributes next to nothing: it takes 0.5 % of the steps" in text
    assert "next to nothing" not in words(section(spread_run.rounds(log(slow=HOSTS[2])).report()))


def test_a_host_on_standby_is_named(spread_run):
    lines = [
        line | {"hosts": {name: figures for name, figures in line["hosts"].items() if name != HOSTS[2]}}
        for line in log()
    ]
    standby = {
        "event": "standby",
        "host": HOSTS[2],
        "seconds": 0.0,
        "reason": "it is 50 times slower than the fastest host",
    }
    text = words(section(spread_run.rounds([standby, *lines]).report()))
    assert "is on standby: it is 50 times slower than the fastest host" in text
    assert "2 hosts took" in text
    assert "next to nothing" not in text


def test_a_host_that_never_answered_is_named(spread_run):
    lines = log()
    for line in lines:
        del line["hosts"][HOSTS[2]]
    text = words(section(spread_run.rounds(lines).report()))
    assert "pi@raspi3 contributes next to nothing: it takes 0.0 % of the steps" in text


def test_what_happened_to_a_lost_host_is_told_and_drawn(spread_run):
    page = spread_run.rounds(log(events=LOST)).report()
    assert page.table("Events") == [
        ["9.50\u202fs", HOSTS[1], "was lost: it did not answer in time"],
        ["19.5\u202fs", HOSTS[1], "is back after 10.0\u202fs"],
    ]
    assert page.table("Host by host")[1][-1] == "1"
    drawing = timeline_of(page)
    assert "pi@raspi2 computing 90 %, lost once" in " ".join(drawing.get("aria-label", "").split())
    (lost,) = [part for part in drawing.iter("path") if part.get("class") == "state-lost"]
    ((left, right),) = [map(float, edges) for edges in re.findall(r"^M([\d.]+) [\d.]+H([\d.]+)", lost.get("d", ""))]
    width = float(drawing.get("width", 0))
    begin = min(float(x) for x in re.findall(r"M([\d.]+)", _paths(drawing, "state-waiting")[0]))
    seconds = (width - 56 - begin) / 30
    assert (left - begin) / seconds == pytest.approx(9.0, abs=0.05)  # its last answer
    assert (right - begin) / seconds == pytest.approx(19.5, abs=0.05)
    assert "lost, from its last answer on" in words(section(page))


def timeline_of(page):
    (drawing,) = [part for part in page.all("svg") if part.get("class") == "timeline"]
    return drawing


def _paths(drawing, kind):
    return [part.get("d", "") for part in drawing.iter("path") if part.get("class") == kind]


def test_each_host_has_a_row_and_bars_stay_inside(spread_run):
    drawing = timeline_of(spread_run.rounds(log(events=LOST)).report())
    assert {text.text for text in drawing.iter("text")} >= set(HOSTS)
    assert len(_paths(drawing, "state-training")) == len(HOSTS)
    width, height = (float(drawing.get(side, 0)) for side in ("width", "height"))
    for path in _paths(drawing, "state-training") + _paths(drawing, "state-waiting"):
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)", path):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height
        assert all(0 <= float(y) <= height for y in re.findall(r"V([\d.]+)", path))


def test_a_resumption_is_marked(spread_run):
    lines = log()
    page = spread_run.rounds([*lines[:10], {"event": "resumed", "seconds": 10.0}, *lines[10:]]).report()
    assert page.table("Events") == [["10.0\u202fs", "all hosts", "began again: the training was resumed"]]
    assert _paths(timeline_of(page), "resumed")


def test_hosts_of_before_a_resumption_count_wherever_hosts_are_counted(spread_run):
    lines = log()
    lines[20:20] = [{"event": "resumed", "seconds": 20.0}]
    page = spread_run.summary(**SPREAD | {"hosts": list(HOSTS[:1])}).rounds(lines).report()
    assert "strategy diloco · 3 hosts" in page.words()
    assert ", ".join(HOSTS) in page.words()


def test_hosts_that_flap_do_not_fill_the_page(spread_run):
    events = [(n, "lost" if n % 2 else "joined", HOSTS[0], "") for n in range(1, 2001)]
    page = spread_run.rounds(log(2000, events=events)).report()
    assert len(page.table("Events")) == 20
    assert "And 1,980 more, in rounds.jsonl." in page.words()
    assert len(page.text) < 300_000


def test_many_hosts_make_no_huge_page(spread_run):
    hosts = [f"pi@raspi{n}" for n in range(1, 65)]
    events = [(n, event, f"pi@raspi{n}", "") for n in range(1, 60) for event in ("lost",)]
    page = spread_run.rounds(log(200, hosts, events=events)).report()
    assert len(page.text) < 400_000
    assert len(page.table("Host by host")) == 64
    assert [row[0] for row in page.table("Host by host")] == hosts
    assert "All hosts together." in page.words()


def test_an_unfinished_run_shows_its_rounds(run):
    page = run.config().rounds(log()).report()
    assert page.sections == ["hosts", "ran"]
    assert "30.0\u202fs" in page.text


def test_one_host_and_one_round_are_enough(spread_run):
    page = spread_run.rounds(log(1, ["0"])).report()
    assert "1 host took 100 steps in 1 round:" in words(section(page))


def test_names_are_escaped_and_shortened(spread_run):
    evil = "<b>$x$&'\"</b>" * 3
    page = spread_run.rounds(log(3, [evil, "a"], events=[(2, "lost", evil, "<i>")])).report()
    assert page.table("Host by host")[0][0] == evil
    assert page.table("Events")[0][1:] == [evil, "was lost: <i>"]
    assert not page.all("i")
    assert len(shortened(evil)) == 24


@pytest.mark.parametrize("last", [1e-4, 0.3, 1.87, 10.0, 99.0, 12345.0])
def test_ticks_are_few_and_within(last):
    ticks = time_ticks(last)
    assert ticks[0] == 0
    assert ticks[-1] <= last
    assert 2 <= len(ticks) <= 8


def test_hosts_that_took_no_part_are_named_with_the_reason_also_where_there_are_no_rounds(run):
    absent = [{"host": "raspi9", "reason": "The key of `raspi9` has CHANGED: do not go on."}]
    page = run.config(absent=absent).epochs().report()
    assert "raspi9 The key of `raspi9` has CHANGED: do not go on." in words(section(page)).replace(
        "raspi9The", "raspi9 The"
    )
    page = run.config().epochs().summary(strategy="mesh", absent=absent).report()
    assert "has CHANGED" in words(section(page))
