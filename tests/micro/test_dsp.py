"""Kernels with DSP instructions give the bits of the plain ones, in C on the host and in assembly on the board."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from micro_board import needs_board
from micro_layers import LAYERS, drawn_models, model
from micro_support import host
from micro_support.models import Op, T, build
from micro_together import assert_same_bits, on_board, on_host

from rudel.micro import compile_model
from rudel.micro.arithmetic import Rounding, scaling_once, scaling_to_even, scaling_twice
from rudel.micro.bench import uniform_inputs
from rudel.micro.compiler import Compiled
from rudel.micro.dsp.columns import even_sums, packed, padded
from rudel.micro.dsp.scaling import find_scaling, twice_rounded
from rudel.micro.requantisation import evaluate, plan

SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SHIFTS = (8, 12)


def compiled_layers(names: Iterable[str], target: str, rounding: Rounding = "tflm", seed: int = 0) -> list[Compiled]:
    datas = [model(LAYERS[name], seed) for name in names]
    prefix = f"{rounding}_{target.replace('-', '_')}"
    return [compile_model(d, name=f"{prefix}_{i}", rounding=rounding, target=target) for i, d in enumerate(datas)]


def uses_dsp(compiled: Compiled) -> bool:
    """Whether the first layer is done by one of the kernels for DSP instructions."""
    return "rudel_" not in compiled.source and any(
        kernel.name.startswith(("pointwise", "windows", "strip", "depthwise3", "depthwise_windows", "dense"))
        for kernel in compiled.steps[0].kernels
        if kernel.name != "dense_type"
    )


GENERIC = (
    "weights of -128",
    "odd depth",
    "relu6 that clamps",
    "relu above the least",
    "depthwise 5 x 5, three channels",
)
"""Where the plain kernels do it."""


@pytest.mark.parametrize("rounding", ["tflm", "litert"])
def test_the_plain_form_of_the_kernels_gives_the_same_bits(rounding: Rounding, tmp_path: Path) -> None:
    special, plain = compiled_layers(LAYERS, "cortex-m4", rounding), compiled_layers(LAYERS, "generic", rounding)
    given = [uniform_inputs(one, 20) for one in plain]
    outputs = on_host([*special, *plain], given * 2, tmp_path)
    found, wanted = outputs[: len(LAYERS)], outputs[len(LAYERS) :]
    assert [name for name, a, b in zip(LAYERS, found, wanted, strict=True) if a != b] == []
    assert [name for name, one in zip(LAYERS, wanted, strict=True) if len(set(one)) < 5] == []
    assert {name for name, one in zip(LAYERS, special, strict=True) if not uses_dsp(one)} == set(GENERIC)
    assert not any(map(uses_dsp, plain))


@given(drawn_models(8, depth_multiple=2))
@settings(max_examples=4, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
def test_any_layers_give_the_same_bits(models: list[tuple[bytes, Rounding]]) -> None:
    assert_same_bits(models, "cortex-m4")


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_the_plain_form_is_clean_under_the_sanitizers(target: str, tmp_path: Path) -> None:
    """All layers in one program, which also shows that models do not get in each other's way."""
    models = [compile_model(model(layer), name=f"layer{i}", target=target) for i, layer in enumerate(LAYERS.values())]
    lines = [
        "#include <stdint.h>",
        "#include <stdlib.h>",
        *(f'#include "{m.name}.c"' for m in models),
        "int main(void) {",
    ]
    for m in models:
        upper = m.name.upper()
        m.write(tmp_path)
        lines += [
            "    for (int run = 0; run < 3; run++) {",
            f"        int8_t *in = malloc({upper}_INPUT_SIZE), *out = malloc({upper}_OUTPUT_SIZE);",
            f"        for (int i = 0; i < {upper}_INPUT_SIZE; i++) in[i] = (int8_t)(i * 37 * (run + 1) + 11);",
            f"        {m.name}_invoke(in, out); free(in); free(out); }}",
        ]
    (tmp_path / "main.c").write_text("\n".join([*lines, "    return 0;", "}", ""]))
    program = tmp_path / "program"
    command = ["gcc", *host.STRICT, *SANITIZED, str(tmp_path / "main.c"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:2000]
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr[:2000]) == (0, "")


ON_BOARD = (
    "pointwise of an odd number of pixels",
    "pointwise, linear",
    "pointwise, padded",
    "3 x 3, linear, strides",
    "few channels",
    "three channels, wide",
    "three channels, odd strides, linear",
    "one channel, long rows",
    "many pixels, linear, stride 2",
    "many pixels, long rows",
    "many pixels, pointwise",
    "many pixels, pointwise, padded",
    "depthwise of odd width",
    "depthwise, stride 2, odd",
    "depthwise, strides apart",
    "depthwise, linear",
    "depthwise of columns, linear",
    "depthwise 5 x 5",
    "depthwise 4 x 6, stride 3",
    "depthwise, tall",
    "depthwise, tall, stride 2",
    "dense of an odd length",
    "dense, linear",
)


