"""The starting point for a recipe of one's own: a file that trains as it is."""

import os
from pathlib import Path

from rudel.errors import OptionError, RecipeError

_TEMPLATE = '''"""{title}: two noisy half moons told apart by a small neural network."""

import rudel  # before keras, which it sets up to compute with JAX
import keras
import numpy as np

training = {{"epochs": 30, "batch_size": 32}}


def data(examples: int = 2000, noise: float = 0.2, seed: int = 0) -> rudel.Dataset:
    """Makes the examples; put the reading of your own here.

    Args:
        examples: how many.
        noise: standard deviation of the points around their moon.
        seed: of the noise.
    """
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, examples)
    angle = random.uniform(0, np.pi, examples)
    moon = np.stack([np.cos(angle) + label, np.sin(angle) * (1 - 2 * label) + label / 2], axis=1)
    x = (moon + random.normal(0, noise, moon.shape)).astype("float32")
    train, validation = rudel.split(rudel.Examples(x, label.astype("int32")), 0.2, seed)
    return rudel.Dataset(train, validation, class_names=["upper", "lower"])


def model(dataset: rudel.Dataset, hidden: int = 32, learning_rate: float = 1e-2) -> keras.Model:
    """Makes and compiles the model.

    Args:
        dataset: what `data` returned.
        hidden: units of each hidden layer.
        learning_rate: of Adam.
    """
    net = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(len(dataset.class_names), activation="softmax"),
        ]
    )
    net.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net
'''


def write_template(name: str, folder: Path | None = None) -> Path:
    """Writes `NAME.py`.

    Args:
        name: a Python identifier, with or without `.py`.
        folder: where; the current one by default.

    Raises:
        OptionError: the name cannot be that of a module.
        RecipeError: the file is there already, or cannot be written.
    """
    stem = name.removesuffix(".py")
    if not stem.isidentifier():
        raise OptionError(f"A recipe is a Python file, so its name must be a Python identifier, not {name!r}.")
    path = (folder or Path()) / f"{stem}.py"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w", encoding="utf-8") as file:
            file.write(_TEMPLATE.format(title=stem.replace("_", " ").capitalize()))
    except FileExistsError as error:
        raise RecipeError(f"{path} already exists: give another name.") from error
    except OSError as error:
        raise RecipeError(f"{path} cannot be written: {error.strerror}.") from error
    return path
