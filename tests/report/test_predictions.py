import base64
import io
import wave

import numpy as np
import pytest
from PIL import Image

from rudel.errors import DataError, RunError
from rudel.report.gallery import data_uri
from rudel.report.predictions import Predictions, load, save, select_examples, summarise


def test_summarise_takes_the_most_probable_class():
    summary = summarise(np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]), np.array([2, 0]))
    assert summary.predicted.tolist() == [1, 0]
    np.testing.assert_allclose(summary.confidence, [0.5, 0.6])
    np.testing.assert_allclose(summary.truth_probability, [0.3, 0.6])
    kinds = [a.dtype for a in (summary.truth, summary.predicted, summary.confidence, summary.truth_probability)]
    assert kinds == [np.int32, np.int32, np.float32, np.float32]


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_sigmoid_is_two_classes(shape):
    summary = summarise(np.array([0.9, 0.2, 0.4]).reshape(shape), np.array([1.0, 0.0, 1.0]).reshape(shape))
    assert summary.predicted.tolist() == [1, 0, 0]
    np.testing.assert_allclose(summary.confidence, [0.9, 0.8, 0.6], rtol=1e-6)
    np.testing.assert_allclose(summary.truth_probability, [0.9, 0.8, 0.4], rtol=1e-6)


@pytest.mark.parametrize(
    ("probabilities", "truth", "message"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), r"must be \(N, C\)"),
        (np.zeros((3, 2, 2)), np.zeros(3, int), r"must be \(N, C\)"),
        (np.zeros((3, 2)), np.zeros((3, 2)), r"must be \(N, C\)"),
        (np.zeros((3, 2)), np.array([0, 1, 2]), "not among the 2"),
        (np.zeros((3, 2)), np.array([0, 1, -1]), "not among the 2"),
    ],
)
def test_what_does_not_fit_is_an_error(probabilities, truth, message):
    with pytest.raises(DataError, match=message):
        summarise(probabilities, truth)


def test_the_surest_right_come_before_the_surest_wrong_and_ties_go_to_the_earlier():
    truth = np.array([0, 0, 0, 0, 1, 1])
    predicted = np.array([0, 0, 1, 1, 1, 1])
    confidence = np.array([0.8, 0.9, 0.7, 0.7, 0.9, np.nan], np.float32)
    chosen = select_examples(truth, predicted, confidence, count=2)
    assert chosen.tolist() == [1, 4, 2, 3]
    assert chosen.dtype == np.int32
    assert select_examples(truth, predicted, confidence, count=1).tolist() == [1, 2]
    assert select_examples(truth, predicted, confidence, count=12).tolist() == [1, 4, 0, 2, 3]


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 1), (16, 20, 3)])
def test_pictures_of_bytes_are_kept_as_they_are(tmp_path, make_answers, shape):
    predictions = summarise(*make_answers(3, 50))
    x = np.random.default_rng(0).integers(0, 200, (50, *shape), np.uint8)
    save(tmp_path / "p.npz", predictions, x)
    back = load(tmp_path / "p.npz")
    assert back.examples_index is not None
    chosen = select_examples(predictions.truth, predictions.predicted, predictions.confidence, count=12)
    assert back.examples_index.tolist() == chosen.tolist()
    np.testing.assert_array_equal(back.examples_x, x[chosen])
    for name in ("truth", "predicted", "confidence", "truth_probability"):
        np.testing.assert_array_equal(getattr(back, name), getattr(predictions, name))
        assert getattr(back, name).dtype == getattr(predictions, name).dtype


def test_pictures_of_other_numbers_are_scaled_to_bytes(tmp_path):
    x = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 8, 8)
    x[1, 0, 0] = np.nan
    save(tmp_path / "p.npz", summarise(np.eye(4), np.arange(4)), x)
    pictures = load(tmp_path / "p.npz").examples_x
    assert pictures is not None
    assert pictures.dtype == np.uint8
    assert (pictures.min(), pictures.max()) == (0, 255)
    assert abs(int(pictures[1, 0, 0]) - 128) <= 1
    save(tmp_path / "p.npz", summarise(np.eye(4), np.arange(4)), np.ones((4, 8, 8)))
    assert not np.any(load(tmp_path / "p.npz").examples_x)


@pytest.mark.parametrize("x", [None, np.zeros((5, 784)), np.zeros((5, 8, 8, 4)), np.zeros((5, 7, 7)), {"a": 1}])
def test_inputs_that_cannot_be_shown_are_not_kept(tmp_path, x):
    save(tmp_path / "p.npz", summarise(np.eye(5), np.arange(5)), x)
    assert load(tmp_path / "p.npz").examples_x is None


