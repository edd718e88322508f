"""Nets for photographs, and weights of files put into them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.errors import DataError, OptionError, RecipeError
from rudel.recipes import images

keras = keras_on_jax()
X = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype="uint8")


def dataset(classes: int) -> rudel.Dataset:
    return rudel.Dataset(rudel.Examples(X, np.arange(4) % classes), class_names=[f"sign {i}" for i in range(classes)])


def made(classes: int = 3, seed: int = 0, **options: Any) -> Any:
    set_seed(seed)
    return images.model(dataset(classes), side=32, **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    made(seed=1).save(path)
    return path


@pytest.mark.parametrize(("net", "weights"), [("compact", 218_027), ("mobilenet", 2_261_827), ("resnet", 23_570_947)])
def test_the_nets_take_photographs_of_any_side(net: Any, weights: int) -> None:
    model = made(net=net)
    assert model.count_params() == weights
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))
    assert images.model(dataset(3), side=48, net="compact").input_shape == (None, 48, 48, 3)


def test_photographs_are_scaled_inside_the_model() -> None:
    model = made()
    scaled = keras.Model(model.input, model.get_layer("from_minus_1_to_1").output)
    extremes = np.array([0, 255], np.uint8)[:, None, None, None] * np.ones((1, 32, 32, 3), np.uint8)
    np.testing.assert_allclose(np.asarray(scaled(extremes))[:, 0, 0, 0], [-1, 1], atol=1e-6)


def test_a_model_goes_on_with_all_its_weights_where_the_classes_are_the_same(saved: Path) -> None:
    model, read = made(weights=str(saved)), keras.saving.load_model(saved, compile=False)
    np.testing.assert_array_equal(model.predict(X, verbose=0), read.predict(X, verbose=0))
    assert all(layer.trainable for layer in model.layers)


def test_the_head_is_new_where_the_classes_differ(saved: Path, tmp_path: Path) -> None:
    first = made(seed=1)
    model = made(classes=5, weights=str(saved), freeze=True)
    assert model.output_shape == (None, 5)
    kernel = model.get_layer("convolution_3").get_weights()[0]
    np.testing.assert_array_equal(kernel, first.get_layer("convolution_3").get_weights()[0])
    assert [variable.path for variable in model.trainable_variables] == ["classes/kernel", "classes/bias"]
    (tmp_path / "model.keras").write_bytes(saved.read_bytes())
    (tmp_path / "config.json").write_text('{"class_names": ["other", "names", "there"]}')
    other = made(weights=str(tmp_path / "model.keras"))
    assert not np.array_equal(other.get_layer("classes").get_weights()[0], first.get_layer("classes").get_weights()[0])


def test_weights_alone_are_read_too(tmp_path: Path) -> None:
    first = made(seed=1)
    first.save_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(
        made(weights=str(tmp_path / "a.weights.h5")).predict(X, verbose=0), first.predict(X, verbose=0)
    )
    model = made(classes=2, weights=str(tmp_path / "a.weights.h5"))
    assert model.output_shape == (None, 2)
    kernels = [m.get_layer("convolution_6").get_weights()[0] for m in (model, first)]
    np.testing.assert_array_equal(*kernels)


def test_weights_that_keras_publishes_fit_by_name(tmp_path: Path) -> None:
    """As the files for MobileNetV2 and ResNet50V2 without their tops are."""
    from keras.src.legacy.saving import legacy_h5_format

    body = keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(32, 32, 3))
    import h5py

    with h5py.File(tmp_path / "mobilenet.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, body)
    model = made(net="mobilenet", weights=str(tmp_path / "mobilenet.h5"))
    for name in ("Conv1", "Conv_1", "block_7_depthwise"):
        np.testing.assert_array_equal(model.get_layer(name).get_weights()[0], body.get_layer(name).get_weights()[0])


def test_weights_that_do_not_fit_are_refused_in_a_sentence(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"of another network than `mobilenet`: they have no layer `Conv1`"):
        made(net="mobilenet", weights=str(saved))
    inputs = keras.Input((32, 32, 3))
    odd = keras.layers.Conv2D(7, 5, strides=2, use_bias=False, name="convolution_1")(inputs)
    keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(odd)).save(tmp_path / "odd.keras")
    message = r"its layer `convolution_1` takes 5 x 5 x 3 x 24, and the file has 5 x 5 x 3 x 7"
    with pytest.raises(RecipeError, match=message):
        made(weights=str(tmp_path / "odd.keras"))
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).save_weights(tmp_path / "dense.weights.h5")
    with pytest.raises(RecipeError, match="do not fit the network `compact`"):
        made(weights=str(tmp_path / "dense.weights.h5"))


def test_files_that_hold_no_weights_are_refused_in_a_sentence(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file of weights"):
        made(weights=str(tmp_path / "none.keras"))
    (tmp_path / "text.txt").write_text("weights")
    with pytest.raises(DataError, match=r"give a \.keras"):
        made(weights=str(tmp_path / "text.txt"))
    (tmp_path / "cut.keras").write_bytes(saved.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot be read as weights"):
        made(weights=str(tmp_path / "cut.keras"))
    with pytest.raises(OptionError, match="name one with `options="):
        made(freeze=True)
