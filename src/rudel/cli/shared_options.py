"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rudel.cli import complete

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A built-in recipe (see `rudel recipes`) or a Python file.",
        autocompletion=complete.recipes,
    ),
]

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", autocompletion=complete.runs)]
ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run directory, or a model file (.keras, .h5).", autocompletion=complete.runs),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes", metavar="A,B,...|FILE.json", help="For a model file: names of its classes.  \\[default: numbers]"
    ),
]
CodeOption = Annotated[
    Path | None, typer.Option("--code", metavar="FILE.py", help="For a model file: its own layers and functions.")
]
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="For a model file: execute code in it, such as lambdas. Only if you trust it.")
]


def hosts_option(help: str, panel: str | None = None) -> Any:
    """`--on`: hosts over SSH."""
    return typer.Option(
        "--on",
        "--hosts",
        metavar="HOST,...|FILE",
        help=help,
        autocompletion=complete.hosts,
        rich_help_panel=panel,
    )


def ssh_config_option(panel: str | None = None) -> Any:
    """`--ssh-config`: a file in the place of `~/.ssh/config`."""
    return typer.Option(metavar="FILE", help="SSH configuration.  \\[default: ~/.ssh/config]", rich_help_panel=panel)


SshConfigOption = Annotated[Path | None, ssh_config_option()]
