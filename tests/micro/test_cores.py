"""Every core gives the bits of the reference, by the kernels that it has: layers of all shapes, and public models."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from micro_board import needs_board
from micro_layers import LAYERS, C, D, F, Layer, drawn_models, model
from micro_support.models import Op, T
from micro_support.models import build as build_model
from micro_support.oracles import runner
from micro_together import assert_same_bits, on_board, on_host

from rudel.micro import compile_model
from rudel.micro.arithmetic import ROUNDINGS, Rounding
from rudel.micro.bench import uniform_inputs
from rudel.micro.bench.boards import CORES, core
from rudel.micro.bench.build import build
from rudel.micro.bench.emulator import run
from rudel.micro.bench.measure import glue
from rudel.micro.compiler import Compiled

TARGETS = [next(name for name in CORES if CORES[name] is place) for place in dict.fromkeys(CORES.values())]
"""One for each core."""

MODELS = ("ad01", "hello_world", "ic_resnet8", "kws_dscnn", "micro_speech", "person_detect", "sww_ref", "vww_96")

WIDE = {
    "more channels than a block has": Layer(C, (3, 3, 72), 70),
    "more channels than a block has, odd, linear": Layer(C, (2, 3, 17), 67, activation="NONE", zero_points=(-7, 5)),
    "a square window of one channel": Layer(C, (7, 7, 1), 8, (3, 3)),
    "a window of 32 bytes": Layer(C, (5, 6, 8), 7, (2, 2)),
    "a window beyond all borders": Layer(C, (2, 2, 3), 6, (5, 5)),
    "a window beyond all borders, dilated": Layer(C, (3, 2, 3), 4, (3, 3), dilation=2),
    "depthwise of many channels": Layer(D, (4, 5, 40), 40, (3, 3)),
    "depthwise of many channels, linear": Layer(D, (6, 1, 36), 36, (4, 1), activation="NONE", zero_points=(-7, 5)),
    "depthwise of small weights": Layer(D, (5, 9, 8), 8, (3, 3), least=0),
    "depthwise beyond all borders": Layer(D, (2, 2, 4), 4, (5, 5)),
    "depthwise, wide": Layer(D, (4, 17, 8), 8, (3, 3)),
    "depthwise, wide, of four channels": Layer(D, (3, 19, 4), 4, (2, 3)),
    "dense, long": Layer(F, (100,), 70),
}
"""What kernels with vectors tell apart, beyond the others."""

EVERYWHERE = (
    "pointwise, linear",
    "pointwise, padded",
    "few channels",
    "dilated",
    "depthwise, linear",
    "depthwise 5 x 5",
    "dense",
    "odd depth",
)


def compiled_layers(names: Sequence[str], target: str) -> list[Compiled]:
    """Layers, rounded as all interpreters do by turns."""
    layers = LAYERS | WIDE
    return [
        compile_model(model(layers[name]), name=f"layer{number}", rounding=ROUNDINGS[number % 3], target=target)
        for number, name in enumerate(names)
    ]


ON_BOARDS = [
    *((target, (*EVERYWHERE, *WIDE) if target == "cortex-m55" else EVERYWHERE) for target in TARGETS),
    pytest.param("cortex-m55", (*LAYERS, *WIDE), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("target", "names"), ON_BOARDS, ids=lambda value: value if isinstance(value, str) else len(value)
)
def test_every_core_gives_the_bits_of_the_plain_kernels(target: str, names: tuple[str, ...], tmp_path: Path) -> None:
    needs_board(target)
    plain, special = compiled_layers(names, "generic"), compiled_layers(names, target)
    given = [uniform_inputs(one, 1) for one in plain]
    for folder in ("host", "board"):
        (tmp_path / folder).mkdir()
    wanted = on_host(plain, given, tmp_path / "host")
    found = on_board(special, given, target, tmp_path / "board")
    assert [name for name, a, b in zip(names, wanted, found, strict=True) if a != b] == []


def test_the_plain_form_of_the_vectors_gives_the_same_bits(tmp_path: Path) -> None:
    names = [*LAYERS, *WIDE]
    plain, special = compiled_layers(names, "generic"), compiled_layers(names, "cortex-m55")
    for folder in ("plain", "special"):
        (tmp_path / folder).mkdir()
    given = [uniform_inputs(one, 1) for one in plain]
    wanted = on_host(plain, given, tmp_path / "plain")
    found = on_host(special, given, tmp_path / "special")
    assert [name for name, a, b in zip(names, wanted, found, strict=True) if a != b] == []
    for number, one in enumerate(special):
        depthwise = one.steps[0].operator.kind == D and one.inputs[0].shape[3] % 4
        if ROUNDINGS[number % 3] != "xnnpack":
            assert any(kernel.name.startswith("vector_") for kernel in one.steps[0].kernels) == (not depthwise)


def added(kind: str, scales: tuple[float, float, float], activation: str = "NONE") -> bytes:
    """A model that adds or subtracts two tensors."""
    shape = (1, 5, 7, 3)
    tensors = [T(shape, scale=scale, zero_point=zero) for scale, zero in zip(scales, (-5, 17, 3), strict=True)]
    return build_model(tensors, [Op(kind, (0, 1), (2,), {"activation": activation})], [0, 1], [2])


SUMS = [
    added("ADD", (0.05, 0.03, 0.09)),
    added("ADD", (0.031, 0.05, 0.07), "RELU"),
    added("SUB", (0.04, 0.04, 0.083)),
    added("SUB", (0.043, 0.021, 0.052)),
    added("ADD", (0.0311, 0.0517, 0.0017), "RELU6"),
]


def test_sums_by_vectors_have_the_same_bits(tmp_path: Path) -> None:
    needs_board("cortex-m55")
    for rounding in ROUNDINGS:
        plain, special = (
            [compile_model(data, name=f"sum{i}", rounding=rounding, target=target) for i, data in enumerate(SUMS)]
            for target in ("generic", "cortex-m55")
        )
        given = [uniform_inputs(one, 1) for one in plain]
        folders = [tmp_path / f"{rounding}{number}" for number in range(3)]
        for folder in folders:
            folder.mkdir()
        wanted = on_host(plain, given, folders[0])
        assert on_host(special, given, folders[1]) == wanted
        assert on_board(special, given, "cortex-m55", folders[2]) == wanted
        assert all(one.steps[0].kernels[0].name.startswith("vector_") for one in special)


@given(drawn_models(8, input_multiple=4))
@settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
def test_any_layers_give_the_same_bits(models: list[tuple[bytes, Rounding]]) -> None:
    assert_same_bits(models, "cortex-m55")


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-c")
BUILDS = (
    ("cortex-m55", ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-O0")),
    ("cortex-m55", ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-O3", "-fno-omit-frame-pointer", "-flto")),
    ("cortex-m55", ("-mcpu=cortex-m55+nomve.fp", "-mthumb", "-mfloat-abi=hard", "-Os")),
    ("cortex-m55", ("-mcpu=cortex-m55+nomve", "-mthumb", "-mfloat-abi=hard", "-Os")),
    ("rv32imc", ("-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs", "-Os")),
)


@pytest.mark.parametrize(("target", "options"), BUILDS)
def test_all_builds_are_without_a_warning(target: str, options: tuple[str, ...], tmp_path: Path) -> None:
    needs_board(target)
    models = compiled_layers([*LAYERS, *WIDE], target)
    for one in models:
        one.write(tmp_path)
    (tmp_path / "everything.c").write_text("".join(f'#include "{one.name}.c"\n' for one in models))
    command = [f"{core(target).tools}-gcc", *STRICT, *options, "everything.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:2000]) == (0, "")


@pytest.mark.usefixtures("interpreters")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "sww_ref" else pytest.mark.slow) for name in MODELS]
)
def test_every_core_gives_the_bits_of_the_interpreter(
    name: str, target: str, shared_data: Path, tmp_path: Path
) -> None:
    needs_board(target)
    data = (shared_data / "tflite" / f"{name}_int8.tflite").read_bytes()
    compiled = compile_model(data, name=name, rounding="tflm", target=target)
    (port,), place = compiled.inputs, core(target)
    inputs = uniform_inputs(compiled, 2)
    sources = {f"{name}.h": compiled.header, f"{name}.c": compiled.source, "model.c": glue(compiled)}
    outputs, _ = run(build(tmp_path, place, sources), place.board, inputs)
    interpreter = runner(data, "tflm")
    wanted = [interpreter([np.frombuffer(given, np.int8).reshape(port.shape)])[0].tobytes() for given in inputs]
    assert outputs == wanted


@pytest.mark.parametrize("name", ["ad01", "ic_resnet8", "kws_dscnn", "sww_ref", "vww_96"])
def test_vectors_take_less_than_half_of_the_instructions(name: str, shared_data: Path, tmp_path: Path) -> None:
    needs_board("cortex-m55")
    compiled = compile_model(shared_data / "tflite" / f"{name}_int8.tflite", name=name, target="cortex-m55")
    sources = {f"{name}.h": compiled.header, f"{name}.c": compiled.source, "model.c": glue(compiled)}
    place = core("cortex-m55")
    _, (record,) = run(build(tmp_path, place, sources), place.board, uniform_inputs(compiled, 1))
    counted = json.loads(Path(__file__).with_name("replay.json").read_text())["instructions"][name]["cortex-m4"]
    assert 2 * record.instructions <= sum(counted.values())
