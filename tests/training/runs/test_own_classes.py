"""Models with classes of the user's: what cannot be opened again is said before the first step."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax
from rudel.errors import ModelError, OptionError, RunError
from rudel.features.masks import SpecAugment

keras = keras_on_jax()
X, Y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)

MODULE = """
import keras

class Twice(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs

def thrice(inputs):
    return 3 * inputs

def own_loss(y, predicted):
    return keras.ops.mean(keras.ops.abs(y - predicted))
"""


def model_of(*layers: Any, loss: Any = "mse") -> Any:
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", loss)
    return model


def fit(model: Any, run: Path) -> Any:
    rudel.fit(model, X, Y, batch_size=4, run=run, verbose=False)
    return rudel.predict(model, X)


def test_a_lambda_is_refused_before_the_first_step(tmp_path: Path) -> None:
    model = model_of(keras.layers.Lambda(lambda x: 2 * x, name="doubling"))
    with pytest.raises(ModelError, match="lambda in its layer `doubling`: make it a function of a module"):
        fit(model, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    rudel.fit(model, X, Y, batch_size=4, verbose=False)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"loss": lambda y, p: keras.ops.mean(y - p)}, "loss"),
        ({"metrics": [lambda y, p: keras.ops.mean(y - p)]}, "metrics"),
        ({"weighted_metrics": [keras.metrics.MeanMetricWrapper(lambda y, p: y)]}, "weighted_metrics"),
    ],
)
def test_a_lambda_that_a_model_is_compiled_with_is_refused(tmp_path: Path, given: Any, place: str) -> None:
    model = model_of()
    model.compile("sgd", **{"loss": "mse"} | given)
    with pytest.raises(ModelError, match=rf"the lambda in its {place}: make it a function of a module; or leave"):
        fit(model, tmp_path / "run")


def test_a_class_that_keras_could_not_make_again_is_refused_before_the_first_step(tmp_path: Path) -> None:
    class Scaled(keras.layers.Layer):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def call(self, inputs: Any) -> Any:
            return self.factor * inputs

    class Plain(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.layer(inputs)

    plain = Plain()
    plain.compile("sgd", "mse")
    for name, model in (("Scaled", model_of(Scaled(2.0))), ("Plain", plain)):
        with pytest.raises(ModelError, match=f"gives its `{name}` `trainable` and `dtype`, .*: let it take"):
            fit(model, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        rudel.fit(model, X, Y, batch_size=4, verbose=False)


def test_a_class_that_cannot_be_imported_is_said_and_can_be_given(tmp_path: Path) -> None:
    class Local(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return 2 * inputs

    run = tmp_path / "run"
    with pytest.warns(
        UserWarning, match=r'rudel.load\(run, custom_objects=\{"Local": Local\}\).*defined in a function'
    ):
        expected = fit(model_of(Local()), run)
    with pytest.raises(RunError, match=r"rudel.load\(run, custom_objects="):
        rudel.load(run)
    np.testing.assert_array_equal(rudel.predict(rudel.load(run, custom_objects={"Local": Local}), X), expected)


def test_classes_and_functions_that_can_be_imported_are_found_by_commands(tmp_path: Path, warm_python: str) -> None:
    """In a process that knows nothing of the folder in which they lie."""
    folder, run = tmp_path / "code", tmp_path / "run"
    folder.mkdir()
    (folder / "mine_for_a_test.py").write_text(MODULE)
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    train = (
        "import warnings; warnings.simplefilter('error', UserWarning)\n"
        "import rudel, keras, numpy as np, mine_for_a_test as mine\n"
        "layers = [mine.Twice(), keras.layers.Lambda(mine.thrice), keras.layers.Dense(1)]\n"
        "model = keras.Sequential([keras.Input((3,)), *layers])\n"
        "model.compile('sgd', mine.own_loss)\n"
        "rudel.fit(model, np.ones((64, 3), 'float32'), np.ones((64, 1), 'float32'), run='../run', verbose=False)\n"
    )
    subprocess.run([warm_python, "-c", train], cwd=folder, check=True)
    rudel_here = Path(warm_python).with_name("rudel")
    for arguments in (["evaluate"], ["export", "--to", "litert"]):
        command = [rudel_here, *arguments, str(run), "--data", "data.npz"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr


@pytest.fixture
def module_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], Any]:
    """Imports `mine_twice` from a new folder, in the place of one that was imported before."""

    def imported_from(folder: Path, source: str) -> Any:
        folder.mkdir(parents=True)
        (folder / "mine_twice.py").write_text(source)
        monkeypatch.setattr(sys, "path", [str(folder), *(place for place in sys.path if place not in made)])
        made.append(str(folder))
        monkeypatch.delitem(sys.modules, "mine_twice", raising=False)
        return importlib.import_module("mine_twice")

    made: list[str] = []
    return imported_from


def test_another_module_of_the_same_name_is_not_taken(tmp_path: Path, module_in: Callable[[Path, str], Any]) -> None:
    mine = module_in(tmp_path / "first", MODULE)
    expected = fit(model_of(mine.Twice()), tmp_path / "run")
    np.testing.assert_array_equal(rudel.predict(rudel.load(tmp_path / "run"), X), expected)
    module_in(tmp_path / "second", MODULE.replace("2 * inputs", "5 * inputs"))
    with pytest.raises(RunError, match=r"another module of that name is imported: rename one"):
        rudel.load(tmp_path / "run")
    loaded = rudel.load(tmp_path / "run", custom_objects={"Twice": mine.Twice})
    np.testing.assert_array_equal(rudel.predict(loaded, X), expected)


def test_a_package_is_taken_from_the_environment_that_opens_the_run(
    tmp_path: Path, module_in: Callable[[Path, str], Any]
) -> None:
    expected = fit(model_of(module_in(tmp_path / "first/site-packages", MODULE).Twice()), tmp_path / "run")
    module_in(tmp_path / "second/site-packages", MODULE)
    np.testing.assert_array_equal(rudel.predict(rudel.load(tmp_path / "run"), X), expected)


def test_a_class_of_rudel_is_taken_from_the_installation_that_opens_the_run(tmp_path: Path) -> None:
    layers = keras.layers.Reshape((1, 3)), SpecAugment(), keras.layers.Flatten()
    expected = fit(model_of(*layers), tmp_path / "run")
    other = tmp_path / "other"
    module = other / "rudel/features/masks.py"
    module.parent.mkdir(parents=True)
    module.touch()
    config = tmp_path / "run/config.json"
    here = str(Path(rudel.__file__).parents[1])
    assert here in config.read_text()
    config.write_text(config.read_text().replace(here, str(other)))
    np.testing.assert_array_equal(rudel.predict(rudel.load(tmp_path / "run"), X), expected)


def test_a_module_that_comes_with_a_run_by_a_relative_path_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(model_of(), tmp_path / "run")
    (tmp_path / "run/brought_along.py").write_text("open('imported', 'w').close()\ndef f(): pass\n")
    config = tmp_path / "run/config.json"
    place = {"module": "brought_along", "name": "f", "folder": "run"}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"own_classes": {"own>f": place}}))
    with pytest.raises(RunError, match=r"names the module `brought_along` in `run`, and Rudel writes absolute paths"):
        rudel.load("run")
    assert not (tmp_path / "imported").exists()


def test_a_module_that_cannot_be_imported_any_more_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine_broken.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("mine_broken")
    expected = fit(model_of(mine.Twice()), tmp_path / "run")
    (tmp_path / "mine_broken.py").write_text("raise ValueError('no such card')")
    monkeypatch.delitem(sys.modules, "mine_broken")
    importlib.invalidate_caches()
    with pytest.raises(RunError, match="cannot be loaded"):
        rudel.load(tmp_path / "run")
    loaded = rudel.load(tmp_path / "run", custom_objects={"Twice": mine.Twice})
    np.testing.assert_array_equal(rudel.predict(loaded, X), expected)
    assert "`Twice` of the module `mine_broken` cannot be imported: ValueError: no such card" in caplog.text


def test_a_class_in_a_script_is_said(tmp_path: Path, warm_python: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        MODULE + "import rudel, numpy as np\n"
        "model = keras.Sequential([keras.Input((3,)), Twice(), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "rudel.fit(model, np.ones((64, 3), 'float32'), np.ones((64, 1), 'float32'), run='run', verbose=False)\n"
        "rudel.load('run', custom_objects={'Twice': Twice})\n"
    )
    done = subprocess.run([warm_python, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "`Twice` (defined in a script or notebook) cannot be imported" in done.stderr


def test_a_run_in_the_home_folder_and_a_run_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    model = model_of()
    fit(model, "~/runs/first")  # pyright: ignore[reportArgumentType]
    assert (tmp_path / "home/runs/first/summary.json").is_file()
    assert rudel.load("~/runs/first").built
    for name in ("", " "):
        with pytest.raises(OptionError, match="The run directory has no name"):
            fit(model, name)  # pyright: ignore[reportArgumentType]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
