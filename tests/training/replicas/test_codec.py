"""Both sides know the same of what is sent; messages are small, and damaged ones are refused."""

import numpy as np
import pytest

from rudel.errors import NonFiniteError, OptionError
from rudel.replicas.codec.delta_codec import make_codec
from rudel.replicas.codec.weight_vector import Layout

LAYOUT = Layout(((784, 64), (64,), (64, 13), (13,), (3, 3, 8, 32), (), (0, 5), (1025,)))
NAMES = ["float32", "float16", "int8", "top8", "top16", "top32"]


def noise(seed: int = 0, scale: float = 1e-3) -> np.ndarray:
    return np.float32(scale) * np.random.default_rng(seed).standard_t(4, LAYOUT.size).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_who_writes_knows_what_is_read(name: str) -> None:
    codec = make_codec(name)
    message, sent = codec.encode(noise(), LAYOUT)
    read = codec.decode(message, LAYOUT)
    assert sent.tobytes() == read.tobytes()
    assert sent.dtype == read.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
def test_a_weighted_sum_is_that_of_what_is_read(name: str) -> None:
    codec = make_codec(name)
    changes = [(codec.encode(noise(seed), LAYOUT), weight) for seed, weight in ((0, 7), (1, 1), (2, 300))]
    summed = codec.weighted_sum([(message, weight) for (message, _), weight in changes], LAYOUT)
    expected = sum(weight * sent.astype(np.float64) for (_, sent), weight in changes)
    np.testing.assert_allclose(summed, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    again = codec.weighted_sum([(message, weight) for (message, _), weight in changes], LAYOUT)
    assert summed.tobytes() == again.tobytes()
    assert not codec.weighted_sum([], LAYOUT).any()
    with pytest.raises(ValueError, match="damaged"):
        codec.weighted_sum([(changes[0][0][0][:-1] + b"?", 1)], LAYOUT)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_given_is_changed_and_everything_is_repeatable(name: str) -> None:
    codec, vector = make_codec(name), noise()
    vector.flags.writeable = False
    (first, sent), (second, again) = (codec.encode(vector, LAYOUT) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(sent, again)


@pytest.mark.parametrize(("name", "most"), [("float32", 0.0), ("float16", 5e-4), ("int8", 8e-3)])
def test_rounding_errs_by_no_more_than_its_bits(name: str, most: float) -> None:
    codec, layout = make_codec(name), Layout(((10_000,),))
    values = np.random.default_rng(0).uniform(-1, 1, 10_000).astype(np.float32)
    assert np.abs(codec.encode(values, layout)[1] - values).max() <= most


@pytest.mark.parametrize(("group", "levels"), [(8, 15), (16, 7), (32, 3)])
@pytest.mark.parametrize("size", [160_000, 100_001])
def test_of_every_group_the_largest_is_sent_in_a_byte(size: int, group: int, levels: int) -> None:
    codec, layout = make_codec(f"top{group}"), Layout(((size,),))
    values = np.random.default_rng(0).laplace(size=size).astype(np.float32)
    message, sent = codec.encode(values, layout)
    groups = -(-size // group)
    filled = np.concatenate([values, np.zeros(group * groups - size, np.float32)]).reshape(group, groups)
    largest = np.abs(filled).argmax(axis=0) * groups + np.arange(groups)
    exponents = np.frexp(values[largest])[1]
    largest = largest[exponents > exponents.max() - levels]  # smaller ones are read as zero
    np.testing.assert_array_equal(np.flatnonzero(sent), np.sort(largest))
    ratios = sent[largest] / values[largest]
    assert ratios.min() > 0.68
    assert ratios.max() <= 1.375
    assert len(message) == groups + 4 + 1  # a checksum, and the largest exponent


def test_small_arrays_are_sent_in_full() -> None:
    codec, layout = make_codec("top8"), Layout(((1024,), (), (1025,)))
    vector = np.random.default_rng(0).normal(size=layout.size).astype(np.float32)
    small, single, large = layout.arrays(codec.encode(vector, layout)[1])
    np.testing.assert_allclose(small, vector[:1024], rtol=4e-3)
    assert single == pytest.approx(vector[1024], rel=4e-3)
    assert np.count_nonzero(large) == -(-1025 // 8)


def test_sizes_are_in_relation_to_the_largest_of_their_array() -> None:
    codec, layout = make_codec("top8"), Layout(((5000,), (5000,)))
    vector = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    vector[5000:] *= 1e-6
    for arrived, wanted in zip(layout.arrays(codec.encode(vector, layout)[1]), layout.arrays(vector), strict=True):
        assert np.count_nonzero(arrived) == -(-5000 // 8)
        assert np.linalg.norm(arrived - wanted) < 0.9 * np.linalg.norm(wanted)


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
    codec, layout = make_codec(name), Layout(((5000,),))
    values = values.astype(np.float32)
    message, sent = codec.encode(values, layout)
    left = values - sent
    np.testing.assert_array_equal(codec.decode(message, layout), sent)
    assert np.abs(left).max() <= np.abs(values).max() * (1 + 1e-6)
    if name.startswith("top"):
        assert np.count_nonzero(sent) <= -(-5000 // int(name.removeprefix("top")))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e30])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_is_refused(name: str, bad: float) -> None:
    codec, vector = make_codec(name), noise()
    LAYOUT.arrays(vector)[2][3, 4] = bad
    with pytest.raises(
        NonFiniteError, match=r"^The change of weight array 2 in a round is NaN, infinite or above 1e\+30: "
    ):
        codec.encode(vector, LAYOUT)


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_refused(name: str) -> None:
    codec = make_codec(name)
    message, _ = codec.encode(noise(), LAYOUT)
    random = np.random.default_rng(0)
    for place in random.integers(0, len(message), 50):
        damaged = bytearray(message)
        damaged[place] ^= 1 << int(random.integers(8))
        with pytest.raises(ValueError, match=rf"^The message is damaged, or was not written by the codec '{name}'\.$"):
            codec.decode(bytes(damaged), LAYOUT)
    for length in (0, 3, 4, len(message) - 1):
        with pytest.raises(ValueError, match=r"^The message "):
            codec.decode(message[:length], LAYOUT)
    with pytest.raises(ValueError, match=r"^The message "):
        codec.decode(message + b"\0", LAYOUT)


def test_a_message_of_another_codec_or_model_is_refused() -> None:
    codec = make_codec("top8")
    message, _ = codec.encode(noise(), LAYOUT)
    with pytest.raises(ValueError, match="was not written by the codec 'int8'"):
        make_codec("int8").decode(message, LAYOUT)
    with pytest.raises(ValueError, match=r"^The message "):
        codec.decode(message, Layout(((784, 32), *LAYOUT.shapes[1:])))
    with pytest.raises(ValueError, match=r"^The message "):
        codec.decode(message, Layout(LAYOUT.shapes[:-1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_message_gives_finite_arrays_or_a_value_error(name: str, forged) -> None:
    """Who knows the codec can make the checksum fit; nothing worse than wrong numbers may come of it."""
    codec = make_codec(name)
    message, _ = codec.encode(noise(), LAYOUT)
    random = np.random.default_rng(0)
    for attempt in range(150):
        body = bytearray(message[4:])
        for _ in range(random.integers(1, 4)):
            # Heads and lengths are at the beginning, where most forgeries shall be.
            place = int(random.integers(0, min(len(body), 200 if attempt % 2 else len(body))))
            body[place] = (0, 1, 127, 255, int(random.integers(256)))[random.integers(5)]
        try:
            read = codec.decode(forged(name, bytes(body)), LAYOUT)
        except ValueError as error:
            assert str(error).startswith("The message ")  # noqa: PT017  # it need not be raised
        else:
            assert read.shape == (LAYOUT.size,)
            assert np.all(np.isfinite(read))


@pytest.fixture
def forged():
    """A message with the right checksum for any body."""
    import zlib

    return lambda name, body: zlib.crc32(body, zlib.crc32(name.encode())).to_bytes(4, "little") + body


@pytest.mark.parametrize("name", NAMES)
def test_the_name_makes_the_codec(name: str) -> None:
    assert make_codec(name).name == name


@pytest.mark.parametrize("name", ["", "float64", "int3", "Top8", "top4", "int8:4"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^There is no codec '.*': it can be float32, .* or top32\.$"):
        make_codec(name)


@pytest.mark.parametrize("name", ["int8", "top8"])
def test_what_is_left_dies_away_however_arrays_differ(name: str) -> None:
    random, layout = np.random.default_rng(0), Layout(((128, 128), (128,), (3,)))
    codec, left = make_codec(name), np.zeros(layout.size, np.float32)
    parts = layout.arrays(left)
    parts[0][...] = np.exp(3 * random.normal(size=(128, 128)))  # few are large
    parts[1][...], parts[2][...] = 1.0, (1.0, -1.0, 1e-3)  # these are all alike
    sizes = [[np.linalg.norm(part) for part in parts]]
    for _ in range(60):
        left -= codec.encode(left, layout)[1]
        sizes.append([np.linalg.norm(part) for part in parts])
    assert np.all(np.diff(sizes, axis=0) <= 1e-5 * np.array(sizes[0]))
    assert np.all(np.array(sizes[-1]) < 0.2 * np.array(sizes[0]))
