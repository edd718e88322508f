"""`rudel micro`: .tflite models as plain C for microcontrollers."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli import complete
from rudel.cli.output import count_display, print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import JsonOption

if TYPE_CHECKING:
    from rudel.micro.bench import BoardMeasurement, Measurement
    from rudel.micro.compiler import Compiled
    from rudel.micro.ports import Port

app = typer.Typer(
    no_args_is_help=True, help="Compile .tflite models to plain C, smaller and faster than an interpreter."
)


class _Rounding(StrEnum):
    LITERT = "litert"
    XNNPACK = "xnnpack"
    TFLM = "tflm"


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")]
RoundingOption = Annotated[
    _Rounding,
    typer.Option(
        help="Give the same bits as LiteRT's reference kernels, LiteRT's default (XNNPACK), or TensorFlow Lite Micro."
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Processor or board: generic, cortex-m0plus, cortex-m4, cortex-m55, esp32c3, ...",
        autocompletion=complete.targets,
    ),
]
NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Prefix of names in C.  \\[default: the file's name]")
]
RamOption = Annotated[int | None, typer.Option(metavar="BYTES", min=1, help="RAM limit for tensors.")]


@app.command("compile")
def compile_(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for NAME.h and NAME.c.")],
    name: NameOption = None,
    rounding: RoundingOption = _Rounding.LITERT,
    target: TargetOption = "generic",
    ram: RamOption = None,
    json: JsonOption = False,
) -> None:
    """Compile a model to plain C: NAME.h and NAME.c."""
    from rudel.micro.compiler import compile_model

    compiled = compile_model(model, name=name, rounding=rounding.value, target=target, ram=ram)
    paths = compiled.write(out)
    if json:
        print_json(
            {
                "files": [str(path) for path in paths],
                "name": compiled.name,
                "rounding": compiled.rounding,
                "target": compiled.target.name,
                "arena_bytes": compiled.arena_bytes,
                "weights_bytes": compiled.weights_bytes,
                "macs": compiled.macs,
                "inputs": [_described(port) for port in compiled.inputs],
                "outputs": [_described(port) for port in compiled.outputs],
            }
        )
        return
    typer.echo(f"{' and '.join(str(path) for path in paths)}")
    typer.echo(
        f"{compiled.macs:,} multiplications an inference, {compiled.weights_bytes:,} bytes of parameters in flash, "
        f"{compiled.arena_bytes:,} bytes of RAM with input and output"
    )
    if any(tensor.dtype == "float32" for tensor in (*compiled.inputs, *compiled.outputs)):
        typer.echo(
            "The model computes in float32, which is slow on most microcontrollers: quantise it to int8.", err=True
        )


def _described(port: "Port") -> dict[str, Any]:
    keys = ("name", "shape", "dtype", "scale", "zero_point")
    return {key: getattr(port, key) for key in (*keys, "variable", "macro")}


@app.command("explain")
def explain(
    model: ModelArgument,
    rounding: RoundingOption = _Rounding.LITERT,
    target: TargetOption = "generic",
    ram: RamOption = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg|FILE.png", help="Draw the arena into a file.")] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a page, with cycles by layer where the target can be emulated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show operators, multiplications, flash and RAM by layer, and the arena as a picture."""
    from rudel.micro.compiler import compile_model
    from rudel.micro.explain import arena_text, layers, plot_arena

    compiled = compile_model(model, rounding=rounding.value, target=target, ram=ram)
    rows = layers(compiled)
    if plot is not None:
        plot_arena(compiled, plot)
    if html is not None:
        _write_page(html, model, compiled, ram)
    if json:
        from dataclasses import asdict

        print_json(
            {
                "name": compiled.name,
                "arena_bytes": compiled.arena_bytes,
                "weights_bytes": compiled.weights_bytes,
                "macs": compiled.macs,
                "layers": [asdict(row) for row in rows],
            }
        )
        return
    print_table(
        ["", "operator", "output", "MACs", "flash", "RAM"],
        [
            [
                str(row.number),
                row.kind,
                "x".join(map(str, row.shape)),
                f"{row.macs:,}",
                f"{row.flash:,}",
                f"{row.ram:,}",
            ]
            for row in rows
        ]
        + [["", "all", "", f"{compiled.macs:,}", f"{compiled.weights_bytes:,}", f"{compiled.arena_bytes:,}"]],
        right=(0, 3, 4, 5),
    )
    typer.echo(
        "\nMACs: multiplications with addition. flash: bytes of parameters, without code. RAM: bytes of the arena."
    )
    typer.echo("\nThe arena: layers to the right, addresses upwards; # where memory is used in place.\n")
    for line in arena_text(compiled):
        typer.echo(line)
    for path in (plot, html):
        if path is not None:
            typer.echo(f"\n{path}")


def _write_page(path: Path, model: Path, compiled: "Compiled", ram: int | None) -> None:
    from rudel.errors import RudelError
    from rudel.micro.bench import bench as measure
    from rudel.micro.explain_page import write_page
    from rudel.micro.removed import removals

    rounding, target = compiled.rounding, compiled.target.name
    measured = reason = None
    try:
        measured = measure(model, target=target, rounding=rounding, ram=ram, count=1)
    except RudelError as error:
        reason = str(error)
        typer.echo(f"The page has no instructions and cycles. {reason}", err=True)
    write_page(path, compiled, removals(model, rounding=rounding, target=target), measured, reason)


