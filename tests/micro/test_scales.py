"""Numbers that decide at the last bit of a scale or of a curve, against the three interpreters."""

from pathlib import Path

import numpy as np
import pytest
from micro_support import host
from micro_support.models import Op, T, build
from micro_support.oracles import runner

from rudel.errors import CompileError
from rudel.micro.arithmetic import ROUNDINGS, Rounding
from rudel.micro.compiler import compile_model

pytestmark = pytest.mark.usefixtures("gcc", "interpreters")


def _same(source: bytes, rounding: Rounding, runs: list[np.ndarray], folder: Path, target: str = "generic") -> None:
    model = compile_model(source, name="m", rounding=rounding, target=target)
    library = host.build([model], folder)
    expected = runner(source, rounding)
    for run in runs:
        ours, theirs = host.invoke(library, model, [run])[0], expected([run])[0]
        np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("target", ["generic", "cortex-m4"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_dense_outputs_begin_at_the_same_sums(rounding, target, per_channel, tmp_path):
    """Sums of some hundred millions lie next to where one output becomes the next: the last bits of multipliers count.

    TFLM multiplies the scales of input and weights in double precision, also where there is one for all channels.
    """
    generator = np.random.default_rng(3)
    depth = 200
    inputs = np.arange(-128, 128, 2, dtype=np.int8)[:, None]
    for number in range(3):
        source, weight = (np.float32(2.0 ** generator.uniform(-8, -5)) for _ in range(2))
        output = np.float32(float(source) * float(weight) * 2.0 ** generator.uniform(20, 22))
        factor = float(source) * float(weight) / float(output)
        bias = np.rint((generator.integers(-110, 110, depth) + 0.5) / factor).astype(np.int32)
        weights = generator.choice([-1, 1], (depth, 1)).astype(np.int8)
        scales = np.full(depth if per_channel else 1, weight, np.float32)
        tensors = [
            T((len(inputs), 1), scale=source),
            T((depth, 1), scale=scales, data=weights),
            T((depth,), "int32", scale=scales * source, data=bias),
            T((len(inputs), depth), scale=output, zero_point=(0, -128, 127)[number]),
        ]
        source_bytes = build(tensors, [Op("FULLY_CONNECTED", (0, 1, 2), (3,), {"activation": "NONE"})], [0], [3])
        folder = tmp_path / str(number)
        folder.mkdir()
        _same(source_bytes, rounding, [inputs], folder, target)


def _lstm_operator(*, time_major: bool) -> Op:
    """Returns an LSTM of tensors in the order input, weights, biases, states, output, intermediates."""
    inputs = (*range(9), -1, -1, -1, 9, 10, 11, 12, -1, -1, 13, 14, -1, -1, -1, -1)
    options = {"activation": "TANH", "cell_clip": 10.0, "time_major": time_major}
    return Op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (15,), options, intermediates=(16, 17, 18, 19, 20))


def _lstm(seed: int) -> bytes:
    """Returns an LSTM of 20 cells over 28 steps of a batch of 3, whose gates are seldom saturated."""
    data = np.random.default_rng(seed)

    def scale(low: float, high: float) -> float:
        return float(np.float32(2.0 ** data.uniform(np.log2(low), np.log2(high))))

    steps, batch, length, cells = 28, 3, 28, 20
    source, hidden, zero_point = scale(0.003, 0.02), scale(1 / 160, 1 / 128), int(data.integers(-10, 11))
    tensors = [T((steps, batch, length), scale=source, zero_point=int(data.integers(-128, 128)))]
    scales = [scale(0.002, 0.01) for _ in range(8)]
    for gate in range(8):
        shape = (cells, length if gate < 4 else cells)
        weights = np.clip(data.normal(0, 40, shape), -127, 127).astype(np.int8)
        tensors.append(T(shape, scale=scales[gate], data=weights))
    for gate in range(4):
        bias = data.integers(-3000, 3000, cells).astype(np.int32)
        tensors.append(T((cells,), "int32", scale=scales[gate] * source, data=bias))
    tensors += [
        T((batch, cells), scale=hidden, zero_point=zero_point, variable=True),
        T((batch, cells), "int16", scale=2.0 ** -int(data.integers(10, 14)), variable=True),
        T((steps, batch, cells), scale=hidden, zero_point=zero_point),
        *(T((0,), "int16", scale=2.0**-12) for _ in range(4)),
        T((0,), scale=hidden, zero_point=zero_point),
    ]
    return build(tensors, [_lstm_operator(time_major=True)], [0], [15])


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_cells_of_an_lstm_are_the_same_after_hundreds_of_steps(rounding, tmp_path):
    """LiteRT rounds the effective scale of hidden values to single precision, TFLM does not."""
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        data = np.random.default_rng(seed)
        runs = [data.integers(-128, 128, (28, 3, 28)).astype(np.int8) for _ in range(25)]
        _same(_lstm(seed), rounding, runs, folder)


def _gate_at_thresholds(seed: int) -> bytes:
    """Returns an LSTM of one step that shows its cell gate: the forget gate is 0, input and output gate are 1.

    The gate's sums are of some hundred millions, next to where one number of 16 bits becomes the next.
    """
    data, cells = np.random.default_rng(seed), 200
    source, saturated, weight = (float(np.float32(2.0 ** data.uniform(low, low + 1))) for low in (-13, -12, -24))
    scales = [saturated, saturated, weight, saturated] * 2
    tensors = [T((1, 1, 1), scale=source)]
    for gate, scale in enumerate(scales):
        shape = (cells, 1 if gate < 4 else cells)
        values = data.choice([-1, 1], shape) if gate == 2 else np.zeros(shape)
        tensors.append(T(shape, scale=scale, data=values.astype(np.int8)))
    biases = [np.full(cells, sign * (1 << 30)) for sign in (1, -1, 1, 1)]
    biases[2] = np.rint((data.integers(-60, 60, cells) + 0.5) / (weight * source * 4096))
    for scale, bias in zip(scales, biases, strict=False):
        tensors.append(T((cells,), "int32", scale=scale * source, data=bias.astype(np.int32)))
    tensors += [
        T((1, cells), scale=2.0**-13, variable=True),
        T((1, cells), "int16", scale=2.0**-15, variable=True),
        T((1, 1, cells), scale=2.0**-13),
        *(T((0,), "int16", scale=2.0**-12) for _ in range(4)),
        T((0,), scale=2.0**-13),
    ]
    return build(tensors, [_lstm_operator(time_major=False)], [0], [15])


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_gates_of_an_lstm_begin_at_the_same_sums(rounding, tmp_path):
    """TFLM multiplies the scales of input and weights in double precision, LiteRT in single precision."""
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        runs = [np.full((1, 1, 1), value, np.int8) for value in range(-128, 128, 3)]
        _same(_gate_at_thresholds(seed), rounding, runs, folder)


def _cells_around_the_end_of_tanh(seed: int, power: int) -> bytes:
    """Returns an LSTM whose gates do not depend on its hidden values, and whose cells vary between -9 and 9.

    Half of them stay about 5.3 from zero, where the hyperbolic tangent of 16 bits comes to its end.
    """
    data, (steps, batch, cells) = np.random.default_rng(seed), (60, 8, 200)
    source, weight, hidden = 2.0**-7, 2.0**-9, float(np.float32(0.0041))
    around = np.where(np.arange(cells) % 2, data.uniform(4.9, 5.7, cells), data.uniform(0, 9, cells))
    # The forget gate is 0.9 and the input gate 1, so that a cell tends to ten times its gate.
    values = (
        np.full(cells, 8.0),
        np.full(cells, np.log(9.0)),
        np.arctanh(data.choice([-1, 1], cells) * around / 10),
        data.uniform(-3, 0, cells),
    )
    tensors = [T((steps, batch, 1), scale=source)]
    for gate in range(8):
        shape = (cells, 1 if gate < 4 else cells)
        weights = data.integers(-100, 101, shape) if gate in (2, 3) else np.zeros(shape)
        tensors.append(T(shape, scale=weight, data=weights.astype(np.int8)))
    for value in values:
        bias = np.rint(value / (source * weight)).astype(np.int32)
        tensors.append(T((cells,), "int32", scale=source * weight, data=bias))
    tensors += [
        T((batch, cells), scale=hidden, variable=True),
        T((batch, cells), "int16", scale=2.0**power, variable=True),
        T((steps, batch, cells), scale=hidden),
        *(T((0,), "int16", scale=2.0**-12) for _ in range(4)),
        T((0,), scale=hidden),
    ]
    return build(tensors, [_lstm_operator(time_major=True)], [0], [15])


@pytest.mark.parametrize("power", [-12, -11, -10])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_hidden_values_of_an_lstm_where_tanh_ends(rounding, power, tmp_path):
    """The last entry of TFLM's table is that of the curve beyond it; cells reach it when they hold more than 5.29."""
    data = np.random.default_rng(power % 16)
    runs = [data.integers(-128, 128, (60, 8, 1)).astype(np.int8) for _ in range(5)]
    _same(_cells_around_the_end_of_tanh(power % 16, power), rounding, runs, tmp_path)


def _curve(kind: str, scale: float, zero_point: int) -> bytes:
    output, output_zero = (1 / 256, -128) if kind == "LOGISTIC" else (1 / 128, 0)
    tensors = [T((1, 256), scale=scale, zero_point=zero_point), T((1, 256), scale=output, zero_point=output_zero)]
    return build(tensors, [Op(kind, (0,), (1,))], [0], [1])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    ("kind", "scale", "zero_point"),
    [
        ("LOGISTIC", 4.0, -128),  # exp(1020) is beyond double precision.
        ("LOGISTIC", 4.0, 127),
        ("TANH", 0.0027129200752824545, 106),  # tanh(-0.5236) * 128 is next to -61.5.
        ("TANH", 4.0, -128),
    ],
)
def test_curves_at_their_ends_and_next_to_halves(kind, scale, zero_point, rounding, tmp_path):
    inputs = np.arange(-128, 128, dtype=np.int8)[None]
    _same(_curve(kind, scale, zero_point), rounding, [inputs], tmp_path)


