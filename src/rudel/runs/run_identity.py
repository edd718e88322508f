"""The identity of a run, which must agree to resume it: recipe, options, model, data and their order."""

import contextlib
import hashlib
import re
import weakref
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.backend import backend_name
from rudel.data.dataset import Examples
from rudel.data.records.code import without_numbers
from rudel.data.stream import Stream
from rudel.errors import RunError, option
from rudel.recipes import current_name
from rudel.runs import run_directory
from rudel.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import keras


_Rate = float | None
_rates: "weakref.WeakKeyDictionary[Any, tuple[_Rate, _Rate]]" = weakref.WeakKeyDictionary()
"""By optimizers that were trained with: the rate that they were given, and the one that callbacks have left."""


@contextlib.contextmanager
def rate_remembered(model: "keras.Model") -> Iterator[None]:
    """What callbacks do with a model's learning rate in the block does not make it another model."""
    given = _rates_of(model)[0]
    try:
        yield
    finally:
        _rates[model.optimizer] = given, _rate_of(model)


def _rate_of(model: "keras.Model") -> _Rate:
    """The learning rate of a model's optimizer; None for one of several optimizers, each with a rate of its own."""
    rate = getattr(model.optimizer, "learning_rate", None)
    return None if rate is None else float(rate)


def _rates_of(model: "keras.Model") -> tuple[_Rate, _Rate]:
    """The learning rate that a model was given, and the one that it has."""
    now = _rate_of(model)
    given, left = _rates.get(model.optimizer, (now, now))
    return (given if left == now else now), now


def identity_of(
    model: "keras.Model", train: Examples | Stream, batch_size: int, seed: int, shuffle: bool, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The identity of a training, by name, as config.json holds it."""
    identity = {
        "recipe": name_of(model, about),
        **{f"option {name}": value for name, value in about.get("options", {}).items()},
        "learning rate": about.get("learning_rate"),
        "batch size": batch_size,
        "seed": seed,
        "shuffle": shuffle,
        "precision": model.dtype_policy.name,
        "backend": backend_name(),
        "optimizer": type(model.optimizer).__name__,
        "training data (fingerprint)": fingerprint_of(train),  # before the model, which may depend on it
        "model (fingerprint)": _fingerprint_of_model(model),
    }
    return run_directory.finite(identity)


def name_of(model: "keras.Model", about: Mapping[str, Any]) -> str:
    """The recipe, or the model's name without the number that Keras counts its models by."""
    return about.get("recipe") or re.sub(r"_\d+$", "", model.name)


def check_same(run: RunDirectory, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to resume another training than the one that was begun; the file of a recipe may have moved.

    Raises:
        RunError: names what differs.
    """
    if "recipe" in before:
        before = {**before, "recipe": Path(current_name(before["recipe"])).name}
        now = {**now, "recipe": Path(now["recipe"]).name}
    for name, value in now.items():
        if name in before and before[name] != value:
            raise RunError(
                f"The run {run.shown} was begun with {name} {before[name]!r}, and this is {value!r}: "
                f"resume it as it was begun, or give another directory with {option('run')}."
            )


def _fingerprint_of_model(model: "keras.Model") -> str:
    """A fingerprint of the model and its compilation.

    Names that Keras numbers (`dense_1`) do not count, nor does a learning-rate schedule, which may depend on how long
    the training is to be.
    """
    from rudel.internals.keras import layers_of

    lines = [type(model).__name__]
    for layer in layers_of(model):
        settings = {name: value for name, value in _config_of(layer).items() if not isinstance(value, dict | list)}
        lines += [f"{type(layer).__name__} {settings} {[tuple(w.shape) for w in getattr(layer, 'weights', [])]}"]
    compiled: Any = model.get_compile_config() or {}
    optimizer = (compiled.get("optimizer") or {}).get("config", {})
    if isinstance(optimizer, dict) and isinstance(optimizer.get("learning_rate"), dict):
        optimizer.pop("learning_rate")
    given, now = _rates_of(model)
    text = "\n".join(lines) + repr(compiled).replace(f"'learning_rate': {now!r}", f"'learning_rate': {given!r}")
    return hashlib.sha256(without_numbers(text).encode()).hexdigest()[:16]


def _config_of(layer: "keras.Layer") -> dict[str, Any]:
    try:
        return layer.get_config()
    except NotImplementedError:  # a layer that does not describe itself counts by its weights
        return {}


def fingerprint_of(examples: Examples | Stream) -> str:
    """Shapes, dtypes, and a CRC-32 over the bytes; a stream's own fingerprint."""
    if isinstance(examples, Stream):
        return examples.fingerprint()
    lines = []
    for name, array in examples.named_arrays():
        array = np.asarray(array)
        lines.append(
            f"{name} {array.dtype} {array.shape} {zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)}"
        )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
