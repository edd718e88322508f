"""Channels that do not depend on the input, or do not matter, are taken out one by one, and no bit changes."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from micro_support import host
from micro_support.models import Op, T, build
from micro_support.oracles import runner

from rudel.micro.arithmetic import ROUNDINGS
from rudel.micro.check import random_inputs
from rudel.micro.compiler import compile_model
from rudel.micro.emit import Context
from rudel.micro.graph import Graph
from rudel.micro.passes.constant_channels import remove_constant_channels
from rudel.micro.reader import read_model

_WINDOW = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}


def _scaled(values: np.ndarray, scales: np.ndarray, axis: int) -> T:
    return T(values.shape, scale=scales, zero_point=np.zeros(len(scales), int), axis=axis, data=values)


def _biases(values: np.ndarray, scales: np.ndarray) -> T:
    return T(values.shape, "int32", scale=scales, zero_point=np.zeros(len(scales), int), data=values.astype(np.int32))


def _network(
    dead: tuple[int, ...],
    biases: tuple[int, ...],
    *,
    padding: str = "VALID",
    depthwise_bias: int = 0,
    linear: bool = False,
    ignored: tuple[int, ...] = (),
    copied: bool = False,
    seed: int = 0,
) -> bytes:
    """CONV_2D of 3 x 3 with 8 channels, DEPTHWISE_CONV_2D of 3 x 3, MAX_POOL_2D, CONV_2D of 1 x 1, RESHAPE, dense.

    Args:
        dead: channels of the first whose weights are zero; their scale is far from the others'.
        biases: of these.
        padding: of the depthwise convolution.
        depthwise_bias: of its channels.
        linear: whether the depthwise convolution has no activation.
        ignored: channels whose weights in the second convolution are zero.
        copied: whether its output is given twice, after an operator that does not depend on the input.
        seed: of weights.
    """
    random = np.random.default_rng(seed)
    first = random.integers(-127, 128, (8, 3, 3, 2)).astype(np.int8)
    first[list(dead)] = 0
    scales = random.uniform(0.005, 0.02, 8)
    scales[list(dead)] = 300
    bias = random.integers(-500, 500, 8)
    bias[list(dead)] = biases
    second = random.integers(-127, 128, (5, 1, 1, 8)).astype(np.int8)
    second[..., list(ignored)] = 0
    side = 4 if padding == "VALID" else 6
    even, ones = np.full(8, 0.01), np.full(5, 0.01)
    tensors = [
        T((1, 8, 8, 2), scale=0.05, zero_point=-7),
        _scaled(first, scales, 0),
        _biases(bias, scales),
        T((1, 6, 6, 8), scale=0.2, zero_point=-128),
        _scaled(random.integers(-127, 128, (1, 3, 3, 8)).astype(np.int8), even, 3),
        _biases(np.full(8, depthwise_bias), even),
        T((1, side, side, 8), scale=0.5, zero_point=9 if linear else -128),
        T((1, side // 2, side // 2, 8), scale=0.5, zero_point=9 if linear else -128),
        _scaled(second, ones, 0),
        _biases(random.integers(-900, 900, 5), ones),
        T((1, side // 2, side // 2, 5), scale=0.6, zero_point=1),
    ]
    window = {**_WINDOW, "padding": "VALID", "activation": "RELU"}
    pool = {"padding": "VALID", "stride_h": 2, "stride_w": 2, "filter_h": 2, "filter_w": 2, "activation": "NONE"}
    depthwise = {**window, "padding": padding, "depth_multiplier": 1, "activation": "NONE" if linear else "RELU"}
    operators = [
        Op("CONV_2D", (0, 1, 2), (3,), window),
        Op("DEPTHWISE_CONV_2D", (3, 4, 5), (6,), depthwise),
        Op("MAX_POOL_2D", (6,), (7,), pool),
        Op("CONV_2D", (7, 8, 9), (10,), {**window, "activation": "NONE"}),
    ]
    if copied:
        tensors += [T((4,), "int32", data=np.arange(4)), T((2, 2), "int32")]
        operators.insert(0, Op("RESHAPE", (11,), (12,), {"new_shape": (2, 2)}))
    return build(tensors, operators, [0], [10, 10] if copied else [10])


def _channels(model: bytes) -> list[int]:
    graph = remove_constant_channels(read_model(model), Context())
    return [graph[operator.outputs[0]].shape[-1] for operator in graph.operators]


def _unoptimised(graph: Graph, context: Context) -> Graph:
    return graph


def _check(models: Sequence[bytes], rounding: Any, count: int = 12) -> None:
    """Checks that models have the same bits without any pass, with all of them, for two targets, and as interpreted."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        compiled = [
            [
                compile_model(model, name=f"after{number}_{i}", rounding=rounding, target=target)
                for i, target in enumerate(("generic", "cortex-m4"))
            ]
            for number, model in enumerate(models)
        ]
        patch.setattr("rudel.micro.compiler.optimised", _unoptimised)
        for number, (model, several) in enumerate(zip(models, compiled, strict=True)):
            several.append(compile_model(model, name=f"before{number}", rounding=rounding))
        library = host.build([one for several in compiled for one in several], Path(folder), ("-O0",))
        for model, several in zip(models, compiled, strict=True):
            expected = runner(model, rounding)
            for inputs in random_inputs(several[0].inputs, count, seed=5):
                wanted = expected(inputs)[0]
                for one in several:
                    np.testing.assert_array_equal(host.invoke(library, one, inputs)[0], wanted)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_constant_channels_are_not_computed(rounding: str) -> None:
    model = _network((1, 2, 5, 6), (-700, 900, -10, 2000))
    assert _channels(model) == [4, 4, 4, 5]
    _check([model], rounding)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_an_output_that_is_given_twice_is_computed_twice(tmp_path: Path) -> None:
    model = _network((1, 2, 5, 6), (-700, 900, -10, 2000), copied=True)
    compiled = compile_model(model)
    assert [step.operator.kind for step in compiled.steps].count("CONV_2D") == 2
    assert len({step.operator.index for step in compiled.steps}) == len(compiled.steps)
    library, expected = host.build([compiled], tmp_path), runner(model, "litert")
    for inputs in random_inputs(compiled.inputs, 4, seed=5):
        for ours, theirs in zip(host.invoke(library, compiled, inputs), expected(inputs), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_channels_are_taken_out_one_by_one() -> None:
    """Of six dead channels, two are not the zero point: with padding, the depthwise convolution makes something else of
    them next to the border. These stay, and the others go."""
    model = _network((1, 2, 3, 4, 5, 6), (-7, 1, 0, -3, -20, 1), padding="SAME", linear=True)
    assert _channels(model) == [4, 4, 4, 5]
    for rounding in ROUNDINGS:
        _check([model], rounding)
    uneven = _network((1, 2, 3, 4, 5, 6), (1, 1, 1, -3, 1, 1), padding="SAME", linear=True)
    assert _channels(uneven) == [8, 8, 8, 5]
    for rounding in ROUNDINGS:
        _check([uneven], rounding)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_what_differs_next_to_borders_goes_if_it_is_cut_off_everywhere() -> None:
    """Constants that are not the zero point, before padding: the depthwise convolution gives its least output."""
    model = _network((1, 2, 5, 6), (3, 4, 5, 7), padding="SAME", depthwise_bias=-1_000_000_000)
    assert _channels(model)[:3] == [4, 4, 4]
    for rounding in ROUNDINGS:
        _check([model], rounding)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_what_is_multiplied_by_zeros_only_is_not_computed() -> None:
    model = _network((), (), padding="SAME", ignored=(0, 3, 4, 7))
    assert _channels(model) == [4, 4, 4, 5]
    for rounding in ROUNDINGS:
        _check([model], rounding)


def test_dead_channels_of_any_multiplier_leave_the_fast_kernel_to_the_rest() -> None:
    """Two of eight are dead, and all stay: their scale is 20,000 times that of the others."""
    compiled = compile_model(_network((1, 5), (-4, 3)), rounding="tflm", target="cortex-m4")
    assert [
        kernel.name for step in compiled.steps for kernel in step.kernels if "8" in kernel.name or "12" in kernel.name
    ]
    assert compiled.steps[0].kernels[0].name.startswith(("windows_", "strip_"))


@st.composite
def _networks(draw) -> bytes:
    """A CONV_2D with dead channels, some of DEPTHWISE_CONV_2D, pools and tables, and a CONV_2D or dense layer."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    channels, depth = draw(st.integers(4, 13)), draw(st.integers(1, 6))
    side = [draw(st.integers(3, 7)), draw(st.integers(3, 7))]
    tensors = [T((1, *side, 3), scale=0.05, zero_point=draw(st.integers(-128, 127)))]
    operators: list[Op] = []

    def weights(shape: tuple[int, ...], axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = shape[axis]
        data = random.integers(-127, 128, shape).astype(np.int8)
        return data, random.uniform(0.003, 0.02, count), random.integers(-1500, 1500, count)

    def add(
        kind: str, parameters: list[T], shape: tuple[int, ...], options: dict[str, Any], same: bool = False
    ) -> None:
        source, start = len(tensors) - 1, len(tensors)
        tensors.extend(parameters)
        before = tensors[source]
        scale = before.scale if same else float(np.float32(random.uniform(0.05, 0.5)))
        zero_point = before.zero_point if same else int(random.choice([-128, -128, -20, 31]))
        tensors.append(T(shape, scale=scale, zero_point=zero_point))
        inputs = (source, *range(start, start + len(parameters)))
        operators.append(Op(kind, inputs, (len(tensors) - 1,), options))

    def moved(size: int) -> dict[str, Any]:
        padding = draw(st.sampled_from(["SAME", "SAME", "VALID"])) if min(side) >= size else "SAME"
        strides = draw(st.integers(1, 2)), draw(st.integers(1, 2))
        for axis, stride in enumerate(strides):
            side[axis] = -(-side[axis] // stride) if padding == "SAME" else (side[axis] - size) // stride + 1
        activation = draw(st.sampled_from(["NONE", "RELU", "RELU6"]))
        return {"padding": padding, "stride_h": strides[0], "stride_w": strides[1], "activation": activation}

    data, scales, bias = weights((channels, 3, 3, 3), 0)
    dead = random.random(channels) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    data[dead] = 0
    scales[dead] *= random.choice([1.0, 1e-4, 1e3], int(dead.sum()))
    bias[random.random(channels) < 0.2] = -20_000_000
    options = {**_WINDOW, **moved(3)}
    add("CONV_2D", [_scaled(data, scales, 0), _biases(bias, scales)], (1, *side, channels), options)
    for kind in draw(
        st.lists(st.sampled_from(["DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D", "TANH"]), max_size=3)
    ):
        if kind == "TANH":
            source = len(tensors) - 1
            tensors.append(T((1, *side, channels), scale=1 / 128, zero_point=0))
            operators.append(Op(kind, (source,), (source + 1,)))
        elif kind == "DEPTHWISE_CONV_2D":
            size = draw(st.sampled_from([1, 3]))
            data, scales, bias = weights((1, size, size, channels), 3)
            options = {**_WINDOW, **moved(size), "depth_multiplier": 1}
            add(kind, [_scaled(data, scales, 3), _biases(bias, scales)], (1, *side, channels), options)
        else:
            options = {**moved(2), "filter_h": 2, "filter_w": 2}
            add(kind, [], (1, *side, channels), options, same=True)
    end = draw(st.sampled_from(["1 x 1", "3 x 3", "dense", "reshaped"]))
    if end in ("1 x 1", "3 x 3"):
        size = int(end[0])
        data, scales, bias = weights((depth, size, size, channels), 0)
        data[..., random.random(channels) < 0.2] = 0
        options = {**_WINDOW, **moved(size)}
        add("CONV_2D", [_scaled(data, scales, 0), _biases(bias, scales)], (1, *side, depth), options)
    else:
        length = side[0] * side[1] * channels
        if end == "reshaped":
            new = T((2,), "int32", data=np.array([1, length], np.int32))
            add("RESHAPE", [new], (1, length), {"new_shape": [1, length]}, same=True)
        data, scales, bias = weights((depth, length), 0)
        scales[:] = scales[0]
        tensor = T(data.shape, scale=scales[0], data=data)
        bias_scale = float(scales[0]) * tensors[-1].scale
        bias_tensor = T(bias.shape, "int32", scale=bias_scale, data=bias.astype(np.int32))
        add("FULLY_CONNECTED", [tensor, bias_tensor], (1, depth), {"activation": "NONE"})
    return build(tensors, operators, [0], [len(tensors) - 1])


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(st.lists(_networks(), min_size=10, max_size=10))
@settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
def test_any_dead_channels_leave_all_bits(rounding: str, models: list[bytes]) -> None:
    for model in models:
        before = read_model(model)
        after = remove_constant_channels(before, Context(rounding))  # type: ignore[arg-type]
        event("smaller" if after is not before else "as it was")
    _check(list(dict.fromkeys(models)), rounding, 6)
