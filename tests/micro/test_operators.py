"""Every operator, in every corner that hypothesis finds, against the three interpreters, bit by bit."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from micro_support import host
from micro_support.cases import KINDS
from micro_support.int16_cases import INT16_KINDS
from micro_support.models import Op, T, build
from micro_support.oracles import runner

from rudel.errors import CompileError
from rudel.micro.arithmetic import ROUNDINGS, Rounding
from rudel.micro.check import check, random_inputs
from rudel.micro.compiler import Compiled, compile_model
from rudel.micro.operators.unary import unary_table
from rudel.micro.reader import read_model

_MODELS_AT_ONCE = 8
_LACKING = {("ELU", "litert"), ("GELU", "tflm")}
"""Operators that an interpreter does not have: those of float32 among its reference kernels, or any."""
_WITH_OWN_KERNELS = ("ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SUB")
_TFLM_ALONE = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)
"""Operators of int16 that LiteRT does not have."""
_twice = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("kind", sorted(KINDS))
@_twice
@given(st.data())
def test_bits_are_those_of_the_interpreters(kind: str, data: st.DataObject) -> None:
    models = dict.fromkeys(KINDS[kind](data.draw, kind) for _ in range(_MODELS_AT_ONCE))  # the first are all equal
    targets = ("generic", "cortex-m4", "cortex-m55") if kind in _WITH_OWN_KERNELS else ("generic",)
    compiled = [
        (model, compile_model(model, name=f"m{number}_{rounding}_{place}", rounding=rounding, target=target))
        for number, model in enumerate(models)
        for rounding in ROUNDINGS
        if (kind, rounding) not in _LACKING
        for place, target in enumerate(targets)
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = host.build([model for _, model in compiled], Path(folder), _options(len(models)))
        for source, model in compiled:
            _check_same(library, source, model, model.rounding)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize(("kind", "rounding"), sorted(_LACKING))
def test_a_check_names_the_operator_that_the_interpreter_lacks(kind: str, rounding: Rounding) -> None:
    tensors = [T((1, 4), "float32") if kind == "ELU" else T((1, 4), scale=1.0) for _ in range(2)]
    model = build(tensors, [Op(kind, (0,), (1,))], [0], [1])
    with pytest.raises(CompileError, match=f"cannot run this model: it has no kernel for {kind}; .* another rounding"):
        check(compile_model(model, rounding=rounding), model, count=1)


@pytest.mark.usefixtures("interpreters")
@pytest.mark.parametrize("approximate", [False, True])
def test_halves_of_gelu_are_rounded_as_by_litert(approximate: bool) -> None:
    tensors = [T((1, 256), scale=1.0, zero_point=-3), T((1, 256), scale=4.0, zero_point=11)]
    model = build(tensors, [Op("GELU", (0,), (1,), {"approximate": approximate})], [0], [1])
    graph = read_model(model)
    inputs = np.arange(-128, 128, dtype=np.int8)
    for rounding in ("litert", "xnnpack"):
        table = unary_table(graph.operators[0], graph, rounding)
        np.testing.assert_array_equal(table, runner(model, rounding)([inputs[None]])[0][0], err_msg=rounding)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("kind", sorted(INT16_KINDS))
@_twice
@given(st.data())
def test_bits_of_int16_are_those_of_the_interpreters(kind: str, data: st.DataObject) -> None:
    compiled = []
    models: dict[bytes, None] = {}
    for rounding in ("tflm",) if kind in _TFLM_ALONE else ROUNDINGS:
        models = dict.fromkeys(INT16_KINDS[kind](data.draw, kind.split()[0], rounding) for _ in range(3))
        for number, model in enumerate(models):
            for target in ("generic", "cortex-m4") if kind in ("CONV_2D", "FULLY_CONNECTED") else ("generic",):
                name = f"m{number}_{rounding}_{target.replace('-', '_')}"
                compiled.append((model, compile_model(model, name=name, rounding=rounding, target=target)))
    with tempfile.TemporaryDirectory() as folder:
        library = host.build([model for _, model in compiled], Path(folder), _options(len(models)))
        for source, model in compiled:
            _check_same(library, source, model, model.rounding)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_reals_that_no_integer_holds_are_cut_off_as_by_the_interpreters(rounding: Rounding, tmp_path: Path) -> None:
    beyond = [-1.9, -0.5, 1.9, 254.9, -300, 300, 4e4, -4e4, 1e10, -1e10, np.inf, -np.inf, np.nan]
    ends = [end + step for end in (-128, 128, 256, -(2**15), 2**15, -(2**31), 2**31) for step in (-0.5, 0, 0.5)]
    reals = np.array([beyond + ends], np.float32)
    operator, models = Op("CAST", (0,), (1,), version=1), {}
    for dtype in ("bool", "int8", "int16", "int32", *([] if rounding == "tflm" else ["uint8"])):
        model = build([T(reals.shape, "float32"), T(reals.shape, dtype)], [operator], [0], [1])
        models[model] = compile_model(model, name=f"to_{dtype}", rounding=rounding)
    library = host.build(list(models.values()), tmp_path)
    for model, compiled in models.items():
        (ours,) = host.invoke(library, compiled, [reals])
        np.testing.assert_array_equal(ours, runner(model, rounding)([reals])[0], err_msg=compiled.name)


@pytest.mark.usefixtures("gcc", "interpreters")
def test_a_constant_may_be_of_bool() -> None:
    shape = (1, 2)
    tensors = [T(shape, "bool", data=np.array([[True, False]])), *[T(shape, "float32")] * 3]
    model = build(tensors, [Op("CAST", (0,), (1,), version=1), Op("ADD", (1, 2), (3,))], [2], [3])
    assert check(compile_model(model, rounding="litert"), model, count=2).different == 0


def test_scales_that_are_too_far_apart_are_those_of_an_operator() -> None:
    tensors = [T((1, 4, 4, 2), scale=1e3), T((2,), "int32", data=np.array([1, 2], np.int32)), T((1, 2), scale=1e-7)]
    operators = [Op("RELU", (0,), (2,))], [Op("MEAN", (0, 1), (2,))]
    for tensor, operator in zip((T((1, 4, 4, 2), scale=1e-7), tensors[2]), operators, strict=True):
        model = build([*tensors[:2], tensor], operator, [0], [2])
        far = f"{operator[0].kind}, version 2.* cannot be compiled: the scales of its inputs and outputs are too far"
        with pytest.raises(CompileError, match=far):
            compile_model(model)


def _options(models: int) -> tuple[str, ...]:
    """Optimises the first example, whose models are all equal, as some warnings need it; others compile faster."""
    return ("-O1",) if models == 1 else ("-O0",)


def _check_same(library: ctypes.CDLL, source: bytes, model: Compiled, rounding: Rounding) -> None:
    oracle = runner(source, rounding)
    for inputs in random_inputs(model.inputs, 8, seed=1):
        for run in (host.invoke, host.invoke_inside):
            for ours, theirs in zip(run(library, model, inputs), oracle(inputs), strict=True):
                where = f"{rounding}, {model.target.name}, {run.__name__}"
                np.testing.assert_array_equal(ours, theirs.reshape(ours.shape), err_msg=where)