def test_too_few_inputs_are_an_error(tmp_path):
    with pytest.raises(DataError, match="4 inputs for 5 predictions"):
        save(tmp_path / "p.npz", summarise(np.eye(5), np.arange(5)), np.zeros((4, 8, 8)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"truth": np.zeros(4, np.int32)},
        {"predicted": np.full(5, -1)},
        {"predicted": np.zeros(5)},
        {"examples_index": np.array([5]), "examples_x": np.zeros((1, 8, 8), np.uint8)},
        {"examples_index": np.array([0])},
        {"examples_index": np.array([0]), "examples_x": np.zeros((1, 8, 8))},
        {"examples_index": np.array([0]), "examples_x": np.zeros((1, 80, 6))},
        {"examples_index": np.array([0]), "examples_x": np.zeros((1, 80), np.int16)},
        {"examples_index": np.array([0]), "examples_x": np.zeros((1, 80)), "rate": np.array(8000)},
        {"examples_index": np.array([0]), "examples_x": np.zeros((1, 80), np.int16), "rate": np.array(0)},
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path, changes):
    arrays = vars(summarise(np.eye(5), np.arange(5)))
    arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    with pytest.raises(DataError):
        Predictions(**arrays)
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(RunError, match="does not hold predictions"):
        load(tmp_path / "p.npz")


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "p.npz", truth=np.zeros(3, int))
    np.save(tmp_path / "q.npy", np.zeros(3))
    for name in ("p.npz", "q.npy", "missing.npz"):
        with pytest.raises(RunError, match=name):
            load(tmp_path / name)


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 1), (28, 20, 3)])
def test_a_picture_in_the_page_is_the_picture(shape):
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    kind, written = data_uri(picture).split(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(written))) as image:
        np.testing.assert_array_equal(np.asarray(image).reshape(shape), picture)


def test_large_pictures_are_scaled_down():
    written = data_uri(np.zeros((512, 256, 3), np.uint8)).split(",")[1]
    with Image.open(io.BytesIO(base64.b64decode(written))) as image:
        assert image.size == (64, 128)


def test_the_gallery_says_what_was_taken_for_what(run):
    probabilities = np.array([[0.98, 0.01, 0.01], [0.97, 0.02, 0.01], [0.999, 0.001, 0], [1, 0, 0]])
    save(run.path / "predictions.npz", summarise(probabilities, np.array([0, 2, 0, 0])), np.zeros((4, 8, 8), np.uint8))
    page = run.config().report()
    captions = [[" ".join("".join(span.itertext()).split()) for span in item.iter("span")] for item in page.all("li")]
    assert captions == [["bird 100 %"], ["bird >99 %"], ["bird 98 %"], ["bird 97 %", "is fish"]]
    assert page.all("img")[-1].get("alt") == "An example of fish, predicted as bird with 97\u202f%"


MIXED_UP = np.array([[0.98, 0.01, 0.01], [0.97, 0.02, 0.01]])
"""Answers to a bird, and to a fish that is taken for one."""


def tone(hertz: float, rate: int) -> np.ndarray:
    return (20_000 * np.sin(2 * np.pi * hertz * np.arange(rate) / rate)).astype(np.int16)


def test_sound_is_heard_and_seen(run, browser):
    rate = 8000
    sounds = np.stack([tone(440, rate), tone(1500, rate)])
    save(run.path / "predictions.npz", summarise(MIXED_UP, np.array([0, 2])), sounds, rate)
    page = run.config().report()
    for player, samples in zip(page.all("audio"), sounds, strict=True):
        written = base64.b64decode(player.get("src").removeprefix("data:audio/wav;base64,"))
        with wave.open(io.BytesIO(written)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (rate, 1, 2)
            assert file.readframes(rate) == samples.tobytes()
    assert page.all("audio")[1].get("aria-label") == "An example of fish, predicted as bird with 97\u202f%"
    low, high = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(i.get("src").split(",")[1])))) for i in page.all("img")
    )
    loudest = [int(picture.astype(int).sum(1).argmax()) for picture in (low, high)]
    assert loudest[0] > loudest[1], "what is high is above"
    with browser.page((run.path / "report.html").as_uri()) as shown:
        shown.until("document.querySelectorAll('audio').length == 2")
        shown.value("document.querySelectorAll('audio').forEach(audio => { audio.preload = 'auto'; audio.load(); })")
        shown.until("[...document.querySelectorAll('audio')].every(audio => audio.readyState == 4)")
        assert shown.value("[...document.querySelectorAll('audio')].map(audio => audio.duration)") == [1, 1]
        assert not shown.problems


@pytest.mark.parametrize(("samples", "rate"), [(900, 900), (100, 8000)], ids=["low rate", "short"])
def test_sound_without_a_spectrogram_is_heard(run, samples, rate):
    x = np.zeros((2, samples), np.int16)
    save(run.path / "predictions.npz", summarise(MIXED_UP, np.array([0, 2])), x, rate)
    page = run.config().report()
    assert len(page.all("audio")) == 2
    assert not page.all("img")


def height_of(points: str) -> float:
    down = [float(point.split(",")[1]) for point in points.split()]
    return max(down) - min(down)


def test_series_are_curves_on_one_scale(run):
    still, moved = np.zeros((119, 6), np.float32), np.zeros((119, 6), np.float32)
    moved[50:60, 1], moved[60:70, 5] = 2, 300
    save(run.path / "predictions.npz", summarise(MIXED_UP, np.array([0, 2])), np.stack([still, moved]))
    page = run.config().report()
    drawn = [svg.findall("polyline") for svg in page.all("svg") if svg.find("polyline") is not None]
    heights = [[height_of(line.get("points")) for line in lines] for lines in drawn]
    assert heights[0] == [0] * 6
    assert [height > 50 for height in heights[1]] == [False, True, False, False, False, True]
