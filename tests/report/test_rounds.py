import json

import numpy as np
import pytest

from rudel.errors import RunError
from rudel.report.rounds_file import MOST_CHANGES, SPANS, read_rounds


def a_round(number, seconds, sent=0, received=0, **hosts):
    """A line of rounds.jsonl; of each host (steps, seconds, waited)."""
    figures = {
        name: {
            "steps": steps,
            "seconds": took,
            "waited": waited,
            "merged_at": 3,
            "memory": 1000 + number,
            "cpu": 0.5,
            "sent": 10,
            "received": 10,
        }
        for name, (steps, took, waited) in hosts.items()
    }
    return {"round": number, "step": 0, "seconds": seconds, "sent": sent, "received": received, "hosts": figures}


def an_event(event, host, seconds, reason=""):
    return {"event": event, "host": host, "seconds": seconds, "reason": reason}


@pytest.fixture
def read(tmp_path):
    def from_lines(lines):
        path = tmp_path / "rounds.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return read_rounds(path)

    return from_lines


def test_no_file_and_no_round_are_none(tmp_path, read):
    assert read_rounds(tmp_path / "nothing.jsonl") is None
    assert read([]) is None
    assert read([an_event("lost", "a", 1.0)]) is None


def test_steps_and_shares_of_two_hosts(read):
    rounds = read(
        [a_round(1, 2.0, 100, 40, a=(100, 2.0, 0.5), b=(50, 1.0, 0.0)), a_round(2, 4.0, 300, 80, a=(100, 2, 0))]
    )
    assert (rounds.count, rounds.seconds, rounds.steps, rounds.answers) == (2, 4.0, 250, 3)
    a, b = rounds.hosts
    assert (a.name, a.rounds, a.steps, a.memory, a.lost, a.absences) == ("a", 2, 200, 1002, 0, ())
    assert a.computing == pytest.approx(3.5 / 4)
    assert b.computing == pytest.approx(0.5)  # of the two seconds until its only answer
    assert rounds.computing == pytest.approx(4.5 / 6)
    assert (rounds.sent[-1], rounds.received[-1]) == (300, 80)
    assert rounds.sent[SPANS // 2 - 1] == pytest.approx(100)


def test_a_rounds_steps_are_spread_over_its_time(read):
    a, b = read([a_round(1, 1.0, a=(64, 1, 0), b=(8, 1, 0)), a_round(2, 4.0, a=(192, 3, 0))]).hosts
    assert a.steps_in == pytest.approx(np.full(SPANS, 1.0))
    assert b.steps_in[: SPANS // 4].sum() == pytest.approx(8)
    assert b.present_in.sum() == pytest.approx(1.0)


def test_a_host_on_standby_is_absent_until_it_joins(read):
    lines = [an_event("standby", "b", 0.0, "slow"), a_round(1, 4.0, a=(10, 1, 0)), an_event("joined", "b", 4.0)]
    b = read([*lines, a_round(2, 8.0, a=(20, 3, 0), b=(6, 2, 0))]).hosts[1]
    assert (b.absences, b.steps, b.present) == ((("standby", 0.0, 4.0),), 6, 4.0)


def test_a_lost_host_is_absent_from_its_last_answer_until_it_joins(read):
    lines = [a_round(i, float(i), a=(10, 1, 0), b=(10, 1, 0)) for i in (1, 2)]
    lines += [an_event("lost", "b", 2.5, "it did not answer in time"), a_round(3, 3.0, a=(20, 1, 0))]
    lines += [an_event("joining", "b", 4.0), a_round(4, 5.0, a=(20, 2, 0)), an_event("joined", "b", 6.0)]
    rounds = read([*lines, a_round(5, 8.0, a=(20, 3, 0), b=(6, 2, 0))])
    b = rounds.hosts[1]
    assert b.absences == (("lost", 2.0, 4.0), ("joining", 4.0, 6.0))
    assert (b.lost, b.steps, b.present) == (1, 26, 4.0)
    assert b.present_in[SPANS // 4 : 3 * SPANS // 4].sum() == pytest.approx(0.0)
    assert [(c.seconds, c.event) for c in rounds.changes] == [(2.5, "lost"), (4.0, "joining"), (6.0, "joined")]


def test_what_a_lost_host_did_before_still_counts(read):
    lines = [
        a_round(1, 1.0, a=(10, 1, 0), b=(10, 1, 0)),
        an_event("lost", "b", 1.8),
        a_round(2, 2.0, a=(1, 1, 0), b=(9, 0.8, 0)),
    ]
    b = read([*lines, a_round(3, 4.0, a=(1, 1, 0))]).hosts[1]
    assert (b.steps, b.absences) == (19, (("lost", 1.8, 4.0),))
    assert b.present == pytest.approx(1.8)


def test_a_host_that_joins_again_within_a_round_counts_until_it_was_lost(read):
    lines = [a_round(1, 9.0, a=(10, 9, 0), b=(10, 9, 0)), an_event("lost", "b", 9.5), an_event("joining", "b", 10.0)]
    lines += [a_round(2, 12.0, a=(10, 3, 0), b=(9, 0.5, 0)), an_event("joined", "b", 13.0)]
    b = read([*lines, a_round(3, 14.0, a=(10, 2, 0), b=(5, 1, 0))]).hosts[1]
    assert b.absences == (("lost", 9.5, 10.0), ("joining", 10.0, 13.0))
    assert (b.steps, b.present) == (24, 9.5 + 1.0)


def test_no_absence_ends_before_it_begins(read):
    lines = [a_round(1, 9.0, a=(1, 9, 0), b=(1, 9, 0)), an_event("standby", "b", 10.0, "slow")]
    b = read([*lines, a_round(2, 12.0, a=(1, 3, 0), b=(1, 3, 0))]).hosts[1]
    assert b.absences == (("standby", 10.0, 10.0),)
    assert b.present == 11.0


def test_a_host_that_answers_again_is_there_though_nothing_was_said(read):
    lines = [a_round(1, 1.0, a=(1, 1, 0), b=(1, 1, 0)), an_event("lost", "b", 1.5), a_round(2, 2.0, a=(1, 1, 0))]
    lines += [a_round(3, 3.0, a=(1, 1, 0), b=(1, 1, 0)), a_round(4, 4.0, a=(1, 1, 0), b=(1, 1, 0))]
    b = read(lines).hosts[1]
    assert b.absences[-1][2] <= 3.0
    assert b.rounds == 3


def test_a_host_that_comes_late_was_not_there_before(read):
    lines = [a_round(1, 4.0, a=(1, 4, 0)), an_event("joined", "c", 4.0), a_round(2, 8.0, a=(1, 4, 0), c=(8, 4, 1))]
    c = read(lines).hosts[1]
    assert (c.absences, c.present, c.computing) == ((), 4.0, 0.75)
    assert c.present_in[: SPANS // 2].sum() == pytest.approx(0.0)


def test_a_resumed_training_brings_lost_hosts_back(read):
    lines = [a_round(1, 1.0, a=(1, 1, 0), b=(1, 1, 0)), an_event("lost", "b", 1.5), a_round(2, 2.0, a=(1, 1, 0))]
    lines += [{"event": "resumed", "seconds": 2.0}, a_round(3, 3.0, a=(1, 1, 0), b=(1, 1, 0))]
    rounds = read(lines)
    assert rounds.resumed == (2.0,)
    assert rounds.hosts[1].absences == (("lost", 1.0, 2.0),)
    assert rounds.hosts[1].present == pytest.approx(2.0)
    assert [host.moved for host in rounds.hosts] == [40, 40]  # a resumed training counts a host's bytes from 0


def test_a_long_log_keeps_sums_of_a_fixed_size(read):
    count = 20_000
    lines = []
    for i in range(1, count + 1):
        lines.append(a_round(i, 0.1 * i, 10 * i, 20 * i, a=(3, 0.1, 0.025), b=(1, 0.1, 0)))
        lines.append(an_event("lost" if i % 2 else "joined", "b", 0.1 * i))
    rounds = read(lines)
    assert rounds.count == count
    assert rounds.changed == count
    assert len(rounds.changes) == len(rounds.hosts[1].absences) == MOST_CHANGES
    a, b = rounds.hosts
    assert (a.steps, b.lost) == (3 * count, count / 2)
    assert a.steps_in == pytest.approx(np.full(SPANS, 3 * count / SPANS), rel=0.01)
    assert a.computing == pytest.approx(0.75)
    assert rounds.sent == pytest.approx(np.arange(1, SPANS + 1) * 10 * count / SPANS, rel=0.01)
    assert (rounds.sent[-1], rounds.received[-1]) == (10 * count, 20 * count)


def test_names_are_in_the_order_of_their_numbers(read):
    rounds = read([a_round(1, 1.0, **dict.fromkeys(("pi10", "pi9", "2", "pi1"), (1, 1, 0)))])
    assert [host.name for host in rounds.hosts] == ["2", "pi1", "pi9", "pi10"]


def test_a_cut_off_last_line_is_ignored_and_any_other_an_error(tmp_path):
    path, line = tmp_path / "rounds.jsonl", json.dumps(a_round(1, 1.0, a=(1, 1, 0)))
    path.write_text(f"{line}\n{line[:40]}")
    rounds = read_rounds(path)
    assert rounds is not None
    assert rounds.count == 1
    for damaged in (line[:40], "[]", "3", '{"round": 2}'):
        path.write_text(f"{line}\n{damaged}\n{line}\n")
        with pytest.raises(RunError, match=r"rounds\.jsonl.*line 2"):
            read_rounds(path)
