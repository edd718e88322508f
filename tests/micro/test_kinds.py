"""Models that are right as they are, and cannot be compiled: the message says what they are, and what to do."""

import numpy as np
import pytest
from micro_support.models import Op, T, build

from rudel.errors import CompileError
from rudel.micro import compile_model

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


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("float32", "int8", None), r"weights in int8 and computes in float32 \(dynamic-range quantisation\)"),
        (("int16", "int8", "int64"), r"activations in int16 \(as with weights in int8, 16x8\)"),
        (("uint8", "uint8", "int32"), "weights and activations in uint8, as TensorFlow 1 quantised them"),
    ],
)
def test_a_model_quantised_in_another_way(types: tuple[str, str, str | None], words: str) -> None:
    with pytest.raises(CompileError, match=rf"{words}, which cannot be compiled .*: {_REMEDY}"):
        compile_model(_dense(*types))