@app.command("check")
def check(
    model: ModelArgument,
    rounding: RoundingOption = _Rounding.LITERT,
    target: TargetOption = "generic",
    count: Annotated[
        int | None,
        typer.Option("-n", min=0, help="Number of random inputs.", show_default="up to 1000, for 30 s"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy|FILE.npz", help="Your own inputs, in addition; floats are quantised."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    json: JsonOption = False,
) -> None:
    """Compile a model, run it here, and compare its outputs bit by bit with the interpreter's."""
    from dataclasses import asdict

    from rudel.micro.check import check as run_check
    from rudel.micro.compiler import compile_model
    from rudel.micro.examples import read_examples

    compiled = compile_model(model, rounding=rounding.value, target=target)
    real = read_examples(data) if data is not None else ()
    with reporting_interrupts(), count_display("comparing") as progress:
        result = run_check(compiled, model.read_bytes(), count=count, real=real, seed=seed, progress=progress)
    if json:
        print_json({**asdict(result), "passed": result.passed})
    else:
        tried = f"{result.random:,} random inputs" + (f" and {result.real:,} of yours" if result.real else "")
        same = (
            "the same bits" if result.exact else f"the same within rounding (largest difference {result.largest:.2g})"
        )
        wrong, elements = result.elements
        verdict = same if result.passed else f"{wrong:,} of {elements:,} outputs differ, by up to {result.largest:g}"
        typer.echo(f"{result.interpreter}: {verdict} on {tried}")
        if result.corrected:
            typer.echo(
                "The interpreter was given the file with the axis of its biases' scales corrected: "
                "old converters wrote one that biases do not have, and LiteRT refuses such files.",
                err=True,
            )
    if not result.passed:
        raise typer.Exit(1)


@app.command("bench")
def bench(
    model: ModelArgument,
    target: Annotated[
        str, typer.Option(metavar="NAME", help="Core or board: cortex-m4, cortex-m0plus, cortex-m55, esp32c3, ...")
    ] = "cortex-m4",
    rounding: RoundingOption = _Rounding.LITERT,
    ram: RamOption = None,
    count: Annotated[int, typer.Option("-n", min=1, help="Number of inputs to run.")] = 3,
    sketch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write an Arduino sketch for --port into a folder, and measure nothing."),
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run a board with that sketch, too: /dev/ttyACM0, COM3, ...")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Build a model for a core, run it in an emulator, and print flash, RAM, stack, and instructions by layer."""
    from dataclasses import asdict

    from rudel.errors import RudelError
    from rudel.micro.bench import bench as measure
    from rudel.micro.bench import bench_board

    if sketch is not None:
        _write_sketch(model, sketch, target, rounding, ram)
        return
    board, measured = None, None
    if port is not None:
        with reporting_interrupts(), count_display("running") as progress:
            board = bench_board(
                model, port, target=target, rounding=rounding.value, ram=ram, count=count, progress=progress
            )
    try:
        measured = measure(model, target=target, rounding=rounding.value, ram=ram, count=count)
    except RudelError as error:
        if board is None:
            raise
        typer.echo(f"The board is not compared with an emulated one: {error}", err=True)
    if json:
        of_board = {} if board is None else {"board": {**asdict(board), "cycles": board.cycles}}
        print_json({**({} if measured is None else asdict(measured)), **of_board})
    else:
        if measured is not None:
            _print_measured(measured)
        if board is not None:
            _print_board(board, measured)
    if any(found is not None and found.differing for found in (measured, board)):
        raise typer.Exit(1)


def _write_sketch(model: Path, folder: Path, target: str, rounding: _Rounding, ram: int | None) -> None:
    from rudel.micro.bench.sketch import write_sketch
    from rudel.micro.compiler import compile_model

    sketch, *others = write_sketch(compile_model(model, rounding=rounding.value, target=target, ram=ram), folder)
    typer.echo(
        f"{sketch} and {len(others)} files beside it: upload the sketch, and repeat the command with --port NAME "
        "instead of --sketch"
    )


def _print_measured(measured: "Measurement") -> None:
    estimated = measured.estimated_cycles
    print_table(
        ["", "operator", "MACs", "instructions", "per MAC", *(["estimated cycles"] if estimated else [])],
        [
            [
                str(layer.index),
                layer.kind,
                f"{layer.macs:,}",
                f"{layer.instructions:,}",
                f"{layer.instructions / layer.macs:.2f}" if layer.macs else "",
                *([f"{layer.estimated_cycles:,}"] if estimated else []),
            ]
            for layer in measured.layers
        ],
        right=(0, 2, 3, 4, 5),
    )
    typer.echo(
        f"\n{measured.instructions:,} instructions an inference"
        f"{f', an estimated {estimated:,} clock cycles' if estimated else ' (instructions, not clock cycles)'}, "
        f"{measured.flash:,} bytes of flash, {measured.code:,} of them code, "
        f"{measured.ram:,} bytes of RAM and {measured.stack:,} of stack"
    )
    typer.echo(f"{measured.machine}, {measured.inputs} inputs: {_same(measured)}")


def _print_board(board: "BoardMeasurement", measured: "Measurement | None") -> None:
    sentence = f"{board.median / 1000:,.3f} ms an inference"
    if board.cycles is not None and board.hertz is not None:
        sentence += f", {board.cycles:,} clock cycles at {board.hertz / 1e6:g} MHz"
        if measured is not None and measured.estimated_cycles:
            sentence += f", {board.cycles / measured.estimated_cycles:.2f} of what is estimated"
        elif measured is not None:
            sentence += f", {board.cycles / measured.instructions:.2f} an instruction"
    typer.echo(f"\n{sentence}")
    typer.echo(f"the board at {board.port}, {len(board.microseconds)} inputs: {_same(board)}")


def _same(found: "Measurement | BoardMeasurement") -> str:
    if found.differing:
        return f"{found.differing} outputs differ"
    return f"the same {'bits' if found.exact else 'within rounding'} as on this computer"
