"""Reading .tflite files: what is in them, and one sentence for what is wrong with them."""

import contextlib
import importlib.util
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_support.models import Op, T, build

from rudel.errors import CompileError
from rudel.micro.compiler import compile_model
from rudel.micro.reader import read_file, read_model

_PUBLIC = ("hello_world", "micro_speech", "person_detect")


def _dense() -> bytes:
    weights = np.arange(-12, 12, dtype=np.int8).reshape(3, 8)
    tensors = [
        T((1, 8), scale=0.05, zero_point=3, name="input"),
        T((3, 8), scale=[0.01, 0.02, 0.03], data=weights),
        T((3,), "int32", scale=[0.0005, 0.001, 0.0015], data=np.array([1, -2, 3])),
        T((1, 3), scale=0.1, zero_point=-7, name="output"),
    ]
    return build(tensors, [Op("FULLY_CONNECTED", (0, 1, 2), (3,), {"activation": "RELU"})], [0], [3])


def test_all_parts_of_a_model_are_read():
    graph = read_model(_dense())
    (operator,) = graph.operators
    assert (operator.kind, operator.version, operator.inputs, operator.outputs) == (
        "FULLY_CONNECTED",
        4,
        (0, 1, 2),
        (3,),
    )
    assert operator.options["activation"] == "RELU"
    weights = graph[1]
    assert (weights.shape, weights.dtype, weights.name) == ((3, 8), "int8", "t")
    assert weights.data is not None
    assert weights.data[1, 2] == -2
    assert weights.quantisation is not None
    assert weights.quantisation.scale.tolist() == np.array([0.01, 0.02, 0.03], np.float32).tolist()
    assert graph[0].name == "input"
    assert graph[0].zero_point == 3


@pytest.mark.parametrize("name", _PUBLIC)
def test_public_models_are_read_as_the_schema_package_reads_them(shared_data, name, lacking):
    if importlib.util.find_spec("tflite") is None:
        lacking("This test needs the package tflite: pip install tflite")
    tflite = importlib.import_module("tflite")
    path = shared_data / "tflite" / f"{name}_int8.tflite"
    graph, data = read_file(path)
    names = {value: key for key, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
    model = tflite.Model.GetRootAsModel(data, 0)
    subgraph = model.Subgraphs(0)
    assert len(graph.tensors) == subgraph.TensorsLength()
    for tensor in graph.tensors:
        theirs = subgraph.Tensors(tensor.index)
        assert tensor.shape == tuple(theirs.ShapeAsNumpy())
        assert tensor.name.encode() == theirs.Name()
        raw = model.Buffers(theirs.Buffer()).DataAsNumpy()
        assert (tensor.data is None) == isinstance(raw, int)
        if tensor.data is not None:
            assert tensor.data.tobytes() == raw.tobytes()
    for operator in graph.operators:
        theirs = subgraph.Operators(operator.index)
        code = model.OperatorCodes(theirs.OpcodeIndex())
        assert operator.kind == names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        assert operator.inputs == tuple(theirs.InputsAsNumpy())


def _refused(data: bytes, *words: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_model(data)
    sentence = str(caught.value)
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_what_is_no_model_is_refused():
    _refused(b"", "not a .tflite model")
    _refused(b"PK\x03\x04" * 100, "not a .tflite model")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CompileError, match=r"gone\.tflite.*cannot be read"):
        compile_model(tmp_path / "gone.tflite")


def test_every_truncation_is_refused():
    data = _dense()
    for length in range(8, len(data), 7):
        with pytest.raises(CompileError):
            compile_model(data[:length])


def test_dynamic_shapes_are_refused_and_dynamic_batches_are_one():
    tensors = [T((1, 4), scale=0.1, signature=(-1, 4)), T((1, 4), scale=0.1, signature=(-1, 4))]
    assert compile_model(build(tensors, [Op("RELU", (0,), (1,))], [0], [1])).inputs[0].shape == (1, 4)
    tensors = [T((1, 1, 4), scale=0.1, signature=(1, -1, 4), name="audio"), T((1, 1, 4), scale=0.1)]
    _refused(build(tensors, [Op("RELU", (0,), (1,))], [0], [1]), "`audio`", "dynamic")


def test_an_unsupported_operator_is_named_with_index_and_version():
    tensors = [T((1, 4), scale=0.1), T((1, 4), scale=0.1), T((1, 4), scale=0.1)]
    operators = [Op("RELU", (0,), (1,)), Op("FLOOR_MOD", (1, 1), (2,), version=3)]
    _refused(build(tensors, operators, [0], [2]), "Operator 1", "FLOOR_MOD", "version 3")


def test_an_unsupported_type_is_named():
    tensors = [T((1, 4), "int32", scale=0.1, name="wave"), T((1, 4), "int32", scale=0.1)]
    _refused(build(tensors, [Op("LOGISTIC", (0,), (1,))], [0], [1]), "LOGISTIC", "`wave`", "int32")


def test_shapes_that_do_not_fit_are_refused():
    data = _dense()
    tensors = [T((1, 9), scale=0.05), T((3, 8), scale=0.01, data=np.zeros((3, 8), np.int8)), T((1, 3), scale=0.1)]
    _refused(
        build(tensors, [Op("FULLY_CONNECTED", (0, 1, -1), (2,), {"activation": "NONE"})], [0], [2]),
        "operator 0".capitalize(),
    )
    assert compile_model(data).outputs[0].shape == (1, 3)


def test_a_model_too_large_for_its_target_says_by_how_much():
    tensors = [T((1, 512, 512, 1), scale=0.1), T((1, 512, 512, 1), scale=0.2)]
    data = build(tensors, [Op("QUANTIZE", (0,), (1,))], [0], [1])
    with pytest.raises(CompileError, match=r"262,144 bytes of RAM.*may have 1,000: 261,144 too few"):
        compile_model(data, ram=1000)
    with pytest.raises(CompileError, match="too few"):
        compile_model(
            build(
                [T((1, 600, 600, 1), scale=0.1), T((1, 600, 600, 1), scale=0.2)], [Op("QUANTIZE", (0,), (1,))], [0], [1]
            ),
            target="nano33ble",
        )


def test_unknown_roundings_and_targets_list_those_there_are():
    with pytest.raises(CompileError, match="xnnpack"):
        compile_model(_dense(), rounding="bankers")  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="cortex-m4"):
        compile_model(_dense(), target="z80")


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_damaged_files_end_in_a_sentence(seed, count):
    damaged = bytearray(_CONVOLUTIONAL)
    chance = random.Random(seed)
    for _ in range(count):
        place = chance.randrange(len(damaged))
        damaged[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    begun = time.process_time()
    with contextlib.suppress(CompileError):
        compile_model(bytes(damaged))
    assert time.process_time() - begun < 5


def _convolutional() -> bytes:
    generator = np.random.default_rng(0)
    tensors = [
        T((1, 6, 6, 3), scale=0.05, zero_point=3),
        T(
            (4, 3, 3, 3),
            scale=[0.01, 0.02, 0.03, 0.01],
            data=generator.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        ),
        T((4,), "int32", scale=0.001, data=np.arange(4)),
        T((1, 6, 6, 4), scale=0.4),
        T((1, 3, 3, 4), scale=0.4),
        T((2,), "int32", data=np.array([1, 36])),
        T((1, 36), scale=0.4),
        T((1, 36), scale=1 / 256, zero_point=-128),
    ]
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "activation": "RELU"}
    pool = {"padding": "VALID", "stride_h": 2, "stride_w": 2, "filter_h": 2, "filter_w": 2, "activation": "NONE"}
    operators = [
        Op("CONV_2D", (0, 1, 2), (3,), {**window, "dilation_h": 1, "dilation_w": 1}),
        Op("MAX_POOL_2D", (3,), (4,), pool),
        Op("RESHAPE", (4, 5), (6,)),
        Op("SOFTMAX", (6,), (7,), {"beta": 1.0}),
    ]
    return build(tensors, operators, [0], [7])


