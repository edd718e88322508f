"""Work of several hosts: what each did when, how fast, at what cost, and what happened to them."""

from rudel.report.formatting import count, duration, is_number, percent, plural, rate, size
from rudel.report.hosts_plots import plots
from rudel.report.hosts_timeline import timeline
from rudel.report.hosts_words import called, happening, is_negligible, negligible_note
from rudel.report.markup import Html, element, join, table
from rudel.report.read import Run
from rudel.report.rounds_file import HostRecord, Rounds

_MOST_ROWS = 24
_MOST_CHANGES = 20


def hosts(run: Run) -> Html | None:
    """The section; None for a run that has no rounds, and of whose hosts none was left out."""
    rounds = run.rounds
    if rounds is None:
        return _absent(run)
    return join(
        [
            element("p", f"{_work(rounds)} {_shared(rounds)}"),
            element("p", _cost(rounds, run)),
            *(element("p", sentence) for sentence in _little(rounds, run)),
            element("h3", "Timeline"),
            timeline(rounds),
            plots(rounds),
            _figures(rounds),
            _happenings(rounds),
            _absent(run),
        ]
    )


def _absent(run: Run) -> Html | None:
    absent = (run.config if run.summary is None else run.summary).get("absent")
    if not isinstance(absent, list) or not absent:
        return None
    rows = [[str(one["host"]), str(one["reason"])] for one in absent]
    return table("Hosts left out", ["host", "why"], rows, words=(0, 1), class_="happenings")


def _work(rounds: Rounds) -> str:
    who = plural(len(rounds.trained), "host")
    computing = percent(rounds.computing, 0)
    waiting = percent(1 - rounds.computing, 0)
    what = plural(rounds.arrivals, "arrival") if rounds.arrivals else plural(rounds.count, "round")
    return (
        f"{who} took {plural(rounds.steps, 'step')} in {what}: computing {computing} of "
        f"their time, waiting {waiting}, for each other and for the network."
    )


def _shared(rounds: Rounds) -> str:
    if len(rounds.hosts) < 2 or not rounds.steps:
        return ""
    most, least = (choose(rounds.hosts, key=lambda host: host.steps) for choose in (max, min))
    if most.steps <= 1.1 * least.steps:
        return f"Each took about {percent(1 / len(rounds.hosts), 0)} of the steps."
    more, less = (f"{called(host.name)}, {percent(host.steps / rounds.steps, 0)}" for host in (most, least))
    return f"Most of the steps were taken by {more}, and fewest by {less}."


def _little(rounds: Rounds, run: Run) -> list[str]:
    """A sentence for each host that contributes next to nothing while it is there, or did not answer to the end."""
    there = [host for host in rounds.hosts if host.present > 0]
    speeds = [host.steps / host.present for host in there]
    found = [
        negligible_note(host.name, host.steps / max(1, rounds.steps))
        for host, speed in zip(there, speeds, strict=True)
        if is_negligible(speed, speeds)
    ]
    named = (run.summary or {}).get("hosts")
    known = {host.name for host in rounds.hosts}
    silent = [name for name in named if isinstance(name, str) and name not in known] if isinstance(named, list) else []
    return [*found, *(negligible_note(name, 0.0) for name in silent)]


def _cost(rounds: Rounds, run: Run) -> str:
    sent, received = float(rounds.sent[-1]), float(rounds.received[-1])
    answers = max(1, rounds.answers)
    each, all_of_them = ("An arrival", "in all") if rounds.arrivals else ("A round", "in all rounds and for all hosts")
    text = (
        f"{each} sent {size(sent / answers)} to a host and brought {size(received / answers)} back, "
        f"{size(sent + received)} {all_of_them}."
    )
    parameters = (run.config.get("model") or {}).get("parameters")
    if not is_number(parameters) or not parameters:
        return text
    return f"{text} All the model's weights would have been {size(4 * parameters)}, each way."


def _figures(rounds: Rounds) -> Html:
    rows = [_row(host, rounds.steps) for host in rounds.hosts]
    foot = [
        [
            "all hosts",
            count(rounds.steps),
            "",
            rate(rounds.steps / rounds.seconds) if rounds.seconds else "–",
            percent(rounds.computing),
            percent(1 - rounds.computing),
            percent(sum(host.cpu for host in rounds.hosts) / rounds.seconds) if rounds.seconds else "–",
            size(max(host.memory for host in rounds.hosts) or None),
            size(sum(host.moved for host in rounds.hosts) or None),
            count(sum(host.lost for host in rounds.hosts)),
        ]
    ]
    header = [
        "host",
        "steps",
        "share",
        "steps/s",
        "computing",
        "waiting",
        "CPU",
        "most memory",
        "network",
        "times lost",
    ]
    made = table("Host by host", header, rows, foot if len(rows) > 1 else (), words=(0,))
    if len(rows) <= _MOST_ROWS:
        return made
    return element("details", element("summary", "Numbers per host"), made)


def _row(host: HostRecord, all_steps: int) -> list[str]:
    took_part = host.present > 0
    return [
        host.name,
        count(host.steps),
        percent(host.steps / all_steps) if all_steps else "–",
        rate(host.steps / host.present) if took_part else "–",
        percent(host.computing if took_part else None),
        percent(1 - host.computing if took_part else None),
        percent(host.cpu / host.present) if took_part else "–",
        size(host.memory or None),
        size(host.moved or None),
        count(host.lost),
    ]


def _happenings(rounds: Rounds) -> Html | None:
    lost: dict[str, float] = {}
    rows = []
    for change in rounds.changes:
        away = change.seconds - lost[change.host] if change.host in lost else None
        rows.append((change.seconds, change.host, happening(change.event, change.reason, away)))
        if change.event == "lost":
            lost[change.host] = change.seconds
        elif change.event == "joined":
            lost.pop(change.host, None)
    rows += [(seconds, "all hosts", "began again: the training was resumed") for seconds in rounds.resumed]
    if not rows:
        return None
    shown = sorted(rows, key=lambda row: row[0])[:_MOST_CHANGES]
    more = rounds.changed + len(rounds.resumed) - len(shown)
    return join(
        [
            table(
                "Events",
                ["after", "host", "what"],
                [[duration(seconds), host, what] for seconds, host, what in shown],
                words=(0, 1, 2),
                class_="happenings",
            ),
            element("p", f"And {count(more)} more, in rounds.jsonl.", class_="note") if more else None,
        ]
    )
