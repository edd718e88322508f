"""Each pass: what it takes away, and that every output bit stays."""

from pathlib import Path

import numpy as np
import pytest
from micro_support import host
from micro_support.models import Op, T, build

from rudel.micro.check import random_inputs
from rudel.micro.compiler import compile_model
from rudel.micro.emit import Context
from rudel.micro.graph import Graph
from rudel.micro.passes import pipeline
from rudel.micro.passes.folding import fold_constants
from rudel.micro.passes.lookups import join_lookups, tabulate
from rudel.micro.passes.multiplied_channels import convolve_multiplied_channels
from rudel.micro.passes.pads import fuse_pads
from rudel.micro.passes.unused import drop_unused
from rudel.micro.reader import read_model

_WINDOW = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}


def _kinds(graph: Graph) -> list[str]:
    return [operator.kind for operator in graph.operators]


def _plain(graph: Graph, context: Context) -> Graph:
    """Stands for the whole pipeline where only one pass is to run."""
    return graph


def _same_bits(model: bytes, only, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a pass, alone, changes no bit of what a model gives."""
    compiled = []
    for name, passes in (("before", _plain), ("after", only)):
        with monkeypatch.context() as patch:
            patch.setattr("rudel.micro.compiler.optimised", passes)
            compiled.append(compile_model(model, name=name))
    assert pipeline.optimised is not _plain
    library = host.build(compiled, folder)
    for inputs in random_inputs(compiled[0].inputs, 40, seed=5):
        for before, after in zip(*(host.invoke_inside(library, one, inputs) for one in compiled), strict=True):
            np.testing.assert_array_equal(before, after)


def _weights(*shape: int, axis: int = 0, seed: int = 0) -> T:
    generator = np.random.default_rng(seed)
    data = generator.integers(-127, 128, shape).astype(np.int8)
    return T(shape, scale=generator.uniform(0.005, 0.02, shape[axis]), data=data, axis=axis)


def _biases(count: int) -> T:
    return T((count,), "int32", scale=0.001, data=np.arange(-500, 500, 1000 // count, dtype=np.int32)[:count])


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_pads_become_the_convolutions_own(tmp_path, monkeypatch, kind, padding):
    around = np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)
    rows, columns = (6, 7) if padding == "VALID" else (8, 9)
    depthwise = kind == "DEPTHWISE_CONV_2D"
    tensors = [
        T((1, 5, 6, 3), scale=0.05, zero_point=9),
        T((4, 2), "int32", data=around),
        T((1, 8, 9, 3), scale=0.05, zero_point=9),
        _weights(1, 3, 3, 3, axis=3) if depthwise else _weights(4, 3, 3, 3),
        _biases(3 if depthwise else 4),
        T((1, rows, columns, 3 if depthwise else 4), scale=0.4),
    ]
    options = {**_WINDOW, "padding": padding, "activation": "RELU", **({"depth_multiplier": 1} if depthwise else {})}
    model = build(tensors, [Op("PAD", (0, 1), (2,)), Op(kind, (2, 3, 4), (5,), options)], [0], [5])
    graph = fuse_pads(read_model(model))
    assert _kinds(graph) == [kind]
    _same_bits(model, lambda graph, context: fuse_pads(graph), tmp_path, monkeypatch)


def test_a_pad_that_others_read_stays():
    tensors = [
        T((1, 5, 5, 1), scale=0.05),
        T((4, 2), "int32", data=np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)),
        T((1, 7, 7, 1), scale=0.05),
        _weights(2, 3, 3, 1),
        _biases(2),
        T((1, 5, 5, 2), scale=0.4),
    ]
    convolution = Op("CONV_2D", (2, 3, 4), (5,), {**_WINDOW, "padding": "VALID", "activation": "NONE"})
    graph = fuse_pads(read_model(build(tensors, [Op("PAD", (0, 1), (2,)), convolution], [0], [5, 2])))
    assert _kinds(graph) == ["PAD", "CONV_2D"]
    assert graph.operators[1].inputs[0] == 0


def _activated(second: str, output_scale: float) -> bytes:
    tensors = [
        T((1, 12), scale=0.05, zero_point=3),
        _weights(6, 12),
        _biases(6),
        T((1, 6), scale=0.3, zero_point=-4),
        T((1, 6), scale=output_scale, zero_point=-4),
    ]
    operators = [Op("FULLY_CONNECTED", (0, 1, 2), (3,), {"activation": "NONE"}), Op(second, (3,), (4,))]
    return build(tensors, operators, [0], [4])


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("second", ["RELU", "RELU6"])
def test_a_clamp_becomes_limits_of_what_comes_before(tmp_path, monkeypatch, second):
    def only(graph, context):
        return join_lookups(tabulate(graph, context))

    model = _activated(second, 0.3)
    graph = only(read_model(model), Context())
    assert _kinds(graph) == ["FULLY_CONNECTED"]
    assert graph.operators[0].options["limits"][0] == -4
    _same_bits(model, only, tmp_path, monkeypatch)


@pytest.mark.usefixtures("gcc")
def test_what_is_no_clamp_stays_a_table_and_tables_are_joined(tmp_path, monkeypatch):
    def only(graph, context):
        return join_lookups(tabulate(graph, context))

    assert _kinds(only(read_model(_activated("RELU", 0.2)), Context())) == ["FULLY_CONNECTED", "LOOKUP"]
    tensors = [
        T((1, 300), scale=0.05, zero_point=3),
        T((1, 300), scale=0.03),
        T((1, 300), scale=0.04),
        T((1, 300), scale=1 / 256, zero_point=-128),
    ]
    operators = [Op("RELU", (0,), (1,)), Op("HARD_SWISH", (1,), (2,)), Op("LOGISTIC", (2,), (3,))]
    model = build(tensors, operators, [0], [3])
    assert _kinds(only(read_model(model), Context())) == ["LOOKUP"]
    _same_bits(model, only, tmp_path, monkeypatch)


@pytest.mark.usefixtures("gcc")
def test_multiplied_channels_become_groups(tmp_path, monkeypatch):
    tensors = [
        T((1, 6, 5, 3), scale=0.05, zero_point=9),
        _weights(1, 3, 3, 6, axis=3),
        _biases(6),
        T((1, 6, 5, 6), scale=0.4),
    ]
    options = {**_WINDOW, "padding": "SAME", "activation": "NONE", "depth_multiplier": 2}
    model = build(tensors, [Op("DEPTHWISE_CONV_2D", (0, 1, 2), (3,), options)], [0], [3])
    graph = convolve_multiplied_channels(read_model(model))
    assert _kinds(graph) == ["CONV_2D"]
    assert graph[graph.operators[0].inputs[1]].shape == (6, 3, 3, 1)


def test_shapes_are_computed_when_compiling():
    """What converters leave around a flattening: SHAPE, STRIDED_SLICE, PACK."""
    tensors = [
        T((1, 4, 3), scale=0.1),
        T((3,), "int32"),
        T((1,), "int32", data=np.array([0])),
        T((1,), "int32", data=np.array([1])),
        T((), "int32"),
        T((), "int32", data=np.array(12)),
        T((2,), "int32"),
        T((1, 12), scale=0.1),
        T((1, 12), scale=0.2),
    ]
    operators = [
        Op("SHAPE", (0,), (1,)),
        Op("STRIDED_SLICE", (1, 2, 3, 3), (4,), {"shrink_axis_mask": 1}),
        Op("PACK", (4, 5), (6,), {"values_count": 2}),
        Op("RESHAPE", (0, 6), (7,)),
        Op("QUANTIZE", (7,), (8,)),
    ]
    model = build(tensors, operators, [0], [8])
    graph = fold_constants(read_model(model))
    assert _kinds(graph) == ["RESHAPE", "QUANTIZE"]
    assert graph[6].data is not None
    assert graph[6].data.tolist() == [1, 12]
    assert compile_model(model).outputs[0].shape == (1, 12)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_constants_are_packed_along_the_axis(axis):
    parts = [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(6, 12, dtype=np.int32).reshape(2, 3)]
    expected = np.stack(parts, axis)
    tensors = [T((2, 3), "int32", data=part) for part in parts] + [T(expected.shape, "int32")]
    operators = [Op("PACK", (0, 1), (2,), {"values_count": 2, "axis": axis})]
    graph = fold_constants(read_model(build(tensors, operators, [0], [2])))
    np.testing.assert_array_equal(graph[2].data, expected)


@pytest.mark.parametrize(("second", "axis"), [((3, 2), 0), ((2, 3), 3), ((2, 3), -4)])
def test_what_cannot_be_packed_is_not(second, axis):
    tensors = [T(shape, "int32", data=np.arange(6, dtype=np.int32)) for shape in ((2, 3), second)]
    operators = [Op("PACK", (0, 1), (2,), {"values_count": 2, "axis": axis})]
    graph = fold_constants(read_model(build([*tensors, T((2, 2, 3), "int32")], operators, [0], [2])))
    assert _kinds(graph) == ["PACK"]


def test_what_nobody_reads_is_left_out():
    tensors = [T((1, 4), scale=0.1), T((1, 4), scale=0.1), T((1, 4), scale=0.1)]
    operators = [Op("RELU", (0,), (1,)), Op("TANH", (0,), (2,))]
    assert _kinds(drop_unused(read_model(build(tensors, operators, [0], [1])))) == ["RELU"]
