"""`rudel lab`: a pretend Wi-Fi cluster on this machine."""

import signal
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rudel.cli.output import print_json, print_table

if TYPE_CHECKING:
    from rudel.lab import Lab

app = typer.Typer(no_args_is_help=True, help="A pretend Wi-Fi cluster on this machine (Linux, root).")

_Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")]
_Which = Annotated[str | None, typer.Option("--prefix", help="Which lab, where several are up.")]


@app.callback()
def _group() -> None:
    """A pretend Wi-Fi cluster on this machine (Linux, root)."""


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 4,
    cpu: Annotated[str, typer.Option(help="Cores that a node may use; one number, or one for each: 0.4,0.2.")] = "0.4",
    rate: Annotated[float, typer.Option(help="Mbit/s of the air, which all share.")] = 100.0,
    latency: Annotated[float, typer.Option(help="Milliseconds one way.")] = 1.5,
    prefix: Annotated[str, typer.Option(help="What names of nodes begin with.")] = "raspi",
    subnet: Annotated[str, typer.Option(help="First three numbers of all addresses.")] = "10.77.0",
    state: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Keys and homes of the nodes; /var/lib/rudel-lab/PREFIX if not given."),
    ] = None,
    arch: Annotated[str, typer.Option(help="This machine's own, or arm64; one, or one for each.")] = "native",
    background: Annotated[bool, typer.Option("--background", help="Return when all nodes answer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print how to reach the nodes as one JSON document.")] = False,
) -> None:
    """Start a lab, and keep it up until Ctrl-C."""
    from rudel.errors import LabError
    from rudel.lab import Lab

    try:
        shares = [float(share) for share in cpu.split(",")]
    except ValueError as error:
        raise LabError(f"`{cpu}` are no numbers: give --cpu one, or one for each node, as in 0.4,0.2.") from error
    lab = Lab(nodes, shares, rate, latency, prefix, subnet, state, arch.split(","))
    signal.signal(signal.SIGTERM, _stop)
    try:
        lab.start(owned=not background, tell=lambda line: typer.echo(line, err=True))
        _print_lab(lab, as_json, background)
        lab.wait()
    except KeyboardInterrupt:
        typer.echo("Stopping ...", err=True)
        lab.stop()


@app.command()
def down(
    prefix: _Which = None,
) -> None:
    """Stop a lab, and remove what killed labs have left."""
    from rudel.lab.lab import stop

    ended = stop(prefix)
    for name in ended:
        typer.echo(f"The lab `{name}` is down.", err=True)
    if not ended:
        typer.echo("There is nothing to stop.", err=True)


@app.command("exec")
def execute(
    node: _Node,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="Command and arguments, behind `--`.")],
    root: Annotated[bool, typer.Option("--root", help="As root, not as pi.")] = False,
) -> NoReturn:
    """Run a command in a node, within its CPU quota: rudel lab exec raspi1 -- uname -a."""
    import os

    arguments = _lab_with(node).command(node, *command, root=root)
    os.execvp(arguments[0], arguments)


@app.command()
def cut(node: _Node) -> None:
    """Cut a node off the air, silently: nothing is closed, and nobody is told."""
    _lab_with(node).cut(node)


@app.command()
def heal(node: _Node) -> None:
    """Let a node that was cut off be heard again."""
    _lab_with(node).heal(node)


@app.command()
def crash(node: _Node) -> None:
    """Kill all processes of a node (kill -9); it then starts again."""
    _lab_with(node).crash(node)


@app.command()
def cpu(node: _Node, share: Annotated[float, typer.Argument(help="Cores that it may use from now on.")]) -> None:
    """Make a node slower or faster, as one that throttles itself when it gets too hot."""
    _lab_with(node).set_cpu(node, share)


@app.command("set")
def change(
    rate: Annotated[float | None, typer.Option(help="Mbit/s of the air.")] = None,
    latency: Annotated[float | None, typer.Option(help="Milliseconds one way.")] = None,
    prefix: _Which = None,
) -> None:
    """Change the air of a lab that is up."""
    from rudel.lab import Lab

    lab = Lab.attach(prefix)
    if rate is not None:
        lab.set_rate(rate)
    if latency is not None:
        lab.set_latency(latency)


@app.command()
def stats(
    reset: Annotated[bool, typer.Option("--reset", help="Count from 0 again, from this moment on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    prefix: _Which = None,
) -> None:
    """Show what every node and this machine have sent on the air."""
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
        f"shell  ssh -F {lab.ssh_config} {lab.hosts[0]}\n"
        f'stop   {"" if background else "Ctrl-C, or "}sudo "$(command -v rudel)" lab down --prefix {settings.prefix}'
    )


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
