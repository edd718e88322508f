"""How the tests compile: fast, as they compile longer than they compute.

Importing this, before JAX, sets what is not set; programs that are started inherit it.
"""

import importlib.metadata
import os

_FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]  # parts of a program make it compile one third longer
if importlib.metadata.version("jaxlib").startswith("0.10."):  # later ones have nothing but emitters
    _FLAGS += ["--xla_cpu_use_fusion_emitters=false"]  # they make a loop compile three times as long

QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": " ".join(_FLAGS)}
"""Variables that leave out most of XLA's optimisations."""

for _name, _value in QUICKLY.items():
    os.environ.setdefault(_name, _value)
