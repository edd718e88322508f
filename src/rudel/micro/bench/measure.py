"""A compiled model on an emulated microcontroller: how large, how fast, and whether its bits are right.

Three images are built: one with the model, one that calls the bench's hook after every layer, and one without any
model. What the first has more of than the last is the model's: its code, its constants, and whatever both pull in from
libraries.
"""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rudel.micro.arithmetic import Rounding
from rudel.micro.bench.boards import Core, core
from rudel.micro.bench.build import OWN, build, size
from rudel.micro.bench.emulator import run
from rudel.micro.bench.host import count_differing, host_outputs
from rudel.micro.bench.tools import BenchError
from rudel.micro.bench.trace import build_plugin, can_trace, estimates, loading
from rudel.micro.check import uniform_array
from rudel.micro.compiler import Compiled, compile_model


@dataclass(frozen=True)
class Layer:
    """One step of a model.

    Args:
        index: of the operator in the file.
        kind: the operator's name.
        macs: multiplications and additions.
        instructions: that it takes.
        estimated_cycles: clock cycles, by the core's published timings; None where there is no estimate.
    """

    index: int
    kind: str
    macs: int
    instructions: int
    estimated_cycles: int | None


@dataclass(frozen=True)
class Measurement:
    """Costs of a model on a core.

    Args:
        target: what it was compiled for.
        machine: what QEMU pretended to be.
        instructions: of one inference, the most of all inputs. These are instructions, not clock cycles.
        estimated_cycles: clock cycles of one inference, the most of all inputs, by the core's published timings
            (`rudel.micro.bench.timings`) and without wait states; None where there is no estimate.
        flash: bytes of code, constants and initial values.
        parameters: those of them that are weights, biases, multipliers and tables.
        ram: bytes of the arena, inputs and outputs in it, and of other variables; without stack.
        stack: bytes of the deepest stack.
        layers: in order; instructions and cycles are those of the first input.
        inputs: how many inputs were tried.
        differing: for how many of them the outputs are not as expected, float32 within rounding.
        exact: whether equality was required: all outputs are integers.
    """

    target: str
    machine: str
    instructions: int
    estimated_cycles: int | None
    flash: int
    parameters: int
    ram: int
    stack: int
    layers: tuple[Layer, ...]
    inputs: int
    differing: int
    exact: bool

    @property
    def code(self) -> int:
        """Bytes of flash that are not parameters."""
        return self.flash - self.parameters


def measure(
    compiled: Compiled,
    inputs: Sequence[bytes],
    expected: Sequence[bytes],
    *,
    options: Sequence[str] = (),
    timeout: float = 300,
) -> Measurement:
    """Builds a model for its target, runs it in QEMU, and compares its outputs.

    Args:
        compiled: the model; its target decides the core.
        inputs: at least one; each is the bytes of all input tensors in order.
        expected: the bytes of all output tensors, for every input.
        options: more options of the compiler, such as `-Os`; the bench itself uses -O2.
        timeout: seconds that an image may run.

    Raises:
        BenchError: a program is missing, the model has a name of the bench's own, does not fit the board, or faults.
        RudelError: there is no board for the target.
    """
    if not inputs or len(inputs) != len(expected):
        raise BenchError(
            f"There are {len(inputs)} inputs and {len(expected)} expected outputs: give one for each, at least one."
        )
    place = core(compiled.target.name)
    sources = model_sources(compiled, {*OWN, "bench_model.c"})
    steps = compiled.steps
    with tempfile.TemporaryDirectory(prefix="rudel-bench-") as temporary:
        whole = _image(Path(temporary) / "whole", place, {**sources, "bench_model.c": glue(compiled)}, (), options)
        empty = _image(Path(temporary) / "empty", place, {"bench_model.c": glue(compiled, empty=True)}, (), options)
        macros = (f"BENCH_LAYERS={len(steps)}", f"{compiled.name.upper()}_PROFILE")
        layered = _image(
            Path(temporary) / "layered", place, {**sources, "bench_model.c": glue(compiled)}, macros, options
        )
        taken = size(whole, place) - size(empty, place)
        plugin = build_plugin(Path(temporary)) if can_trace(place) else None
        counting = loading(plugin, whole, "bench_invoke") if plugin else None
        outputs, records = run(whole, place.board, inputs, plugin=counting, timeout=timeout)
        counting = loading(plugin, layered, "bench_invoke", f"{compiled.name}_profile") if plugin else None
        _, by_layer = run(layered, place.board, inputs[:1], layers=len(steps), plugin=counting, timeout=timeout)
        estimated = max(map(sum, estimates(whole))) if plugin else None
        by_mark = estimates(layered)[0][: len(steps)] if plugin else [None] * len(steps)
    layers = zip(steps, by_layer[0].layer_instructions, by_mark, strict=True)
    return Measurement(
        target=compiled.target.name,
        machine=place.board.machine,
        instructions=max(record.instructions for record in records),
        estimated_cycles=estimated,
        flash=taken.flash,
        parameters=compiled.weights_bytes,
        ram=taken.ram,
        stack=max(record.stack_bytes for record in records),
        layers=tuple(Layer(s.operator.index, s.operator.kind, s.macs, n, cycles) for s, n, cycles in layers),
        inputs=len(inputs),
        differing=count_differing(compiled, outputs, expected),
        exact=compiled.exact,
    )


