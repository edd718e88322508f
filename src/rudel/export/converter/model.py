"""The model, as this process sees it: on TensorFlow, and computing in float32, whatever it was trained in."""

import contextlib
import importlib
import sys
from typing import Any

import keras

from rudel.errors import ExportError, RecipeError
from rudel.internals.keras import declare_dtype, layers_of
from rudel.runs.own_classes import imported


def load(job: dict[str, Any]) -> keras.Model:
    """Reads a `.keras` file with the layers that its recipe, or modules of the user's, define.

    Raises:
        ExportError: the model uses layers that cannot be had here.
    """
    sys.path += [folder for folder in job["search"] if folder not in sys.path]
    for name in job["modules"]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if job["recipe"]:
        from rudel.recipes.load import find_recipe

        with contextlib.suppress(RecipeError):
            find_recipe(job["recipe"])
    keras.utils.set_random_seed(0)  # what the file does not hold, such as the states of some random generators
    if job["unsafe"]:
        keras.config.enable_unsafe_deserialization()
    try:
        with imported(job["own_classes"]) as found:
            model: Any = keras.models.load_model(job["model"], custom_objects=found, compile=False)
    except Exception as error:
        raise ExportError(
            f"The model {job['model']} cannot be read on TensorFlow, which converts it: {sentence_of(error)} Layers of "
            "your own have to compute with keras.ops, not with jax.numpy, and to be registered by "
            "@keras.saving.register_keras_serializable() in the recipe or in a module of their own."
        ) from error
    for layer in layers_of(model):
        if layer.compute_dtype != "float32" and layer.compute_dtype.endswith("float16"):
            layer.dtype_policy = "float32"
        if isinstance(layer, keras.layers.InputLayer) and layer.dtype.endswith("float16"):
            declare_dtype(layer, "float32")
    return model


def sentence_of(error: BaseException) -> str:
    """The message of an exception, in one line that ends in a full stop."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Exception encountered", "Arguments received"))]
    text = (lines[0] if lines else "").replace("\x1b[1m", "").replace("\x1b[0m", "")[:300]
    return f"{type(error).__name__}{': ' if text else ''}{text.rstrip('.')}."
