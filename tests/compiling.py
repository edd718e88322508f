"""How the tests compile: fast, as they compile longer than they compute.

Importing this, before JAX, sets what is not set; programs that are started inherit it.
"""

import contextlib
import importlib.metadata
import os
from collections.abc import Iterator

_FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]  # parts of a program make it compile one third longer
if importlib.metadata.version("jaxlib").startswith("0.10."):  # later ones have nothing but emitters
    _FLAGS += ["--xla_cpu_use_fusion_emitters=false"]  # they make a loop compile three times as long

_OPTION = "JAX_DISABLE_MOST_OPTIMIZATIONS"
QUICKLY = {_OPTION: "1", "XLA_FLAGS": " ".join(_FLAGS)}
"""Variables that leave out most of XLA's optimisations."""

for _name, _value in QUICKLY.items():
    os.environ.setdefault(_name, _value)

_usual = os.environ[_OPTION]


@contextlib.contextmanager
def optimized() -> Iterator[None]:
    """Lets LLVM optimise what is compiled here, and in what is started here, as it does for users."""
    before = os.environ[_OPTION]
    _switch("0")
    try:
        yield
    finally:
        _switch(before)


def optimize(wanted: bool) -> None:
    """Lets LLVM optimise what is compiled from now on, or no longer."""
    _switch("0" if wanted else _usual)


def _switch(value: str) -> None:
    """Changes the option, and forgets what was compiled before.

    JAX would use it again, and LLVM multiplies and adds in one instruction where it optimises: last bits differ.
    """
    if value == os.environ[_OPTION]:
        return
    import jax

    os.environ[_OPTION] = value
    jax.config.update("jax_disable_most_optimizations", value != "0")
    jax.clear_caches()