_CONVOLUTIONAL = _convolutional()


def test_vectors_that_share_bytes_do_not_multiply_work():
    """Thousands of operators that all point at one long list of inputs: refused, and quickly."""
    data = bytearray(_CONVOLUTIONAL)
    data += bytes(64)
    begun = time.process_time()
    with pytest.raises(CompileError, match="damaged"):
        read_model(_crowded())
    assert time.process_time() - begun < 5


def _crowded() -> bytes:
    """Returns a model of 20,000 tensors that all share one name of 100,000 letters."""
    import flatbuffers

    b = flatbuffers.Builder(1024)
    name = b.CreateString("n" * 100_000)
    b.StartObject(4)
    b.PrependUOffsetTRelativeSlot(3, name, 0)
    tensor = b.EndObject()
    b.StartVector(4, 20_000, 4)
    for _ in range(20_000):
        b.PrependUOffsetTRelative(tensor)
    tensors = b.EndVector()
    b.StartObject(4)
    b.PrependUOffsetTRelativeSlot(0, tensors, 0)
    subgraph = b.EndObject()
    b.StartVector(4, 1, 4)
    b.PrependUOffsetTRelative(subgraph)
    subgraphs = b.EndVector()
    b.StartObject(0)
    buffer = b.EndObject()
    b.StartVector(4, 1, 4)
    b.PrependUOffsetTRelative(buffer)
    buffers = b.EndVector()
    b.StartObject(5)
    b.PrependUint32Slot(0, 3, 0)
    b.PrependUOffsetTRelativeSlot(2, subgraphs, 0)
    b.PrependUOffsetTRelativeSlot(4, buffers, 0)
    b.Finish(b.EndObject(), file_identifier=b"TFL3")
    return bytes(b.Output())
