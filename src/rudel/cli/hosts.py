"""`rudel hosts`: other computers, looked at, set up, and given commands and files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli import complete
from rudel.cli.output import print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import JsonOption, SshConfigOption

if TYPE_CHECKING:
    from rudel.cluster.hosts_check import HostReport
    from rudel.cluster.setup import Outcome

app = typer.Typer(no_args_is_help=True, help="Check, set up and use other computers over SSH.")

_Hosts = Annotated[
    str,
    typer.Argument(
        metavar="HOSTS",
        help="Hosts as in raspi1,pi@raspi2:2222, or a file with one host per line.",
        autocompletion=complete.hosts,
    ),
]
_HEADINGS = ["host", "state", "key", "system", "python", "cores", "memory", "disk", "clock"]
_HEADINGS += ["rudel", "jax", "Mbit/s", "ms"]


@app.callback()
def _group() -> None:
    """Check, set up and use other computers over SSH."""


@app.command()
def check(
    hosts: _Hosts,
    ssh_config: SshConfigOption = None,
    accept_new: Annotated[
        bool, typer.Option("--accept-new", help="Accept keys of unknown hosts, but no changed keys.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check hosts: hardware, whether Rudel can run there, and the speed of the network."""
    from rudel.cluster.foreground import wait_for
    from rudel.cluster.hosts_check import check_hosts

    with reporting_interrupts():
        reports = wait_for(check_hosts(hosts, ssh_config, accept_new=accept_new))
    if json:
        print_json({"hosts": [_as_document(report) for report in reports]})
    else:
        print_table(_HEADINGS, [_as_row(report) for report in reports], right=(5, 6, 7, 8, 11, 12), wide=True)
    for report in reports:
        for line in (*report.notes, report.problem):
            if line:
                typer.echo(line, err=True)
    if any(report.problem for report in reports):
        raise typer.Exit(2)


@app.command()
def setup(
    hosts: _Hosts,
    ssh_config: SshConfigOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Send wheels from here instead of using the package index from the hosts.")
    ] = False,
    minimal: Annotated[
        bool,
        typer.Option("--minimal", help="Install only what a worker needs: no Keras, no `rudel train` on the hosts."),
    ] = False,
    system_update: Annotated[
        bool, typer.Option("--system-update", help="Run apt-get update and upgrade on the hosts first, with sudo.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Install or update Rudel on hosts, in ~/.rudel/env, with the versions of this computer."""
    from rudel.cli.hosts_display import live_display, printed_lines
    from rudel.cluster.foreground import wait_for
    from rudel.cluster.hosts import parse_hosts
    from rudel.cluster.setup import set_up_hosts

    parsed = parse_hosts(hosts)
    with reporting_interrupts(), live_display(parsed) as (on_stage, console):
        outcomes = wait_for(
            set_up_hosts(
                parsed,
                ssh_config,
                offline=offline,
                minimal=minimal,
                system_update=system_update,
                on_stage=on_stage,
                on_line=printed_lines(parsed, console, console),
            )
        )
    if json:
        print_json({"hosts": [vars(outcome) | {"host": str(outcome.host)} for outcome in outcomes]})
    for outcome in outcomes:
        if outcome.problem:
            typer.echo(outcome.problem, err=True)
        elif not json:
            typer.echo(f"{outcome.host}: ready, {_how(outcome)}, {outcome.seconds:.1f} s")
    if any(outcome.problem for outcome in outcomes):
        raise typer.Exit(2)


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    hosts: _Hosts,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND", help="One word is a line for the remote shell; several words are quoted."),
    ],
    ssh_config: SshConfigOption = None,
) -> None:
    """Run a command on all hosts at once and print its output line by line."""
    from rich.console import Console

    from rudel.cli.hosts_display import printed_lines
    from rudel.cluster.commands import run_on_hosts
    from rudel.cluster.foreground import wait_for
    from rudel.cluster.hosts import parse_hosts

    parsed = parse_hosts(hosts)
    on_line = printed_lines(parsed, Console(), Console(stderr=True))
    with reporting_interrupts():
        ended = wait_for(run_on_hosts(parsed, command[0] if len(command) == 1 else command, on_line, ssh_config))
    for one in ended:
        typer.echo(f"{one.host}: {one.problem or _status(one.exit_status)}", err=True)
    if any(one.problem for one in ended):
        raise typer.Exit(2)
    if any(one.exit_status for one in ended):
        raise typer.Exit(1)