def test_the_assembly_gives_the_same_bits(tmp_path: Path) -> None:
    needs_board()
    special, plain = (compiled_layers(ON_BOARD, target, seed=7) for target in ("cortex-m4", "generic"))
    assert differing_on_board(ON_BOARD, special, plain, 20, tmp_path) == []
    for one in special:
        assert uses_dsp(one)
        assert "smmla" in one.source or "smmulr" in one.source


def differing_on_board(
    names: Sequence[str], special: list[Compiled], plain: list[Compiled], count: int, folder: Path
) -> list[str]:
    """The names of models that give other outputs on the board than here."""
    given = [uniform_inputs(one, count) for one in plain]
    found = on_board(special, given, special[0].target.name, made(folder / "board"))
    wanted = on_host(plain, given, made(folder / "host"))
    return [name for name, a, b in zip(names, found, wanted, strict=True) if a != b]


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@given(st.integers(0, 1 << 30), st.sampled_from(("relu", "linear", "to even")), st.sampled_from(SHIFTS))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_scaling_has_the_bits_for_every_sum(seed: int, outputs: str, shift: int) -> None:
    random = np.random.default_rng(seed)
    channels = 4
    factors = 2.0 ** -random.uniform(6, 12, channels)
    bias = random.integers(-5000, 5000, channels)
    least, most = -random.integers(1, 1 << 17, channels), random.integers(1, 1 << 17, channels)
    zero_point = -128 if outputs == "relu" else int(random.integers(-60, 60))
    scaling = {"relu": scaling_twice, "linear": scaling_once, "to even": scaling_to_even}[outputs](factors)
    wanted = plan(scaling, bias, (least + bias, most + bias), zero_point, (-128, 127))
    found = find_scaling(wanted, (least, most), shift)
    if found is None:
        return
    for channel in range(channels):
        sums = np.arange(least[channel], most[channel] + 1)[None].repeat(channels, axis=0)
        sums = np.clip(sums, least[:, None], most[:, None])
        assert (found.apply(sums) == evaluate(wanted, sums)).all()


def test_most_scalings_are_found() -> None:
    random = np.random.default_rng(1)
    found = 0
    for _ in range(20):
        factors = 2.0 ** -random.uniform(7, 10, 16)
        reach = (np.full(16, -(1 << 16)), np.full(16, 1 << 16))
        wanted = plan(scaling_twice(factors), np.zeros(16, np.int64), reach, -128, (-128, 127))
        found += any(find_scaling(wanted, reach, shift) is not None for shift in SHIFTS)
    assert found >= 19


def test_outputs_on_both_sides_of_zero_are_rounded_twice() -> None:
    random = np.random.default_rng(2)
    factors = 2.0 ** -random.uniform(5, 12, 8)
    reach = (np.full(8, -(1 << 16)), np.full(8, 1 << 16))
    bias = random.integers(-900, 900, 8)
    wanted = plan(scaling_twice(factors), bias, (reach[0] + bias, reach[1] + bias), 11, (-128, 127))
    assert wanted.form == "twice"
    found = twice_rounded(wanted, reach)
    assert found is not None
    sums = np.arange(-(1 << 16), (1 << 16) + 1)[None].repeat(8, axis=0)
    assert (found.apply(sums) == evaluate(wanted, sums)).all()


