"""Models of float32 against LiteRT, within rounding; and what stands between float32 and int8."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from micro_support import host
from micro_support.models import Op, T, build
from micro_support.oracles import runner

from rudel.errors import CompileError
from rudel.micro.arithmetic import ROUNDINGS
from rudel.micro.check import random_inputs
from rudel.micro.compiler import compile_model

_WINDOW: dict[str, Any] = {"padding": "SAME", "stride_h": 2, "stride_w": 1, "activation": "RELU6"}
_POOL = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_h": 3, "filter_w": 2, "activation": "NONE"}


def _float(*shape: int, data: np.ndarray | None = None, variable: bool = False) -> T:
    return T(shape, "float32", data=data, variable=variable)


def _random(*shape: int) -> T:
    return _float(*shape, data=np.random.default_rng(len(shape)).normal(size=shape, scale=0.5).astype(np.float32))


def _integers(*values: int) -> T:
    return T((len(values),), "int32", data=np.array(values, np.int32))


def _lstm() -> bytes:
    tensors = [_float(1, 4, 3), *(_random(5, 3) for _ in range(4)), *(_random(5, 5) for _ in range(4))]
    tensors += [
        *(_random(5) for _ in range(4)),
        _float(1, 5, variable=True),
        _float(1, 5, variable=True),
        _float(1, 4, 5),
    ]
    inputs = (*range(9), -1, -1, -1, 9, 10, 11, 12, -1, -1, 13, 14, -1, -1, -1, -1)
    options = {"activation": "TANH", "cell_clip": 10.0}
    return build(tensors, [Op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (15,), options)], [0], [15])


def _one(kind: str, source: tuple[int, ...], output: tuple[int, ...], *others: T, **options: Any) -> bytes:
    tensors = [_float(*source), *others, _float(*output)]
    inputs = tuple(range(1 + len(others)))
    if kind == "TRANSPOSE_CONV":
        inputs = (1, 2, 0, 3)
    last = len(tensors) - 1
    return build(tensors, [Op(kind, inputs, (last,), options)], [0], [last])


_MODELS = {
    "ADD": _one("ADD", (1, 4, 3), (1, 4, 3), _random(3), activation="RELU"),
    "AVERAGE_POOL_2D": _one("AVERAGE_POOL_2D", (1, 7, 5, 3), (1, 4, 3, 3), **_POOL),
    "CONCATENATION": _one("CONCATENATION", (2, 3), (2, 5), _random(2, 2), axis=1, activation="NONE"),
    "CONV_2D": _one("CONV_2D", (1, 7, 5, 3), (1, 4, 5, 4), _random(4, 3, 3, 3), _random(4), **_WINDOW),
    "DEPTHWISE_CONV_2D": _one(
        "DEPTHWISE_CONV_2D",
        (1, 7, 5, 3),
        (1, 7, 5, 6),
        _random(1, 3, 3, 6),
        _random(6),
        **{**_WINDOW, "stride_h": 1},
        depth_multiplier=2,
    ),
    "FULLY_CONNECTED": _one("FULLY_CONNECTED", (2, 9), (2, 4), _random(4, 9), _random(4), activation="NONE"),
    "HARD_SWISH": _one("HARD_SWISH", (3, 5), (3, 5)),
    "LEAKY_RELU": _one("LEAKY_RELU", (3, 5), (3, 5), alpha=0.3),
    "LOGISTIC": _one("LOGISTIC", (3, 5), (3, 5)),
    "LSTM": _lstm(),
    "MAX_POOL_2D": _one("MAX_POOL_2D", (1, 7, 5, 3), (1, 4, 3, 3), **_POOL),
    "MEAN": _one("MEAN", (1, 4, 5, 3), (1, 3), _integers(1, 2), keep_dims=False),
    "MUL": _one("MUL", (1, 4, 3), (1, 4, 3), _random(4, 1), activation="NONE"),
    "PAD": _one("PAD", (2, 3), (5, 4), T((2, 2), "int32", data=np.array([[1, 2], [0, 1]], np.int32))),
    "RELU": _one("RELU", (3, 5), (3, 5)),
    "RESIZE": _one("RESIZE_NEAREST_NEIGHBOR", (1, 2, 3, 2), (1, 5, 6, 2), _integers(5, 6)),
    "SOFTMAX": _one("SOFTMAX", (3, 5), (3, 5), beta=1.0),
    "SUB": _one("SUB", (1, 4, 3), (1, 4, 3), _random(1, 1, 3), activation="NONE"),
    "TANH": _one("TANH", (3, 5), (3, 5)),
    "TRANSPOSE": _one("TRANSPOSE", (2, 3, 4), (4, 2, 3), _integers(2, 0, 1)),
    "TRANSPOSE_CONV": _one(
        "TRANSPOSE_CONV",
        (1, 4, 3, 2),
        (1, 8, 6, 3),
        _integers(1, 8, 6, 3),
        _random(3, 3, 3, 2),
        _random(3),
        padding="SAME",
        stride_h=2,
        stride_w=2,
        activation="NONE",
    ),
}


@pytest.mark.usefixtures("gcc", "interpreters")
def test_floats_are_those_of_litert_within_rounding(tmp_path: Path) -> None:
    compiled = {kind: compile_model(model, name=kind.lower()) for kind, model in _MODELS.items()}
    library = host.build(list(compiled.values()), tmp_path)
    for kind, model in compiled.items():
        oracle = runner(_MODELS[kind], "litert")
        for inputs in random_inputs(model.inputs, 3, seed=2):
            for run in (host.invoke, host.invoke_inside):
                for ours, theirs in zip(run(library, model, inputs), oracle(inputs), strict=True):
                    np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=1e-5, atol=1e-5, err_msg=kind)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_floats_become_int8_and_back(tmp_path: Path, rounding) -> None:
    tensors = [_float(1, 64), T((1, 64), scale=0.05, zero_point=3), T((1, 64), scale=0.05, zero_point=3), _float(1, 64)]
    operators = [Op("QUANTIZE", (0,), (1,)), Op("RELU", (1,), (2,)), Op("DEQUANTIZE", (2,), (3,))]
    model = build(tensors, operators, [0], [3])
    compiled = compile_model(model, name="between", rounding=rounding)
    library, oracle = host.build([compiled], tmp_path), runner(model, rounding)
    halves = (np.arange(-32, 32, dtype=np.float32)[None] + np.float32(0.5)) * np.float32(0.05)
    for values in (halves, np.random.default_rng(0).normal(size=(1, 64), scale=4).astype(np.float32)):
        for run in (host.invoke, host.invoke_inside):
            np.testing.assert_array_equal(run(library, compiled, [values])[0], oracle([values])[0])


def test_what_is_compiled_in_int8_alone_says_so(tmp_path: Path) -> None:
    model = build([_float(1, 4), _random(1, 4), _float(1, 4)], [Op("PRELU", (0, 1), (2,))], [0], [2])
    with pytest.raises(CompileError, match=r"computes in float32, and only in int8 is there code .* --to litert-int8"):
        compile_model(model)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_weights_of_float16_are_unpacked_when_compiling(tmp_path: Path) -> None:
    packed = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float16)
    tensors = [_float(1, 9), T((4, 9), "float16", data=packed), _float(4, 9), _float(1, 4)]
    operators = [Op("DEQUANTIZE", (1,), (2,)), Op("FULLY_CONNECTED", (0, 2, -1), (3,), {"activation": "NONE"})]
    model = build(tensors, operators, [0], [3])
    compiled = compile_model(model, name="half")
    assert len(compiled.steps) == 1
    library = host.build([compiled], tmp_path)
    values = np.ones((1, 9), np.float32)
    np.testing.assert_allclose(
        host.invoke(library, compiled, [values])[0], runner(model, "litert")([values])[0], rtol=1e-5
    )
