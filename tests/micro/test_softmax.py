"""SOFTMAX of int8, which LiteRT's optimised kernel computes in single precision and the others in fixed point."""

import platform

import numpy as np
import pytest
from micro_support import host
from micro_support.models import Op, T, build
from micro_support.oracles import runner

from rudel.micro.arithmetic import ROUNDINGS, Rounding
from rudel.micro.compiler import compile_model
from rudel.micro.operators.softmax import single_exponentials

_LOGITS = [-128, 52, 127, -37, 12, -88, -68, 4, 96, -95]
_OUTPUTS = [-128, -116, 52, -128, -125, -128, -128, -126, -70, -128]
_OPTIONS = ("-O3", "-march=native")


def _softmax(rows: int, depth: int, scale: float, output: float = 1 / 256, beta: float = 1.0) -> bytes:
    tensors = [T((rows, depth), scale=scale, zero_point=-37), T((rows, depth), scale=output, zero_point=-128)]
    return build(tensors, [Op("SOFTMAX", (0,), (1,), {"beta": beta})], [0], [1])


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_row_whose_bits_tell_single_precision_from_fixed_point(rounding: Rounding, tmp_path):
    model = compile_model(_softmax(1, 10, 0.036254581063985825), name="softmax", rounding=rounding)
    library = host.build([model], tmp_path, _OPTIONS)
    expected = [-69 if value == -70 and rounding == "xnnpack" else value for value in _OUTPUTS]
    for run in (host.invoke, host.invoke_inside):
        assert run(library, model, [np.array([_LOGITS], np.int8)])[0].tolist() == [expected]


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="LiteRT has another kernel for 64-bit ARM."
)
@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize(
    ("depth", "scale", "output", "beta"),
    [
        (10, 0.036254581063985825, 1 / 256, 1.0),
        (10, 1.02, 1 / 256, 0.5),
        (12, 0.0267, 1.0008 / 256, 1.0),
        (333, 0.0079, 1 / 256, 1.0),
        (1, 0.1, 1 / 256, 1.0),
    ],
)
def test_many_rows_have_the_bits_of_the_optimised_kernel(depth, scale, output, beta, tmp_path):
    rows = 200_000 // depth
    source = _softmax(rows, depth, scale, output, beta)
    logits = np.random.default_rng(depth).normal(0, 40, (rows, depth))
    inputs = [np.clip(np.rint(logits), -128, 127).astype(np.int8)]
    model = compile_model(source, name="softmax", rounding="xnnpack")
    library = host.build([model], tmp_path, _OPTIONS)
    expected = runner(source, "xnnpack")(inputs)[0]
    np.testing.assert_array_equal(host.invoke(library, model, inputs)[0], expected)


@pytest.mark.usefixtures("gcc", "interpreters")
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("scale", [15.9, 16.0, 40.0, 3e6])
def test_logits_of_thousands_have_the_bits_of_the_interpreters(scale: float, rounding: Rounding, tmp_path):
    """Beyond a scale of 16, the multiplier of fixed point has more than 31 bits."""
    source = _softmax(256, 3, scale)
    inputs = np.random.default_rng(0).integers(-128, 127, (256, 1)) + np.array([0, 0, 1])
    model = compile_model(source, name="softmax", rounding=rounding)
    library = host.build([model], tmp_path)
    expected = runner(source, rounding)([inputs.astype(np.int8)])[0]
    np.testing.assert_array_equal(host.invoke(library, model, [inputs.astype(np.int8)])[0], expected)


def test_the_table_ends_where_float32_does():
    assert len(single_exponentials(0.1, 1.0)) == 256
    table = single_exponentials(0.5, 2.0)
    assert table[-1] > 0
    assert len(table) == 104
