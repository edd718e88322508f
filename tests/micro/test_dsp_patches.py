"""Layers computed in bands: the same bits in less memory, or one sentence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from micro_board import needs_board
from micro_support.models import Op, T, build

from rudel.errors import CompileError
from rudel.micro import Compiled, compile_model
from rudel.micro.bench import bench, uniform_inputs
from rudel.micro.bench.host import host_outputs

TARGETS = ("cortex-m4", "generic")


def picture_net(seed: int = 0, size: tuple[int, int] = (40, 40), *, pool: bool = False, window: int = 3) -> bytes:
    """A net whose first tensors are its largest: 3 x 3, depthwise, 1 x 1 that grows, depthwise by 2, 1 x 1, dense."""
    random = np.random.default_rng(seed)
    tensors = [T((1, *size, 1), scale=1.0, zero_point=-3)]
    operators: list[Op] = []

    def add(kind: str, weights: tuple[int, ...], shape: tuple[int, ...], stride: int = 1) -> None:
        depth = shape[-1]
        axis = 3 if kind == "DEPTHWISE_CONV_2D" else 0
        scales = random.uniform(0.002, 0.01, depth).astype(np.float32)
        source, first = len(tensors) - 1, len(tensors)
        data = random.integers(-127, 128, weights).astype(np.int8)
        bias = random.integers(-900, 900, depth).astype(np.int32)
        zeros = np.zeros(depth, int)
        tensors.append(T(weights, scale=scales, zero_point=zeros, axis=axis, data=data))
        tensors.append(T((depth,), "int32", scale=scales, zero_point=zeros, data=bias))
        tensors.append(T(shape, scale=float(2 * np.sqrt(data.size / depth) / 6), zero_point=-128))
        options: dict[str, Any] = {"activation": "RELU"}
        if kind != "FULLY_CONNECTED":
            options |= {"padding": "SAME", "stride_h": stride, "stride_w": stride, "dilation_h": 1, "dilation_w": 1}
        if kind == "DEPTHWISE_CONV_2D":
            options["depth_multiplier"] = 1
        operators.append(Op(kind, (source, first, first + 1), (first + 2,), options))

    half = [(side + 1) // 2 for side in size]
    quarter = [(side + 1) // 2 for side in half]
    add("CONV_2D", (8, 3, 3, 1), (1, *half, 8), 2)
    add("DEPTHWISE_CONV_2D", (1, window, window, 8), (1, *half, 8))
    add("CONV_2D", (16, 1, 1, 8), (1, *half, 16))
    if pool:
        tensors.append(T((1, *quarter, 16), scale=tensors[-1].scale, zero_point=-128))
        options = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_h": 3, "filter_w": 3, "activation": "NONE"}
        operators.append(Op("MAX_POOL_2D", (len(tensors) - 2,), (len(tensors) - 1,), options))
    else:
        add("DEPTHWISE_CONV_2D", (1, 3, 3, 16), (1, *quarter, 16), 2)
    add("CONV_2D", (8, 1, 1, 16), (1, *quarter, 8))
    add("FULLY_CONNECTED", (4, quarter[0] * quarter[1] * 8), (1, 4))
    return build(tensors, operators, [0], [len(tensors) - 1])


def outputs(compiled: Compiled) -> list[bytes]:
    return host_outputs(compiled, uniform_inputs(compiled, 8))


def kinds(compiled: Compiled) -> list[str]:
    return [step.operator.kind for step in compiled.steps]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("size", "pool"), [((40, 40), False), ((40, 40), True), ((64, 24), False)])
def test_bands_give_the_same_bits_in_less_memory(target: str, size: tuple[int, int], pool: bool) -> None:
    data = picture_net(size=size, pool=pool)
    whole = compile_model(data, name="net", target=target)
    wanted = outputs(whole)
    assert len(set(wanted)) > 4
    assert "PATCHES" not in kinds(whole)
    seen = []
    for share in (0.8, 0.6):
        limit = int(whole.arena_bytes * share)
        banded = compile_model(data, name="net", target=target, ram=limit)
        assert banded.arena_bytes <= limit
        assert "PATCHES" in kinds(banded)
        assert banded.macs >= whole.macs
        assert outputs(banded) == wanted
        seen.append(banded.macs)
    assert seen == sorted(seen)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("size", "window"), [((7, 7), 3), ((12, 12), 3), ((17, 17), 3), ((17, 17), 5), ((26, 26), 3), ((26, 9), 3)]
)
def test_every_number_of_bands_gives_the_same_bits(target: str, size: tuple[int, int], window: int) -> None:
    from rudel.micro.compiler import _lowered
    from rudel.micro.emit import Context
    from rudel.micro.lowering import lower
    from rudel.micro.passes import patches
    from rudel.micro.passes.pipeline import optimised
    from rudel.micro.reader import read_model
    from rudel.micro.targets import target_named
    from rudel.micro.write import header_text, source_text

    data = picture_net(size=size, window=window)
    whole = compile_model(data, name="net", target=target)
    wanted = outputs(whole)
    context = Context("litert", target_named(target))
    graph = optimised(read_model(data), context)
    parts = patches._chain(graph, context, lower)
    assert len(parts) == 5
    for rows in range(1, parts[-1].output[0] + 1):
        operator = patches._operator(parts, rows)
        operators = (operator, *graph.operators[len(parts) :])
        banded = graph.replace(operators=operators)
        steps, memory = _lowered(banded, context)
        text, _ = source_text("net", banded, steps, memory, "bands", False)
        header = header_text("net", banded, memory, "bands", False)
        made = replace(whole, header=header, source=text, graph=banded, steps=steps, memory=memory)
        assert outputs(made) == wanted


def test_what_cannot_fit_is_one_sentence() -> None:
    with pytest.raises(CompileError, match=r"^The model needs [\d,]+ bytes of RAM .* may have 500: [\d,]+ too few\.$"):
        compile_model(picture_net(), name="net", target="cortex-m4", ram=500)


def sound_net(rows: int) -> bytes:
    """A net for raw sound: 9 x 1 by 8, and a pool by 8."""
    weights = np.random.default_rng(0).integers(-127, 128, (16, 9, 1, 1)).astype(np.int8)
    made = (rows - 9) // 8 + 1
    scales, zeros = np.full(16, 0.01, np.float32), np.zeros(16, int)
    tensors = [
        T((1, rows, 1, 1), scale=1.0, zero_point=-3),
        T(weights.shape, scale=scales, zero_point=zeros, data=weights),
        T((16,), "int32", scale=scales, zero_point=zeros, data=np.zeros(16, np.int32)),
        T((1, made, 1, 16), scale=3.0, zero_point=-128),
        T((1, (made - 8) // 8 + 1, 1, 16), scale=3.0, zero_point=-128),
    ]
    strides = {"padding": "VALID", "stride_h": 8, "stride_w": 1}
    operators = [
        Op("CONV_2D", (0, 1, 2), (3,), {**strides, "dilation_h": 1, "dilation_w": 1, "activation": "RELU"}),
        Op("MAX_POOL_2D", (3,), (4,), {**strides, "filter_h": 8, "filter_w": 1, "activation": "NONE"}),
    ]
    return build(tensors, operators, [0], [4])


def test_more_rows_than_the_table_of_bands_can_hold_are_not_computed_in_bands() -> None:
    longest = (1 << 15) - 1
    whole, banded = (compile_model(sound_net(longest), name="net", ram=ram) for ram in (None, 50_000))
    assert "PATCHES" in kinds(banded)
    assert outputs(banded) == outputs(whole)
    with pytest.raises(CompileError, match=r"^The model needs [\d,]+ bytes of RAM .* may have 50,000: "):
        compile_model(sound_net(longest + 1), name="net", ram=50_000)


def test_what_fits_is_left_as_it_is() -> None:
    data = picture_net()
    whole = compile_model(data, name="net", target="cortex-m4")
    again = compile_model(data, name="net", target="cortex-m4", ram=whole.arena_bytes)
    assert again.source == whole.source


def test_person_detect_runs_in_20_kilobytes(shared_data: Path) -> None:
    needs_board()
    measured = bench(shared_data / "tflite" / "person_detect_int8.tflite", rounding="tflm", ram=20_000, count=2)
    assert measured.differing == 0
    assert measured.ram <= 20_000
    assert measured.instructions < 11_000_000