@given(st.lists(st.tuples(st.integers(-127, 127), st.integers(-128, 127)), min_size=1, max_size=40))
@settings(derandomize=True)
def test_packed_weights_and_spread_inputs_give_the_sum(pairs: list[tuple[int, int]]) -> None:
    weights, inputs = (padded(np.array(side, np.int8)[None], 4)[0] for side in zip(*pairs, strict=True))
    words = packed(weights).astype(np.int64)

    def halves(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (word & 0xFFFF).astype(np.uint16).view(np.int16), (word >> 16).astype(np.uint16).view(np.int16)

    low, high = halves(words)
    x = inputs.astype(np.int64).reshape(-1, 4)
    even = 256 * x[:, ::2] - x[:, 1::2] + 127
    assert even.min() >= -(1 << 15)
    assert even.max() < 1 << 15
    spread = words.astype(np.uint32).view(np.uint8).reshape(-1, 4)[:, ::2].view(np.int8).astype(np.int64)
    total = (low * x[:, 1] + high * x[:, 3]).sum() + (spread * even).sum()
    assert total == 256 * (weights.astype(np.int64) * inputs).sum() + 127 * even_sums(weights)


def test_depthwise_outputs_lie_where_the_inputs_lie() -> None:
    compiled = compile_model(model(LAYERS["depthwise"]), name="special", target="cortex-m4")
    (source,), (result,) = compiled.graph.inputs, compiled.graph.outputs
    assert compiled.memory.offsets[source] == compiled.memory.offsets[result]


def test_columns_of_a_tall_image_are_made_in_place_too() -> None:
    compiled = compile_model(model(LAYERS["depthwise, tall"]), name="special", target="cortex-m4")
    assert "rudel_depthwise3_columns" in compiled.steps[0].tables["layer"]
    (source,), (result,) = compiled.graph.inputs, compiled.graph.outputs
    assert compiled.memory.offsets[source] == compiled.memory.offsets[result]


def test_a_convolution_that_grows_writes_over_its_input() -> None:
    compiled = compile_model(model(LAYERS["pointwise that grows"]), name="special", target="cortex-m4")
    scratch = compiled.steps[0].scratch
    assert compiled.arena_bytes <= 6 * 6 * 20 + scratch


def sum_model(kind: str, scales: tuple[float, float], zero_points: tuple[int, int, int]) -> bytes:
    """A .tflite file that adds or subtracts two inputs of 61 numbers."""
    tensors = [
        T((1, 61), scale=scale, zero_point=zero) for scale, zero in zip((*scales, 1.0), zero_points, strict=True)
    ]
    return build(tensors, [Op(kind, (0, 1), (2,), {"activation": "NONE"})], [0, 1], [2])


SUMS = (
    ("ADD", (0.7732462684520817, 2.045217092454641), (-128, 4, -128)),
    ("SUB", (0.4, 0.6), (3, -5, 17)),
)


def test_sums_have_the_same_bits(tmp_path: Path) -> None:
    needs_board()
    cases = [(sum_model(*one), rounding) for one in SUMS for rounding in ("tflm", "litert")]
    special, plain = (
        [compile_model(d, name=f"{name}{i}", rounding=r, target=target) for i, (d, r) in enumerate(cases)]  # type: ignore[arg-type]
        for name, target in (("special", "cortex-m4"), ("plain", "generic"))
    )
    assert all(one.steps[0].kernels[0].name.startswith("sum_") for one in special)
    given = [uniform_inputs(one, 20) for one in plain]
    wanted = on_host(plain, given, made(tmp_path / "plain"))
    assert on_host(special, given, made(tmp_path / "special")) == wanted
    assert on_board(special, given, "cortex-m4", made(tmp_path / "board")) == wanted
    assert [len(set(outputs)) for outputs in wanted] == [20] * 4


STRICT = ("-std=c99", "-mthumb", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-c")
BUILDS = (
    ("cortex-m4", ("-mcpu=cortex-m4", "-O0")),
    ("cortex-m4", ("-mcpu=cortex-m4", "-Os", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")),
    ("cortex-m4", ("-mcpu=cortex-m4", "-O2", "-fno-omit-frame-pointer", "-flto")),
    ("cortex-m7", ("-mcpu=cortex-m7", "-O3", "-mfloat-abi=hard", "-mfpu=fpv5-d16")),
    ("cortex-m33", ("-mcpu=cortex-m33", "-O2", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16")),
    ("cortex-m4", ("-mcpu=cortex-m3", "-O2")),
    ("cortex-m0plus", ("-mcpu=cortex-m0plus", "-Os")),
)


@pytest.mark.parametrize(("target", "options"), BUILDS)
def test_all_builds_for_boards_are_without_a_warning(target: str, options: tuple[str, ...], tmp_path: Path) -> None:
    needs_board()
    models = compiled_layers(LAYERS, target)
    for one in models:
        one.write(tmp_path)
    (tmp_path / "everything.c").write_text("".join(f'#include "{one.name}.c"\n' for one in models))
    command = ["arm-none-eabi-gcc", *STRICT, *options, "everything.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:2000]) == (0, "")


@pytest.mark.parametrize("target", ["cortex-m7", "cortex-m33"])
def test_other_cores_run_the_assembly_too(target: str, tmp_path: Path) -> None:
    needs_board()
    names = ("3 x 3, linear, strides", "depthwise of odd width", "dense, linear")
    special, plain = (compiled_layers(names, each, seed=3) for each in (target, "generic"))
    assert differing_on_board(names, special, plain, 5, tmp_path) == []
