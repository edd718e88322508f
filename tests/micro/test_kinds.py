"""Models that are right as they are, and cannot be compiled: the message says what they are, and what to do."""

from typing import Any

import numpy as np
import pytest
from micro_support.models import Op, T, build

from rudel.errors import CompileError
from rudel.micro import compile_model
from rudel.micro.arithmetic import Rounding
from rudel.micro.check import check

_REMEDY = r"export all of it in int8 instead, by `rudel export RUN --to litert-int8`"


def _custom(name: str) -> bytes:
    """What Vela writes: the program and the weights are constants, and the scratch tensor is never computed."""
    program, weights = (T((64,), "uint8", data=np.arange(64, dtype=np.uint8)) for _ in range(2))
    tensors = [program, weights, T((32,), "uint8"), T((1, 1), scale=0.1), T((1, 1), scale=0.1)]
    return build(tensors, [Op(f"CUSTOM {name}", (0, 1, 2, 2, 3), (4,))], [3], [4])


def _dense(data: str, weights: str, bias: str | None) -> bytes:
    """One fully connected layer of such types."""
    scale = None if data == "float32" else 0.1
    tensors = [
        T((1, 4), data, scale),
        T((3, 4), weights, 0.01, data=np.ones((3, 4))),
        T((3,), bias or "float32", None if bias is None else 0.001, data=np.zeros(3)),
        T((1, 3), data, scale),
    ]
    return build(tensors, [Op("FULLY_CONNECTED", (0, 1, 2), (3,), {"activation": "NONE"})], [0], [3])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "ethos-u",
            r"has been compiled for an Arm Ethos-U already: .* Compile the \.tflite file that Vela was given\.",
        ),
        ("edgetpu-custom-op", "compiled for a Coral Edge TPU already"),
    ],
)
def test_a_model_compiled_for_another_processor(name: str, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compile_model(_custom(name))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_model_that_computes_in_a_type_without_c(dtype: str) -> None:
    model = build([T((1, 2), dtype), T((2, 1), dtype)], [Op("RESHAPE", (0,), (1,), {"new_shape": (2, 1)})], [0], [1])
    with pytest.raises(CompileError, match=rf"^Tensor 0 \(`t`\) has type {dtype}, which is not supported: export"):
        compile_model(model)


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("float32", "int8", None), r"weights in int8 and computes in float32 \(dynamic-range quantisation\)"),
        (("uint8", "uint8", "int32"), "weights and activations in uint8, as TensorFlow 1 quantised them"),
    ],
)
def test_a_model_quantised_in_another_way(types: tuple[str, str, str | None], words: str) -> None:
    with pytest.raises(CompileError, match=rf"{words}, which cannot be compiled .*: {_REMEDY}"):
        compile_model(_dense(*types))


def _int16(kind: str, inputs: list[T], **options: Any) -> bytes:
    """One operator of int16 after another, its constant inputs as they are given."""
    source = T((1, 4, 4, 2), "int16", 0.001)
    tensors = [source, *inputs, T((1, 4, 4, 2), "int16", 0.002)]
    last = len(tensors) - 1
    return build(tensors, [Op(kind, tuple(range(last)), (last,), options)], [0], [last])


def _convolution(bias: str | None, **options: Any) -> bytes:
    weights = T((2, 1, 1, 2), scale=0.01, data=np.ones((2, 1, 1, 2)))
    biases = [] if bias is None else [T((2,), bias, 0.00001, data=np.zeros(2))]
    shape = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "activation": "NONE"}
    return _int16("CONV_2D", [weights, *biases], **shape, **options)


def _sum(scale: float, zero_point: int = 0) -> bytes:
    return _int16("ADD", [T((1, 4, 4, 2), "int16", scale, zero_point, data=np.ones((1, 4, 4, 2)))], activation="NONE")


@pytest.mark.parametrize(
    ("model", "rounding", "words"),
    [
        (
            _int16("HARD_SWISH", []),
            "tflm",
            r"Operator 0 \(HARD_SWISH, version 1\) cannot be compiled: LiteRT has no kernel of it for int16 "
            r"activations\. Use another layer instead, or export the model by `rudel export RUN --to "
            r"litert-int8`\.",
        ),
        (
            _convolution(None),
            "litert",
            "it has no biases, without which LiteRT does not compute int16: give it some, or",
        ),
        (_convolution("int32"), "litert", "its biases are int32, which LiteRT would read as int64: convert the model"),
        (
            _convolution("int16"),
            "tflm",
            "its biases are int16, which TFLM does not compute with .*: give it biases of int",
        ),
        (_sum(0.001, 5), "litert", "is int16 with zero point 5, not 0, as 16x8 quantisation has it"),
        (_int16("LOGISTIC", []), "tflm", r"its output has scale 0\.002, not 1/32768"),
    ],
)
def test_int16_that_interpreters_do_not_compute(model: bytes, rounding: Rounding, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compile_model(model, rounding=rounding)


def test_int16_that_only_some_interpreters_compute() -> None:
    compile_model(_convolution(None), rounding="tflm")
    compile_model(_convolution("int32"), rounding="tflm")
    compile_model(_convolution("int32", bias_type=2), rounding="litert")
    compile_model(_sum(0.001, 5), rounding="tflm")


@pytest.mark.usefixtures("gcc", "interpreters")
def test_a_stack_of_int8_around_an_lstm_of_int16_is_one_model() -> None:
    """QUANTIZE to int16 and back, as sound models have it whose recurrent part needs more than 8 bits."""
    weights = [T((3, 2 if n < 4 else 3), scale=0.01, data=np.full((3, 2 if n < 4 else 3), 9)) for n in range(8)]
    tensors = [
        T((1, 4, 2), scale=0.02, zero_point=3),
        T((1, 4, 2), "int16", 0.0001),
        *weights,
        *(T((3,), "int64", 0.000001, data=np.arange(3)) for _ in range(4)),
        T((1, 3), "int16", 2.0**-15, variable=True),
        T((1, 3), "int16", 2.0**-12, variable=True),
        T((1, 4, 3), "int16", 2.0**-15),
        T((1, 4, 3), scale=1 / 128),
    ]
    lstm = (1, *range(2, 10), -1, -1, -1, *range(10, 14), -1, -1, 14, 15, -1, -1, -1, -1)
    operators = [
        Op("QUANTIZE", (0,), (1,)),
        Op("UNIDIRECTIONAL_SEQUENCE_LSTM", lstm, (16,), {"activation": "TANH"}),
        Op("QUANTIZE", (16,), (17,)),
    ]
    model = build(tensors, operators, [0], [17])
    compiled = compile_model(model, rounding="tflm")
    assert [port.dtype for port in (*compiled.inputs, *compiled.outputs)] == ["int8", "int8"]
    assert check(compiled, model, count=20).passed
    with pytest.raises(CompileError, match="LiteRT has no kernel of it for int16 activations: use the rounding `tflm`"):
        compile_model(model)