@app.command()
def push(
    hosts: _Hosts,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder on this computer; it keeps its name.")],
    to: Annotated[str, typer.Option(metavar="DIR", help="Folder on the hosts, relative to the home folder.")] = "~/",
    ssh_config: SshConfigOption = None,
) -> None:
    """Send a file or folder to all hosts, skipping what is there."""
    from rudel.cli.hosts_display import live_display
    from rudel.cluster.foreground import wait_for
    from rudel.cluster.hosts import Host, parse_hosts
    from rudel.cluster.installation import Stage
    from rudel.cluster.push import push_to_hosts

    parsed = parse_hosts(hosts)
    with reporting_interrupts(), live_display(parsed) as (on_stage, _):

        def on_progress(host: Host, done: int, total: int) -> None:
            on_stage(host, Stage("sending", done, total))

        pushed = wait_for(push_to_hosts(parsed, path, to, ssh_config, on_progress))
    for one in pushed:
        if one.problem:
            typer.echo(one.problem, err=True)
        else:
            typer.echo(f"{one.host}: {one.files:,} sent ({one.sent / 1e6:,.1f} MB), {one.alike:,} were there")
    if any(one.problem for one in pushed):
        raise typer.Exit(2)


def _status(exit_status: int | None) -> str:
    if exit_status is not None and exit_status < 0:
        import signal

        try:
            return f"ended by {signal.Signals(-exit_status).name}"
        except ValueError:  # SSH names few signals, and those of other names have no number
            return "ended by a signal"
    return f"exit status {exit_status}"


def _how(outcome: "Outcome") -> str:
    if not outcome.packages:
        return outcome.how
    what = "1 package" if outcome.packages == 1 else f"{outcome.packages} packages"
    return f"{what} {outcome.how}, {outcome.sent / 1e6:,.1f} MB sent"


def _as_row(report: "HostReport") -> list[str]:
    facts, link = report.facts, report.link
    state = "ready" if report.rudel else "not set up"
    if report.problem:
        state = "incomplete" if report.incomplete else "cannot be used" if report.reachable else "unreachable"
    key = report.host_key.split()[0].removeprefix("ssh-") if report.host_key else "-"
    row = [str(report.host), state, key]
    if not facts:
        return row + ["-"] * 10
    row += [
        facts.machine if facts.bits == 64 else f"{facts.machine}, {facts.bits or '?'}-bit",
        report.python or "-",
        str(facts.cores),
    ]
    row += [
        f"{facts.memory / 1e9:.1f} GB",
        f"{facts.disk / 1e9:.0f} GB",
        f"{link.clock_offset:+.2f} s" if link else "-",
    ]
    row += [report.rudel or "-", report.jax or "-"]
    return row + ([f"{link.bits_per_second / 1e6:.0f}", f"{1000 * link.round_trip:.1f}"] if link else ["-", "-"])


def _as_document(report: "HostReport") -> dict[str, Any]:
    facts, link = report.facts, report.link
    document = {
        "host": str(report.host),
        "usable": report.problem is None,
        "problem": report.problem,
        "notes": list(report.notes),
        "reachable": report.reachable,
        "host_key": report.host_key,
    }
    if facts:
        document |= {
            "system": facts.name or facts.system,
            "machine": facts.machine,
            "bits": facts.bits,
            "python": report.python,
            "cores": facts.cores,
            "memory_bytes": facts.memory,
            "disk_free_bytes": facts.disk,
            "rudel": report.rudel,
            "jax": report.jax,
        }
    if link:
        document |= {
            "clock_offset_seconds": link.clock_offset,
            "bits_per_second": link.bits_per_second,
            "round_trip_seconds": link.round_trip,
        }
    return document
