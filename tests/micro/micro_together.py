"""The bits of many models, all built together: on this computer, and on an emulated board."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from micro_support import host

from rudel.micro.arithmetic import Rounding
from rudel.micro.bench import uniform_inputs
from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build
from rudel.micro.bench.emulator import run
from rudel.micro.compiler import Compiled, compile_model


def on_host(models: Sequence[Compiled], given: Sequence[Sequence[bytes]], folder: Path) -> list[list[bytes]]:
    """The outputs of models on this computer, each for its inputs of int8; a model has one output."""
    library = host.build(list(models), folder, ("-O0",))
    return [
        [host.invoke_inside(library, one, _arrays(one, data))[0].tobytes() for data in inputs]
        for one, inputs in zip(models, given, strict=True)
    ]


def on_board(
    models: Sequence[Compiled], given: Sequence[Sequence[bytes]], target: str, folder: Path
) -> list[list[bytes]]:
    """The same on the target's board, all in one image; models have equally many inputs."""
    place = core(target)
    lines = ['#include "board.h"', *(f'#include "{one.name}.h"' for one in models)]
    for role in ("input", "output"):
        ports = [port for one in models for port in getattr(one, f"{role}s")]
        places = ", ".join(f"{{{port.macro}, {port.macro}_SIZE}}" for port in ports)
        lines += [f"const bench_port bench_{role}s[] = {{{places}}};"]
        lines += [f"const uint32_t bench_{role}_count = {len(ports)};"]
    calls = [f"{m.name}_invoke({', '.join(port.macro for port in (*m.inputs, *m.outputs))});" for m in models]
    lines += ["void bench_reset_model(void) {}", f"void bench_invoke(void) {{ {' '.join(calls)} }}"]
    sources = {f"{one.name}.h": one.header for one in models} | {f"{one.name}.inc": one.source for one in models}
    lines += [f'#include "{one.name}.inc"' for one in models]
    image = build(folder, place, sources | {"model.c": "\n".join([*lines, ""])})
    outputs, _ = run(image, place.board, [b"".join(inputs) for inputs in zip(*given, strict=True)])
    sizes = [one.outputs[0].size for one in models]
    ends = np.cumsum(sizes)
    return [[output[end - size : end] for output in outputs] for size, end in zip(sizes, ends, strict=True)]


def _arrays(model: Compiled, data: bytes) -> list[np.ndarray]:
    ends = np.cumsum([port.size for port in model.inputs])
    return np.split(np.frombuffer(data, np.int8), ends[:-1])


def assert_same_bits(models: Sequence[tuple[bytes, Rounding]], target: str) -> None:
    """Checks that kernels for a target give the bits of the plain ones, in C on this computer."""
    special, plain = (
        [
            compile_model(data, name=f"{name}{number}", rounding=rounding, target=place)
            for number, (data, rounding) in enumerate(models)
        ]
        for name, place in (("special", target), ("plain", "generic"))
    )
    given = [uniform_inputs(one, 5) for one in plain]
    with tempfile.TemporaryDirectory() as folder:
        outputs = on_host([*special, *plain], given * 2, Path(folder))
    assert outputs[: len(models)] == outputs[len(models) :]
