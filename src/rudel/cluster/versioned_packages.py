"""Packages that have to be alike on all hosts of a training."""

from importlib import metadata

VERSIONED = ("rudel", "jax", "jaxlib", "numpy", "distributed")


def versioned_pins() -> dict[str, str]:
    """Their versions on this computer, which a Python of the user's own on a host has to have, too."""
    return {name: metadata.version(name) for name in VERSIONED}
