"""`rudel serve`: models over HTTP."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs, folders with versions 1, 2, ..., .tflite files, SavedModels; as NAME=PATH to name them.",
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8501,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Holds a token that clients have to show.  \\[default: $RUDEL_TOKEN]"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name that a proxy passes on as `Host`; by default this computer's only."),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, max=4096, help="Most examples computed at once.")] = 64,
    batch_delay: Annotated[
        float, typer.Option(metavar="MS", min=0, max=1000, help="How long a request waits for others, in milliseconds.")
    ] = 0.0,
    queue: Annotated[int, typer.Option(min=1, help="Most requests that wait; others get 503.")] = 512,
    max_body: Annotated[float, typer.Option(metavar="MB", min=0.001, help="Largest request in megabytes.")] = 16.0,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="For a whole request.")] = 30.0,
    log: Annotated[Literal["text", "json", "none"], typer.Option(help="How requests are logged.")] = "text",
) -> None:
    """Serve runs and exported models: TensorFlow Serving's REST API, the Open Inference Protocol."""
    from rudel.serve.limits import Limits
    from rudel.serve.server import Settings, check_packages
    from rudel.serve.server import serve as serve_models
    from rudel.serve.sources import read_sources
    from rudel.serve.tokens import read_token

    check_packages()
    sources = read_sources(runs)
    limits = Limits(
        batch=max_batch,
        delay=batch_delay / 1e3,
        waiting=queue,
        body=int(max_body * 1e6),
        seconds=timeout,
    )
    token = read_token(token_file, os.environ.get("RUDEL_TOKEN"))
    serve_models(sources, Settings(host, port, token, tuple(allow_host or ()), log, limits), typer.echo)
