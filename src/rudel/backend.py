"""Keras on JAX: imported once, with its compilation cache switched on.

Keras reads `KERAS_BACKEND` when it is first imported, so every module that needs Keras gets it from here.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from rudel.cache import cache_folder
from rudel.errors import ModelError

_OPTIONAL_IN_KERAS = ("sklearn", "matplotlib", "matplotlib.pyplot")


def keras_on_jax(*, light: bool = False) -> ModuleType:
    """Returns the module `keras`, running on JAX with a persistent compilation cache.

    Args:
        light: keep Keras from importing scikit-learn and matplotlib, which it does for its scikit-learn wrappers and
            its plots. That saves a second and 75 MB; those two features are then missing in this process, so only the
            command line asks for it.

    Raises:
        ModelError: Keras was imported before, on another backend.
    """
    if "keras" not in sys.modules:
        asked = os.environ.setdefault("KERAS_BACKEND", "jax")
        if asked != "jax":
            raise ModelError(f"KERAS_BACKEND is {asked}, and Rudel trains on JAX: set KERAS_BACKEND=jax, or unset it.")
        with _hidden(_OPTIONAL_IN_KERAS if light else ()):
            import keras
    import keras

    if keras.backend.backend() != "jax":
        raise ModelError(
            f"Keras runs on {keras.backend.backend()} here, and Rudel trains on JAX: "
            "set KERAS_BACKEND=jax before Keras is imported, or import rudel first."
        )
    _keep_compiled_programs()
    return keras


def set_seed(seed: int) -> None:
    """Does what `keras.utils.set_random_seed` does, without importing TensorFlow for it."""
    keras = keras_on_jax()
    with without_tensorflow():
        keras.utils.set_random_seed(seed)


@contextlib.contextmanager
def without_tensorflow() -> Iterator[None]:
    """Keeps Keras from importing TensorFlow inside the block, unless somebody has imported it before.

    Where TensorFlow is installed, Keras imports it even on JAX, to seed it or to look whether an object is one of its
    own: seconds and 300 MB for nothing.
    """
    from keras.src.utils.module_utils import tensorflow as lazy

    was_unknown = getattr(lazy, "_available", True) is None
    try:
        with _hidden(("tensorflow",)):
            yield
    finally:
        if was_unknown and "tensorflow" not in sys.modules:
            lazy._available = None


def _keep_compiled_programs() -> None:
    """Points JAX at a compilation cache on disk, unless the user has chosen one."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextlib.contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Makes modules that are not yet imported look as if they were not installed."""
    names = tuple(name for name in names if name not in sys.modules)
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None is Python's own mark for "no such module"
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
