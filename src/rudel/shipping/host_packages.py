"""Packages and versions that a host needs for a training on a backend of Keras."""

import importlib.metadata
import platform

from rudel.cluster.versioned_packages import VERSIONED

_DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
}
"""Names under which a package may be installed, where there are several."""

LOADED_BYTES = {"jax": 0.0, "tensorflow": 600e6, "torch": 400e6}
"""Additional memory of a worker in which Keras runs on that backend."""


def versioned(backend: str) -> tuple[str, ...]:
    """Packages whose versions must agree on all hosts; a model that travels as code also needs the same Python."""
    return VERSIONED if backend == "jax" else (*VERSIONED, "python", "keras", backend)


def versions_here(backend: str) -> dict[str, str]:
    """The versions that this computer has; what is missing is left out."""
    found = {name: _version(name) for name in versioned(backend)}
    return {name: version for name, version in found.items() if version}


def installed_version(name: str) -> str | None:
    """The version of a package, under whichever of its names it is installed; None where it is not."""
    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _version(name: str) -> str:
    if name == "python":
        return ".".join(platform.python_version_tuple()[:2])
    return (installed_version(name) or "").partition("+")[0]  # builds for a GPU or a CPU are alike
