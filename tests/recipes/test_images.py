"""The recipe `images`: from a folder of photographs to a run that knows them, in memory or streamed."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from predicting import predict_files

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.data.photographs import decode
from rudel.errors import DataError, OptionError, RecipeError
from rudel.recipes.load import find_recipe
from rudel.runs.evaluate_run import evaluate_run

CLASSES = ("disc", "frame", "stripes")
QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 16}


def photograph(kind: str, random: np.random.Generator) -> Image.Image:
    """A coloured shape somewhere on a noisy ground."""
    picture = Image.fromarray(random.integers(90, 160, (50, 60, 3), dtype=np.uint8))
    draw, colour = ImageDraw.Draw(picture), tuple(random.integers(0, 256, 3).tolist())
    left, top = random.integers(8, 20, 2).tolist()
    if kind == "stripes":
        for offset in range(0, 24, 6):
            draw.line((left, top + offset, left + 24, top + offset), fill=colour, width=2)
    else:
        shape = draw.ellipse if kind == "disc" else draw.rectangle
        shape((left, top, left + 24, top + 24), fill=colour if kind == "disc" else None, outline=colour, width=3)
    return picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 photographs of each class."""
    root, random = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for kind in CLASSES:
        (root / kind).mkdir()
        for number in range(50):
            photograph(kind, random).save(root / kind / f"{number:02}.jpg", quality=92)
    return root


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch.setenv("RUDEL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def trained(folder: Path, cache: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = tmp_path_factory.mktemp("runs") / "images"
    return rudel.train_recipe("images", data=str(folder), options={"side": 32}, run=run, **QUICK)


def data(source: Path | str | None, **options: Any) -> rudel.Dataset:
    recipe = find_recipe("images")
    settings = recipe.settings({"side": 32, **options})
    return recipe.data(settings, source=None if source is None else str(source), progress=None)


def records_of(folder: Path, out: Path, **options: Any) -> Path:
    from rudel.data.images.convert import convert

    convert(folder, out, **options)
    return out


def test_photographs_are_decoded_and_split_by_the_names_of_their_files(folder: Path) -> None:
    dataset = data(folder)
    assert tuple(dataset.class_names) == CLASSES
    assert isinstance(dataset.train, rudel.Examples)
    assert isinstance(dataset.validation, rudel.Examples)
    assert len(dataset.train) + len(dataset.validation) == 150
    assert 5 <= len(dataset.validation) <= 30
    assert (dataset.train.x.dtype, dataset.train.x.shape[1:]) == (np.uint8, (32, 32, 3))
    known = {decode(path.read_bytes(), 32, 32).tobytes(): path.parent.name for path in folder.glob("*/*.jpg")}
    for part in (dataset.train, dataset.validation):
        assert [CLASSES[label] for label in part.y] == [known[picture.tobytes()] for picture in part.x]


def test_streamed_and_in_memory_give_the_same_bits(folder: Path, tmp_path: Path) -> None:
    keras = keras_on_jax()
    records = records_of(folder, tmp_path / "records")

    def trained_on(source: Path, streamed: str) -> tuple[list[np.ndarray], dict[str, list[float]]]:
        set_seed(0)
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
        model = keras.Sequential([keras.Input((32, 32, 3)), *layers])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        history = rudel.fit(model, data(source, streamed=streamed), epochs=3, batch_size=16)
        return model.get_weights(), {name: values for name, values in history.history.items() if "time" not in name}

    (weights, history), (others, other_history) = trained_on(folder, "auto"), trained_on(records, "true")
    for mine, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert history == other_history


def test_a_run_answers_files_as_it_was_trained(trained: Any, folder: Path) -> None:
    files = [folder / kind / "07.jpg" for kind in CLASSES]
    predictions = predict_files(trained.path, files)
    x = np.stack([decode(path.read_bytes(), 32, 32) for path in files])
    expected = rudel.predict(trained.model, x)
    np.testing.assert_array_equal([[dict(one.ranking)[name] for name in CLASSES] for one in predictions], expected)
    evaluated = evaluate_run(trained.path)
    assert evaluated.metrics["accuracy"] == pytest.approx(trained.summary["metrics"]["val_accuracy"], abs=1e-6)


def test_all_photographs_of_a_folder_are_evaluated(trained: Any, folder: Path) -> None:
    found = evaluate_run(trained.path, str(folder))
    assert (found.examples, found.left_out) == (150, {})
    x = np.stack([decode(path.read_bytes(), 32, 32) for path in sorted(folder.glob("*/*.jpg"))])
    labels = np.repeat(np.arange(3), 50)
    expected = (rudel.predict(trained.model, x).argmax(axis=1) == labels).mean()
    assert found.metrics["accuracy"] == pytest.approx(expected, abs=1e-6)


def renamed(folder: Path, out: Path, names: dict[str, str]) -> Path:
    for old, new in names.items():
        shutil.copytree(folder / old, out / new)
    return out


def right(trained: Any, files: list[Path], name: str) -> int:
    answers = predict_files(trained.path, sorted(files))
    return sum(one.ranking[0][0] == name for one in answers)


@pytest.mark.parametrize("streamed", ["auto", "true"])
def test_labels_are_matched_by_the_names_of_classes(
    trained: Any, folder: Path, tmp_path: Path, streamed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an order of their own, and some that the model does not know."""
    # "a new one" is sorted before all others, so every label of the folder means another class than in the model
    out = renamed(folder, tmp_path / "photographs", {"disc": "a new one", "frame": "frame", "stripes": "stripes"})
    if streamed == "true":
        monkeypatch.setattr("rudel.data.images.images_dataset._MOST_IN_MEMORY", 0)
    found = evaluate_run(trained.path, str(out))
    assert (found.examples, found.left_out) == (100, {"a new one": 50})
    expected = sum(right(trained, [*(folder / name).iterdir()], name) for name in ("frame", "stripes"))
    assert found.metrics["accuracy"] == pytest.approx(expected / 100, abs=1e-6)
    only = renamed(folder, tmp_path / "only", {"stripes": "stripes"})
    assert evaluate_run(trained.path, str(only)).examples == 50
    unknown = renamed(folder, tmp_path / "unknown", {"stripes": "lines", "disc": "dot"})
    with pytest.raises(DataError, match="unknown has no photograph of a class that the model knows: disc, frame, str"):
        evaluate_run(trained.path, str(unknown))


def test_all_records_are_evaluated_or_those_of_a_split(trained: Any, folder: Path, tmp_path: Path) -> None:
    out = renamed(folder, tmp_path / "photographs", {"disc": "a new one", "frame": "frame", "stripes": "stripes"})
    records = records_of(out, tmp_path / "records", validation=0.3, shards=2)
    counts = [evaluate_run(trained.path, str(records), split=split) for split in ("train", "validation", None)]
    train, validation, both = counts
    assert train.examples + validation.examples == both.examples == 100
    assert train.examples > validation.examples > 0
    assert train.left_out["a new one"] + validation.left_out["a new one"] == both.left_out["a new one"] == 50
    with pytest.raises(DataError, match="no records of the split `test`; it has `train`, `validation`"):
        evaluate_run(trained.path, str(records), split="test")
    for data, words in ((str(folder), "has photographs: leave it out"), (None, "name the folder with `data=`")):
        with pytest.raises(OptionError, match=words):
            evaluate_run(trained.path, data, split="train")


def test_files_that_cannot_be_used_are_counted(trained: Any, folder: Path, tmp_path: Path) -> None:
    out = renamed(folder, tmp_path / "photographs", {"disc": "disc", "frame": "frame"})
    (out / "disc" / "notes.txt").write_text("no photograph")
    found = evaluate_run(trained.path, str(out))
    assert found.examples == 100
    assert any("1 of the files in" in note and "such as disc/notes.txt (not an image)" in note for note in found.notes)


def test_the_cache_holds_photographs_once_whatever_is_held_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    for share in (0.1, 0.3, 0.5):
        found = data(folder, validation=share)
        # the photographs, and their order, that records are split into when they are made
        records = records_of(folder, tmp_path / f"records {share}", validation=share)
        expected = data(records)
        for part, other in ((found.train, expected.train), (found.validation, expected.validation)):
            np.testing.assert_array_equal(part.x, other.x)  # type: ignore[union-attr]
            np.testing.assert_array_equal(part.y, other.y)  # type: ignore[union-attr]
    (kept,) = (tmp_path / "cache" / "photographs").iterdir()
    size = sum(path.stat().st_size for path in kept.glob("*.tfrecord"))
    assert found.notes == (
        f"The photographs are kept as records of {size / 1e6:,.1f} MB in {kept}; see `rudel cache list`.",
    )


def test_the_report_shows_what_the_augmentation_does(trained: Any) -> None:
    assert "Augmentation" in (trained.path / "report.html").read_text()
    with np.load(trained.path / "augmentation.npz") as file:
        assert file["changed"].shape == (3, 6, 32, 32, 3)


def test_weights_that_do_not_fit_leave_nothing_behind(folder: Path, tmp_path: Path) -> None:
    keras = keras_on_jax()
    other = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(3, 3, name="other")])
    other.save(tmp_path / "other.keras")
    options = {"side": 32, "weights": str(tmp_path / "other.keras")}
    with pytest.raises(RecipeError, match="of another network than `compact`: they have no layer `convolution_1`"):
        rudel.train_recipe("images", data=str(folder), options=options, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name",
    ["train-00000-of-00001.tfrecord", "train-00000-of-00001", "train.tfrecords", "my-train.tfrecord-00000-of-00001"],
)
def test_records_of_others_need_neither_labels_nor_a_validation_split(folder: Path, tmp_path: Path, name: str) -> None:
    records = records_of(folder, tmp_path / "records", validation=0)
    (shard,) = records.glob("*.tfrecord")
    shard.rename(records / name)
    (records / "validation_labels.txt").write_text("as beside ImageNet")
    (records / "labels.txt").unlink()
    (records / "dataset.json").unlink()
    dataset = data(records, validation=0.2, streamed="true")
    assert list(dataset.class_names) == ["0", "1", "2"]
    assert dataset.validation is not None
    assert (len(dataset.train), len(dataset.validation)) == (120, 30)
    seen = np.concatenate([part.in_memory().x for part in (dataset.train, dataset.validation)])  # type: ignore[union-attr]
    assert len({picture.tobytes() for picture in seen}) == 150


def test_mistakes_are_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="learns from photographs: give a folder"):
        data(None)
    with pytest.raises(OptionError, match="`side` must be at least 32 pixels, not 8"):
        data(folder, side=8)
    with pytest.raises(DataError, match="nowhere"):
        data(tmp_path / "nowhere")
    records = records_of(folder, tmp_path / "records")
    shard = next(records.glob("train-*.tfrecord"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00000-of-00001\.tfrecord is damaged: the record at byte"):
        data(records)


def test_a_model_that_does_not_fit_the_photographs_is_told(folder: Path) -> None:
    """Even one that would compute something: a convolution takes pictures of any size."""
    keras = keras_on_jax()
    layers = [keras.layers.Conv2D(2, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3, "softmax")]
    model = keras.Sequential([keras.Input((16, 16, 3)), *layers])
    model.compile("sgd", "sparse_categorical_crossentropy")
    for streamed in ("true", "false"):
        with pytest.raises(DataError, match=r"has the shape \(32, 32, 3\), and the model `.*` takes \(16, 16, 3\)"):
            rudel.fit(model, data(folder, streamed=streamed), epochs=1)


def test_a_photograph_that_is_none_is_refused(trained: Any, tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "JPEG")
    (tmp_path / "cut.jpg").write_bytes(file.getvalue()[:300])
    with pytest.raises(DataError, match=r"cut\.jpg"):
        predict_files(trained.path, [tmp_path / "cut.jpg"])


def test_a_run_of_version_0_1_has_the_recipes_former_name(trained: Any, folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "runs" / "signs"
    shutil.copytree(trained.path, old)
    config = json.loads((old / "config.json").read_text())
    assert config["recipe"] == config["identity"]["recipe"] == "images"
    config["recipe"] = config["identity"]["recipe"] = "signs"
    (old / "config.json").write_text(json.dumps(config))
    assert evaluate_run(old).metrics == evaluate_run(trained.path).metrics
    further = QUICK | {"epochs": 4, "data": str(folder), "options": {"side": 32}, "run": old, "resume": True}
    for name in ("images", "signs"):
        assert rudel.train_recipe(name, **further).summary["steps"] == trained.summary["steps"] // 3 * 4
    assert json.loads((old / "config.json").read_text())["recipe"] == "images"
