"""What is sent and what is left over make the whole; messages are small, and damaged ones are refused."""

import math
import subprocess
import sys

import numpy as np
import pytest

from rudel.errors import NonFiniteError, OptionError
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.frequencies import from_frequencies, grid_of, rows_are_alike, to_frequencies

SHAPES = [(784, 64), (64,), (64, 13), (13,), (3, 3, 8, 32), (), (0, 5), (1025,)]
NAMES = ["float32", "float16", "bfloat16", "int8", "int4", "topk:0.05:2", "topk:0.1:1", "topk:0.02:4:1", "topk:1:8:0"]


def noise(seed: int = 0, scale: float = 1e-3) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [np.asarray(scale * random.standard_t(4, shape), np.float32) for shape in SHAPES]


def pixels(columns: int = 64, seed: int = 0) -> np.ndarray:
    """(784, columns) in which rows of neighbouring pixels are alike, as in the first layer of a net for pictures."""
    places = np.linspace(0, 1, 28)
    waves = [np.cos(np.pi * k * places) / (1 + k * k) for k in range(6)]
    random = np.random.default_rng(seed)
    factors = random.normal(size=(columns, 6, 6))
    smooth = np.einsum("cij,iy,jx->yxc", factors, waves, waves).reshape(784, columns)
    return (smooth + 0.1 * random.normal(size=smooth.shape)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_and_what_is_left_make_the_whole(name: str) -> None:
    codec = make_codec(name)
    deltas = [pixels(), *noise()[1:]]
    message, residuals = codec.encode(deltas, codec.init(SHAPES))
    sent = codec.decode(message, SHAPES)
    for delta, arrived, residual in zip(deltas, sent, residuals, strict=True):
        assert arrived.shape == residual.shape == delta.shape
        assert arrived.dtype == residual.dtype == np.float32
        np.testing.assert_array_equal(residual, delta - arrived)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_given_is_changed_and_everything_is_repeatable(name: str) -> None:
    codec = make_codec(name)
    deltas, residuals = noise(0), noise(1)
    for array in [*deltas, *residuals]:
        array.flags.writeable = False
    first, second = (codec.encode(deltas, residuals) for _ in range(2))
    assert first[0] == second[0]
    for a, b in zip(first[1], second[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "most"), [("float32", 0.0), ("float16", 5e-4), ("bfloat16", 4e-3), ("int8", 4e-3), ("int4", 0.08)]
)
def test_rounding_errs_by_no_more_than_its_bits(name: str, most: float) -> None:
    codec = make_codec(name)
    values = np.random.default_rng(0).uniform(-1, 1, 10_000).astype(np.float32)
    sent = codec.decode(codec.encode([values], codec.init([(10_000,)]))[0], [(10_000,)])[0]
    assert np.abs(sent - values).max() <= most


@pytest.mark.parametrize(("name", "kept"), [("int4", 1.0), ("topk:0.05:2:1", 1.0), ("topk:0.05:2:0.8", 0.8)])
def test_over_rounds_everything_arrives_that_is_not_forgotten(name: str, kept: float) -> None:
    codec = make_codec(name)
    residuals = codec.init(SHAPES)
    arrived, wanted, lost = 0.0, 0.0, 0.0
    for round_number in range(20):
        deltas = noise(round_number)
        lost += (1 - kept) * residuals[0].astype(np.float64)
        message, residuals = codec.encode(deltas, residuals)
        arrived += codec.decode(message, SHAPES)[0].astype(np.float64)
        wanted += deltas[0].astype(np.float64)
    np.testing.assert_allclose(arrived + residuals[0] + lost, wanted, atol=1e-6)


@pytest.mark.parametrize(("share", "bits"), [(0.01, 2), (0.05, 1), (0.05, 4), (0.2, 2)])
def test_the_largest_are_sent_with_few_bits(share: float, bits: int) -> None:
    codec = make_codec(f"topk:{share}:{bits}")
    size = 200_000
    values = np.random.default_rng(0).laplace(size=size).astype(np.float32)
    message, _ = codec.encode([values], codec.init([(size,)]))
    sent = codec.decode(message, [(size,)])[0]
    (chosen,) = np.nonzero(sent)
    assert len(chosen) == pytest.approx(share * size, rel=0.2)
    assert np.abs(values[chosen]).min() > np.abs(np.delete(values, chosen)).max() * 0.999
    assert np.all(np.sign(sent[chosen]) == np.sign(values[chosen]))
    entropy = -(share * math.log2(share) + (1 - share) * math.log2(1 - share)) * size
    assert 8 * len(message) < 1.06 * (entropy * len(chosen) / (share * size) + bits * len(chosen)) + 8 * 200


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(5000),
        np.ones(5000),
        np.eye(1, 5000, 4321)[0],
        np.repeat([1.0, 0.0], [7, 4993]),
        np.full(5000, 1e-42),
        np.arange(5000) % 5 * 2e29,
    ],
    ids=["zeros", "ones", "one", "seven", "denormal", "huge"],
)
@pytest.mark.parametrize("name", NAMES)
def test_odd_values(name: str, values: np.ndarray) -> None:
    codec = make_codec(name)
    values = values.astype(np.float32)
    message, residuals = codec.encode([values], codec.init([(5000,)]))
    sent = codec.decode(message, [(5000,)])[0]
    np.testing.assert_allclose(sent + residuals[0], values, rtol=1e-6)
    assert np.abs(residuals[0]).max() <= np.abs(values).max() * (1 + 1e-6)
    if name.startswith("topk:0.05"):
        assert np.count_nonzero(sent) <= 500


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e30])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_is_refused(name: str, bad: float) -> None:
    codec = make_codec(name)
    deltas = noise()
    deltas[2][3, 4] = bad
    with pytest.raises(
        NonFiniteError, match=r"^The change of weight array 2 in a round is NaN, infinite or above 1e\+30: "
    ):
        codec.encode(deltas, codec.init(SHAPES))


