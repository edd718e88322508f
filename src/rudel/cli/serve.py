"""`rudel serve`: models over HTTP."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from rudel.cli import complete
from rudel.cli.interrupts import ending_at_once, leave
from rudel.cli.shared_options import ClassesOption, CodeOption, UnsafeOption


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Runs, .keras, .h5 and .tflite files, SavedModels, folders with versions 1, 2, ...; as NAME=PATH to "
            "name them.",
            autocompletion=complete.runs,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on; 0 for any free one.")
    ] = 8501,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token that clients must send.  \\[default: $RUDEL_TOKEN]"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also accept this `Host` header, as a proxy sends it; repeatable.  \\[default: this computer's names]",
        ),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, max=4096, help="Largest batch of examples.")] = 64,
    batch_delay: Annotated[
        float,
        typer.Option(
            metavar="MS", min=0, max=1000, help="Time in milliseconds that a request waits for others to share a batch."
        ),
    ] = 0.0,
    queue: Annotated[
        int, typer.Option(min=1, help="Maximum number of waiting requests; further ones get status 503.")
    ] = 512,
    max_body: Annotated[
        float, typer.Option(metavar="MB", min=0.001, max=100_000, help="Maximum size of a request in megabytes.")
    ] = 16.0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="Time limit of a request.")
    ] = 30.0,
    log: Annotated[Literal["text", "json", "none"], typer.Option(help="Format of the request log.")] = "text",
    classes: ClassesOption = None,
    code: CodeOption = None,
    unsafe: UnsafeOption = False,
) -> None:
    """Serve models over HTTP (TensorFlow Serving's REST API, Open Inference Protocol)."""
    opened = contextlib.ExitStack()
    with opened, ending_at_once(opened):
        from rudel.runs.model_as_run import is_model_file, refuse_options
        from rudel.serve.model_sources import FileOptions, model_files, read_sources
        from rudel.serve.server import Settings, check_packages
        from rudel.serve.server import serve as serve_models
        from rudel.serve.server_limits import Limits
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
        files = [file for source in sources for file in model_files(source)]
        if not any(map(is_model_file, [*files, *(source.path for source in sources)])):
            with_classes = {} if files else {"classes": classes}  # a .tflite file has them, but no code
            refuse_options(sources[0].path, **with_classes, code=code, unsafe=unsafe)
        token = read_token(token_file, os.environ.get("RUDEL_TOKEN"))
        folder = tempfile.TemporaryDirectory(prefix="rudel-serve-", ignore_cleanup_errors=True)
        options = FileOptions(classes, code, unsafe, Path(opened.enter_context(folder)))
        settings = Settings(host, port, token, tuple(allow_host or ()), log, limits, options)
        serve_models(sources, settings, typer.echo)
    leave(0)