def bench(
    source: Path | bytes,
    *,
    target: str = "cortex-m4",
    rounding: Rounding = "litert",
    ram: int | None = None,
    count: int = 3,
    name: str = "model",
    options: Sequence[str] = (),
) -> Measurement:
    """Compiles a model for a target and for this computer, and measures it with random inputs.

    Args:
        source: a .tflite file, or its bytes.
        target: what to compile for.
        rounding: whose bits to give.
        ram: the most bytes of the arena.
        count: how many random inputs to run; the seed is fixed. The first is used for the layers.
        name: of the model in C, whatever its file is called.
        options: more options of the cross compiler.

    Raises:
        CompileError: the model cannot be compiled.
        BenchError: it cannot be built or run.
    """
    core(target)
    compiled = compile_model(source, name=name, rounding=rounding, target=target, ram=ram)
    reference = compile_model(source, name=name, rounding=rounding)
    inputs = uniform_inputs(compiled, count)
    return measure(compiled, inputs, host_outputs(reference, inputs), options=options)


def uniform_inputs(compiled: Compiled, count: int) -> list[bytes]:
    """The bytes of inputs by `uniform_array`, always the same."""
    random = np.random.default_rng(0)
    return [b"".join(uniform_array(random, port).tobytes() for port in compiled.inputs) for _ in range(count)]


def model_sources(compiled: Compiled, own: Collection[str]) -> dict[str, str]:
    """Returns the texts of NAME.h and NAME.c by file name.

    Args:
        compiled: the model.
        own: names of the files that lie beside them.

    Raises:
        BenchError: one of them has the model's name, or the bench's functions have.
    """
    sources = {f"{compiled.name}.h": compiled.header, f"{compiled.name}.c": compiled.source}
    if compiled.name == "bench" or sources.keys() & own:
        raise BenchError(f"The bench has C of its own that is called `{compiled.name}`: rename the model's file.")
    return sources


def glue(compiled: Compiled, *, empty: bool = False) -> str:
    """The C between the bench and a model: its ports, and the call; with `empty` the ports alone."""
    name, upper, graph = compiled.name, compiled.name.upper(), compiled.graph
    lines = ['#include "board.h"']
    if empty:
        lines.append("extern uint32_t bench_bss_end;")
    else:
        lines.append(f'#include "{name}.h"')
    arguments = []
    for role, indices in (("INPUT", graph.inputs), ("OUTPUT", graph.outputs)):
        places = [f"{upper}_{role}" if len(indices) == 1 else f"{upper}_{role}{n}" for n in range(len(indices))]
        arguments += places
        ports = [
            f"{{{'&bench_bss_end' if empty else place}, {graph[index].bytes}}}"
            for place, index in zip(places, indices, strict=True)
        ]
        lines.append(f"const bench_port bench_{role.lower()}s[] = {{{', '.join(ports)}}};")
        lines.append(f"const uint32_t bench_{role.lower()}_count = {len(ports)};")
    if empty:
        return "\n".join([*lines, "void bench_reset_model(void) {}", "void bench_invoke(void) {}", ""])
    resets = f"{name}_reset(); " if compiled.remembers else ""
    lines += [
        f"void bench_reset_model(void) {{ {resets}}}",
        f"void bench_invoke(void) {{ {name}_invoke({', '.join(arguments)}); }}",
    ]
    lines += [f"#ifdef {upper}_PROFILE", f"void {name}_profile(int layer) {{ bench_layer(layer); }}", "#endif", ""]
    return "\n".join(lines)


def _image(
    folder: Path, place: Core, sources: Mapping[str, str], macros: Sequence[str], options: Sequence[str]
) -> Path:
    folder.mkdir()
    return build(folder, place, sources, macros=macros, options=options)