@pytest.mark.parametrize(("shape", "axis"), [((1, 16, 6), 1), ((1, 12, 6), 1), ((1, 30, 6), 1), ((1, 6, 8), 2)])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_means_next_to_halves(rounding, shape, axis, tmp_path):
    """XNNPACK adds both zero points in single precision before it rounds half to even, so that odd ones count."""
    data = np.random.default_rng(0)
    runs = [data.integers(-128, 128, shape).astype(np.int8) for _ in range(40)]
    for number, (output, zero, output_zero) in enumerate(((0.0737, -83, -83), (0.0737, -40, -84), (0.055275, 127, 53))):
        tensors = [
            T(shape, scale=0.0737, zero_point=zero),
            T((1,), "int32", data=np.array([axis])),
            T(tuple(np.delete(shape, axis).tolist()), scale=output, zero_point=output_zero),
        ]
        folder = tmp_path / str(number)
        folder.mkdir()
        _same(build(tensors, [Op("MEAN", (0, 1), (2,), {"keep_dims": False})], [0], [2]), rounding, runs, folder)


def _sum(first: float, second: float, output: float, zero_point: int) -> bytes:
    tensors = [T((256,), scale=first), T((256,), scale=second, data=np.arange(-128, 128)[::-1].copy())]
    tensors.append(T((256,), scale=output, zero_point=zero_point))
    return build(tensors, [Op("ADD", (0, 1), (2,), {"activation": "NONE"})], [0], [2])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("zero_point", [-128, 51, 127])