def test_rows_of_pixels_are_sent_as_frequencies_and_others_are_not() -> None:
    codec = make_codec("topk:0.05:2")
    shuffled = pixels()[np.random.default_rng(0).permutation(784)]
    lost = []
    for values in (pixels(), shuffled):
        message, (residual,) = codec.encode([values], codec.init([values.shape]))
        assert len(message) < 5000
        lost.append(float(np.sum(residual**2) / np.sum(values**2)))
    assert lost[0] < 0.5 * lost[1]


@pytest.mark.parametrize("rows", [16, 64, 784, 1024, 3072])
def test_frequencies_are_orthonormal_and_come_back(rows: int) -> None:
    grid = grid_of(rows)
    assert grid is not None
    values = np.random.default_rng(0).normal(size=(*grid, 5)).astype(np.float32)
    frequencies = to_frequencies(values)
    assert np.sum(frequencies**2) == pytest.approx(np.sum(values**2), rel=1e-5)
    np.testing.assert_allclose(from_frequencies(frequencies), values, atol=1e-5)


def test_a_constant_is_one_frequency() -> None:
    frequencies = to_frequencies(np.ones((16, 16, 1), np.float32)).reshape(-1)
    assert frequencies[0] == pytest.approx(16)
    np.testing.assert_allclose(frequencies[1:], 0, atol=1e-6)


def test_rows_that_have_nothing_in_common_are_not_alike() -> None:
    assert rows_are_alike(pixels())
    assert not rows_are_alike(np.random.default_rng(0).normal(size=(784, 64)).astype(np.float32))
    assert not rows_are_alike(np.zeros((784, 64), np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_refused(name: str) -> None:
    codec = make_codec(name)
    deltas = [pixels(), *noise()[1:]]
    message, _ = codec.encode(deltas, codec.init(SHAPES))
    random = np.random.default_rng(0)
    for place in random.integers(0, len(message), 50):
        damaged = bytearray(message)
        damaged[place] ^= 1 << int(random.integers(8))
        with pytest.raises(ValueError, match=rf"^The message is damaged, or was not written by the codec '{name}'\.$"):
            codec.decode(bytes(damaged), SHAPES)
    for length in (0, 3, 4, len(message) - 1):
        with pytest.raises(ValueError, match=r"^The message "):
            codec.decode(message[:length], SHAPES)
    with pytest.raises(ValueError, match=r"^The message "):
        codec.decode(message + b"\0", SHAPES)


def test_a_message_of_another_codec_or_model_is_refused() -> None:
    codec = make_codec("topk:0.05:2")
    message, _ = codec.encode(noise(), codec.init(SHAPES))
    with pytest.raises(ValueError, match=r"was not written by the codec 'topk:0\.05:4'"):
        make_codec("topk:0.05:4").decode(message, SHAPES)
    with pytest.raises(ValueError, match=r"^The message "):
        codec.decode(message, [(784, 32), *SHAPES[1:]])
    with pytest.raises(ValueError, match=r"^The message goes on after its end"):
        codec.decode(message, SHAPES[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_message_gives_finite_arrays_or_a_value_error(name: str, forged) -> None:
    """Who knows the codec can make the checksum fit; nothing worse than wrong numbers may come of it."""
    codec = make_codec(name)
    message, _ = codec.encode([pixels(), *noise()[1:]], codec.init(SHAPES))
    random = np.random.default_rng(0)
    for attempt in range(150):
        body = bytearray(message[4:])
        for _ in range(random.integers(1, 4)):
            # Heads and lengths are at the beginning, where most forgeries shall be.
            place = int(random.integers(0, min(len(body), 200 if attempt % 2 else len(body))))
            body[place] = (0, 1, 127, 255, int(random.integers(256)))[random.integers(5)]
        try:
            arrays = codec.decode(forged(name, bytes(body)), SHAPES)
        except ValueError as error:
            assert str(error).startswith("The message ")  # noqa: PT017  # it need not be raised
        else:
            assert [array.shape for array in arrays] == SHAPES
            assert all(np.all(np.isfinite(array)) for array in arrays)


@pytest.fixture
def forged():
    """A message with the right checksum for any body."""
    import zlib

    return lambda name, body: zlib.crc32(body, zlib.crc32(name.encode())).to_bytes(4, "little") + body


@pytest.mark.parametrize("name", NAMES)
def test_the_name_makes_the_codec(name: str) -> None:
    assert make_codec(name).name == name


@pytest.mark.parametrize("name", ["", "float64", "int3", "Topk:0.1:2", "int8:4"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^There is no codec '.*': it can be float32, .*, as topk:0.05:2\.$"):
        make_codec(name)


@pytest.mark.parametrize(
    "name", ["topk", "topk:0.1", "topk:0:2", "topk:1.1:2", "topk:x:2", "topk:0.1:9", "topk:0.1:2:3", "topk:0.1:2:0.5:1"]
)
def test_wrong_numbers_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^The codec '.*' must be topk:SHARE:BITS or topk:SHARE:BITS:KEPT, "):
        make_codec(name)


def test_decoding_needs_no_more_than_numpy() -> None:
    code = (
        "import sys, rudel.train.diloco.codec, rudel.train.diloco.outer\n"
        "print(sorted({'jax', 'keras', 'scipy', 'dask', 'distributed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
