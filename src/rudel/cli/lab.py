"""`rudel lab`: a pretend Wi-Fi cluster on this machine."""

import shlex
import signal
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rudel.cli.output import print_json, print_table

if TYPE_CHECKING:
    from rudel.lab import Lab

app = typer.Typer(no_args_is_help=True, help="Simulate a Wi-Fi cluster on this computer (Linux, root).")

_Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")]
_Which = Annotated[str | None, typer.Option("--prefix", help="Which lab, if several are up.")]


@app.callback()
def _group() -> None:
    """Simulate a Wi-Fi cluster on this computer (Linux, root)."""


@app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="Number of nodes.")] = 4,
    cpu: Annotated[str, typer.Option(help="Cores per node; one number, or one for each node: 0.4,0.2.")] = "0.4",
    rate: Annotated[float, typer.Option(help="Bandwidth of the shared radio channel in Mbit/s.")] = 100.0,
    latency: Annotated[float, typer.Option(help="One-way latency in milliseconds.")] = 1.5,
    prefix: Annotated[str, typer.Option(help="Prefix of the names of nodes.")] = "raspi",
    subnet: Annotated[str, typer.Option(help="First three numbers of all addresses.")] = "10.77.0",
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Folder for keys and homes of the nodes.  \\[default: /var/lib/rudel-lab/PREFIX]"
        ),
    ] = None,
    arch: Annotated[str, typer.Option(help="Architecture: native or arm64; one, or one for each node.")] = "native",
    background: Annotated[bool, typer.Option("--background", help="Return as soon as all nodes answer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print how to reach the nodes as JSON.")] = False,
) -> None:
    """Start a lab, and keep it up until Ctrl-C."""
    from rudel.errors import LabError
    from rudel.lab import Lab

    try:
        shares = [float(share) for share in cpu.split(",")]
    except ValueError as error:
        raise LabError(f"`{cpu}` are not numbers: give --cpu one, or one for each node, as in 0.4,0.2.") from error
    lab = Lab(nodes, shares, rate, latency, prefix, subnet, state, arch.split(","))
    signal.signal(signal.SIGTERM, _stop)
    try:
        lab.start(owned=not background, report=lambda line: typer.echo(line, err=True))
        _print_lab(lab, as_json, background)
        lab.wait()
    except KeyboardInterrupt:
        typer.echo("Stopping ...", err=True)
        lab.stop()


@app.command()
def down(
    prefix: _Which = None,
) -> None:
    """Stop a lab, and remove what is left of killed labs."""
    from rudel.lab.lab import stop

    ended = stop(prefix)
    for name in ended:
        typer.echo(f"The lab `{name}` is down.", err=True)
    if not ended:
        typer.echo("There is nothing to stop.", err=True)


@app.command("exec")
def execute(
    node: _Node,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Command and arguments, after `--`.")],
    root: Annotated[bool, typer.Option("--root", help="Run as root instead of pi.")] = False,
) -> NoReturn:
    """Run a command on a node, within its CPU quota: rudel lab exec raspi1 -- uname -a."""
    import os

    arguments = _lab_with(node).command(node, *command, root=root)
    os.execvp(arguments[0], arguments)


@app.command()
def cut(node: _Node) -> None:
    """Disconnect a node silently: no connection is closed."""
    _lab_with(node).cut(node)


@app.command()
def heal(node: _Node) -> None:
    """Reconnect a disconnected node."""
    _lab_with(node).heal(node)


@app.command()
def crash(node: _Node) -> None:
    """Kill all processes of a node (kill -9) and restart it."""
    _lab_with(node).crash(node)


@app.command()
def cpu(
    node: _Node, share: Annotated[float, typer.Argument(metavar="CORES", help="Cores that it may use from now on.")]
) -> None:
    """Make a node slower or faster, as thermal throttling does."""
    _lab_with(node).set_cpu(node, share)


@app.command("set")
def change(
    rate: Annotated[float | None, typer.Option(help="Bandwidth of the radio channel in Mbit/s.")] = None,
    latency: Annotated[float | None, typer.Option(help="One-way latency in milliseconds.")] = None,
    prefix: _Which = None,
) -> None:
    """Change bandwidth and latency of a lab that is up."""
    from rudel.lab import Lab

    lab = Lab.attach(prefix)
    if rate is not None:
        lab.set_rate(rate)
    if latency is not None:
        lab.set_latency(latency)


@app.command()
def stats(
    reset: Annotated[bool, typer.Option("--reset", help="Restart the counters from 0.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counters as JSON.")] = False,
    prefix: _Which = None,
) -> None:
    """Show what every node and this computer have sent."""
    from rudel.lab import Lab

    sent = Lab.attach(prefix).stats(reset)
    if as_json:
        print_json({name: {"bytes": each.bytes, "frames": each.frames} for name, each in sent.items()})
        return
    rows = [[name, f"{each.bytes:,}", f"{each.frames:,}"] for name, each in sent.items()]
    rows.append(["all", f"{sum(s.bytes for s in sent.values()):,}", f"{sum(s.frames for s in sent.values()):,}"])
    print_table(["sender", "bytes", "frames"], rows, right=(1, 2))


def _lab_with(node: str) -> "Lab":
    from rudel.lab import Lab

    return Lab.with_node(node)


def _print_lab(lab: "Lab", as_json: bool, background: bool) -> None:
    if as_json:
        print_json({"hosts": lab.hosts, "ssh_config": str(lab.ssh_config), "desktop": lab.desktop})
        return
    settings = lab.settings
    shares = ", ".join(dict.fromkeys(f"{node.cpu:g}" for node in settings.nodes))
    typer.echo(
        f"nodes  {' '.join(lab.hosts)}\n"
        f"cores  {shares} each\n"
        f"air    {settings.rate:g} Mbit/s shared, {settings.latency:g} ms one way\n"
        f"shell  ssh -F {shlex.quote(str(lab.ssh_config))} {lab.hosts[0]}\n"
        f'stop   {"" if background else "Ctrl-C, or "}sudo "$(command -v rudel)" lab down --prefix {settings.prefix}'
    )


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
