"""Keras, imported once: on JAX with its compilation cache switched on, or on the backend that the user has chosen.

Keras reads `KERAS_BACKEND` when it is first imported, so every module that needs Keras gets it from here.
"""

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

from rudel.cache import drop_old_programs, jax_cache
from rudel.cores import fit_threads_to_quota
from rudel.errors import ModelError

BACKENDS = ("jax", "tensorflow", "torch")
"""Backends of Keras on which Rudel can train; each has the name of its package."""

_OPTIONAL_IN_KERAS = ("sklearn", "matplotlib", "matplotlib.pyplot", "pandas")


def backend_name() -> str:
    """Keras' backend in this process; before Keras is imported, the one that it will have."""
    if "keras" in sys.modules:
        return sys.modules["keras"].backend.backend()
    return os.environ.setdefault("KERAS_BACKEND", "jax")


def keras_here(*, light: bool = False) -> ModuleType:
    """Returns the module `keras`, on the backend that it has in this process.

    Args:
        light: keep Keras from importing scikit-learn, matplotlib and pandas, which it does for its scikit-learn
            wrappers, its plots, and tables as data of its own `fit`. That saves more than a second and 100 MB; these
            features are then missing in this process, so only the command line and hosts ask for it.

    Raises:
        ModelError: it is a backend on which Rudel cannot train, or is not installed.
    """
    name = backend_name()
    if name not in BACKENDS:
        raise ModelError(f"KERAS_BACKEND is {name}, on which Rudel cannot train: set KERAS_BACKEND=jax, or unset it.")
    if "keras" not in sys.modules:
        if name == "tensorflow":
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it greets at length
        with hidden(_OPTIONAL_IN_KERAS if light else ()):
            try:
                import keras
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
                raise ModelError(
                    f"KERAS_BACKEND is {name}, which is not installed: pip install {name}, or unset KERAS_BACKEND."
                ) from error
    import keras

    if name == "jax":
        fit_threads_to_quota()
        _keep_compiled_programs()
    else:
        _leave_accelerators()
    return keras


def keras_on_jax(*, light: bool = False) -> ModuleType:
    """Returns the module `keras`, running on JAX with a persistent compilation cache.

    Args:
        light: see `keras_here`.

    Raises:
        ModelError: Keras runs on another backend, or shall.
    """
    name = backend_name()
    if name != "jax" and "keras" not in sys.modules:
        raise ModelError(f"KERAS_BACKEND is {name}, and this needs JAX: set KERAS_BACKEND=jax, or unset it.")
    if name != "jax":
        raise ModelError(
            f"Keras runs on {name} here, and this needs JAX: set KERAS_BACKEND=jax before Keras is imported, or import "
            "rudel first."
        )
    return keras_here(light=light)


def set_seed(seed: int) -> None:
    """Does what `keras.utils.set_random_seed` does, without importing TensorFlow for it."""
    keras = keras_here()
    with without_tensorflow():
        keras.utils.set_random_seed(int(seed))


@contextlib.contextmanager
def without_tensorflow() -> Iterator[None]:
    """Keeps Keras from importing TensorFlow inside the block, unless somebody has imported it before.

    Where TensorFlow is installed, Keras imports it even on JAX, to seed it or to look whether an object is one of its
    own: seconds and 300 MB for nothing.
    """
    from rudel.internals.keras import forget_missing_tensorflow

    with forget_missing_tensorflow(), hidden(("tensorflow",)):
        yield


@contextlib.contextmanager
def reading_a_model() -> Iterator[None]:
    """Inside the block, Keras reads a model without importing TensorFlow, or drawing weights that the file sets."""
    if backend_name() == "jax":
        from rudel.internals.keras_jax import drawn_if_left as weights
    else:
        weights = contextlib.nullcontext
    with without_tensorflow(), weights():
        yield


_drop_old_programs_once = functools.cache(drop_old_programs)
"""Every call of `rudel.fit` and `rudel.predict` comes by; a process need not look each time."""


def _keep_compiled_programs() -> None:
    """Points JAX at a compilation cache on disk, unless the user has chosen one; programs there are few and whole."""
    import jax

    from rudel.internals.jax import keep_programs_whole
    from rudel.internals.keras_jax import share_programs

    keep_programs_whole()
    share_programs()
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        for option, value in jax_cache().items():
            jax.config.update(option, value)
    _drop_old_programs_once()


def _leave_accelerators() -> None:
    """Leaves GPUs to Keras' own backend: what little Rudel computes by JAX beside it is done on the CPU."""
    import jax

    if getattr(jax.config, "jax_platforms", None) is None:
        jax.config.update("jax_platforms", "cpu")


class _Hiding(threading.local):
    """Finds modules that are hidden from the calling thread, and does not load them; see `hidden`."""

    names: tuple[str, ...] = ()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Finds a hidden module before others do; whether it is installed can still be asked."""
        return ModuleSpec(name, self) if name in self.names else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Fails as the import of a module that is not installed."""
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Is part of a loader; there is no module to execute."""


_hiding = _Hiding()


@contextlib.contextmanager
def hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Makes modules that are not yet imported look to this thread as if they were not installed."""
    if _hiding not in sys.meta_path:
        sys.meta_path.insert(0, _hiding)  # type: ignore[arg-type]
    before = _hiding.names
    _hiding.names = before + names
    try:
        yield
    finally:
        _hiding.names = before
