"""Both sides know the same of what is sent; messages are small, and damaged ones are refused."""

import subprocess
import sys

import numpy as np
import pytest

from rudel.errors import NonFiniteError, OptionError
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.vector import Change, Layout

LAYOUT = Layout(((784, 64), (64,), (64, 13), (13,), (3, 3, 8, 32), (), (0, 5), (1025,)))
NAMES = ["float32", "float16", "bfloat16", "int8", "int4", "topk:0.05:2", "topk:0.1:1", "topk:0.02:4", "topk:1:3"]


def noise(seed: int = 0, scale: float = 1e-3) -> np.ndarray:
    return np.float32(scale) * np.random.default_rng(seed).standard_t(4, LAYOUT.size).astype(np.float32)


def dense(change: Change, layout: Layout = LAYOUT) -> np.ndarray:
    vector = np.zeros(layout.size, np.float32)
    change.add_to(vector)
    return vector


@pytest.mark.parametrize("name", NAMES)
def test_who_writes_knows_what_is_read(name: str) -> None:
    codec = make_codec(name)
    message, sent = codec.encode(noise(), LAYOUT)
    read = codec.decode(message, LAYOUT)
    assert dense(sent).tobytes() == dense(read).tobytes()
    assert sent.values.dtype == read.values.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
def test_nothing_given_is_changed_and_everything_is_repeatable(name: str) -> None:
    codec, vector = make_codec(name), noise()
    vector.flags.writeable = False
    (first, sent), (second, again) = (codec.encode(vector, LAYOUT) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(dense(sent), dense(again))
    sent.add_to(np.zeros(LAYOUT.size, np.float32), 2.0)
    np.testing.assert_array_equal(dense(sent), dense(again))


@pytest.mark.parametrize(
    ("name", "most"), [("float32", 0.0), ("float16", 5e-4), ("bfloat16", 4e-3), ("int8", 4e-3), ("int4", 0.08)]
)
def test_rounding_errs_by_no_more_than_its_bits(name: str, most: float) -> None:
    codec, layout = make_codec(name), Layout(((10_000,),))
    values = np.random.default_rng(0).uniform(-1, 1, 10_000).astype(np.float32)
    assert np.abs(dense(codec.encode(values, layout)[1], layout) - values).max() <= most


@pytest.mark.parametrize(("share", "bits"), [(0.01, 2), (0.05, 1), (0.05, 4), (0.2, 2)])
def test_the_largest_are_sent_in_a_byte_each(share: float, bits: int) -> None:
    size = 200_000
    codec, layout = make_codec(f"topk:{share}:{bits}"), Layout(((size,),))
    values = np.random.default_rng(0).laplace(size=size).astype(np.float32)
    message, sent = codec.encode(values, layout)
    arrived = dense(sent, layout)
    (chosen,) = np.nonzero(arrived)
    assert len(chosen) == pytest.approx(share * size, rel=0.2)
    assert np.abs(values[chosen]).min() > np.abs(np.delete(values, chosen)).max() * 0.999
    assert np.all(np.sign(arrived[chosen]) == np.sign(values[chosen]))
    passed_over = share * (1 - share) ** (2 ** (8 - bits) - 1) / share  # gaps that do not fit into a byte
    assert len(message) < 1.1 * len(chosen) * (1 + 2 * passed_over) + 200


def test_every_array_has_its_share() -> None:
    codec = make_codec("topk:0.1:2")
    layout = Layout(((5000,), (5000,)))
    vector = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    vector[5000:] *= 1e-4
    first, second = layout.parts(dense(codec.encode(vector, layout)[1], layout))
    assert np.count_nonzero(first) == pytest.approx(500, rel=0.2)
    assert np.count_nonzero(second) == pytest.approx(500, rel=0.2)
    for arrived, wanted in zip((first, second), layout.parts(vector), strict=True):
        assert np.linalg.norm(arrived - wanted) < 0.85 * np.linalg.norm(wanted)


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
    left = values - dense(sent, layout)
    np.testing.assert_array_equal(dense(codec.decode(message, layout), layout), dense(sent, layout))
    assert np.abs(left).max() <= np.abs(values).max() * (1 + 1e-6)
    if name.startswith("topk:0.05"):
        assert np.count_nonzero(dense(sent, layout)) <= 500


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e30])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_is_refused(name: str, bad: float) -> None:
    codec, vector = make_codec(name), noise()
    LAYOUT.parts(vector)[2][3, 4] = bad
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
    codec = make_codec("topk:0.05:2")
    message, _ = codec.encode(noise(), LAYOUT)
    with pytest.raises(ValueError, match=r"was not written by the codec 'topk:0\.05:4'"):
        make_codec("topk:0.05:4").decode(message, LAYOUT)
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
            change = codec.decode(forged(name, bytes(body)), LAYOUT)
        except ValueError as error:
            assert str(error).startswith("The message ")  # noqa: PT017  # it need not be raised
        else:
            assert dense(change).shape == (LAYOUT.size,)
            assert np.all(np.isfinite(change.values))


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
    "name", ["topk", "topk:0.1", "topk:0:2", "topk:1.1:2", "topk:x:2", "topk:0.1:5", "topk:0.1:2:0.5"]
)
def test_wrong_numbers_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^The codec '.*' must be topk:SHARE:BITS, "):
        make_codec(name)