def test_sums_much_smaller_than_the_output_keep_its_zero_point(zero_point, rounding, tmp_path):
    inputs = np.arange(-128, 128, dtype=np.int8)
    _same(_sum(0.001, 0.0011, 0.5, zero_point), rounding, [inputs], tmp_path)


def test_sums_that_depend_on_the_processor_are_refused():
    with pytest.raises(CompileError, match="LiteRT's result depends on the processor; use another rounding"):
        compile_model(_sum(1.0, 0.5, 0.001, 0), rounding="xnnpack")
    tensors = [T((256,), scale=0.001), T((256,), scale=1.0)]
    with pytest.raises(CompileError, match=r"0\.001 times its output's"):
        compile_model(build(tensors, [Op("QUANTIZE", (0,), (1,))], [0], [1]), rounding="xnnpack")


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    ("kind", "dtype", "factor"),
    [
        ("ADD", "int8", 2.0**-19),
        ("SUB", "int8", 2.0**-19),
        ("ADD", "int16", 2.0**-14),
        ("SUB", "int16", 2.0**-14),
        ("SQUARED_DIFFERENCE", "int8", 0.75 * 2.0**-18),
    ],
)
def test_outputs_far_smaller_than_the_inputs_have_the_same_bits_or_are_refused(kind, dtype, factor, rounding, tmp_path):
    """Converters give tiny scales to outputs that were constant in the calibration, such as `x - x`."""

    def model(factor: float) -> bytes:
        scale = 0.75 * 2.0**-6  # all powers of two are a case of their own in int16
        tensors = [T((64,), dtype, scale=scale), T((64,), dtype, scale=factor * scale)]
        options = {} if kind == "SQUARED_DIFFERENCE" else {"activation": "NONE"}
        return build(tensors, [Op(kind, (0, 0), (1,), options)], [0], [1])

    inputs = np.random.default_rng(0).integers(-128, 128, 64).astype(dtype)
    if (kind, dtype, rounding) not in {("ADD", "int8", "xnnpack"), ("SUB", "int8", "xnnpack")}:
        _same(model(1.1 * factor), rounding, [inputs], tmp_path)
    if (kind, rounding) == ("SQUARED_DIFFERENCE", "tflm"):
        return
    with pytest.raises(
        CompileError, match=rf"Operator 0 \({kind}, .* calibrate on examples for which its output varies"
    ):
        compile_model(model(factor), rounding=rounding)