@pytest.mark.parametrize("name", ["int4", "topk:0.05:2", "topk:0.3:4"])
def test_what_is_left_dies_away_however_arrays_differ(name: str) -> None:
    random, layout = np.random.default_rng(0), Layout(((128, 128), (128,), (3,)))
    codec, left = make_codec(name), np.zeros(layout.size, np.float32)
    parts = layout.parts(left)
    parts[0][...] = np.exp(3 * random.normal(size=(128, 128)))  # few are large
    parts[1][...], parts[2][...] = 1.0, (1.0, -1.0, 1e-3)  # these are all alike
    sizes = [[np.linalg.norm(part) for part in parts]]
    for _ in range(60):
        codec.encode(left, layout)[1].add_to(left, -1.0)
        sizes.append([np.linalg.norm(part) for part in parts])
    assert np.all(np.diff(sizes, axis=0) <= 1e-5 * np.array(sizes[0]))
    assert np.all(np.array(sizes[-1]) < 0.2 * np.array(sizes[0]))


def test_what_takes_pictures_stands_as_frequencies_and_comes_back() -> None:
    random = np.random.default_rng(0)
    shapes = [(28 * 28, 5), (16 * 8 * 3, 4), (7, 3), (5,)]
    arrays = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    layout = Layout.of(arrays, [(28, 28), (16, 8, 3), (784,), ()])
    assert layout.grids == ((28, 28), (16, 8), None, None)
    vector = layout.vector(arrays)
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(np.concatenate([a.ravel() for a in arrays])))
    for back, array in zip(layout.arrays(vector), arrays, strict=True):
        np.testing.assert_allclose(back, array, atol=1e-5)


def test_smooth_changes_are_few_frequencies() -> None:
    places = np.linspace(0, 1, 28)
    waves = np.array([np.cos(np.pi * k * places) / (1 + k * k) for k in range(6)])
    random = np.random.default_rng(0)
    kernel = np.einsum("cij,iy,jx->yxc", random.normal(size=(64, 6, 6)), waves, waves).reshape(784, 64)
    kernel += 0.1 * random.normal(size=kernel.shape)
    codec, lost = make_codec("topk:0.05:2"), []
    for inputs in ([(28, 28)], []):
        layout = Layout.of([kernel], inputs)
        vector = layout.vector([kernel])
        codec.encode(vector, layout)[1].add_to(vector, -1.0)
        lost.append(float(np.sum(vector**2) / np.sum(kernel**2)))
    assert lost[0] < 0.75 * lost[1]


def test_decoding_needs_no_more_than_numpy() -> None:
    code = (
        "import sys, rudel.train.diloco.codec, rudel.train.diloco.outer\n"
        "print(sorted({'jax', 'keras', 'scipy', 'dask', 'distributed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
