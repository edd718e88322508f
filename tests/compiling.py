"""How the tests compile: fast, as they compile longer than they compute.

Importing this, before JAX, sets what is not set; programs that are started inherit it.
"""

import importlib.metadata
import os

# The emitters make a loop compile three times as long; later versions have nothing else. Parts, one third longer.
_WITHOUT_EMITTERS = "--xla_cpu_use_fusion_emitters=false " * importlib.metadata.version("jaxlib").startswith("0.10.")

QUICKLY = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": f"{_WITHOUT_EMITTERS}--xla_cpu_parallel_codegen_split_count=1",
}
"""Variables that leave out most of XLA's optimisations."""

for _name, _value in QUICKLY.items():
    os.environ.setdefault(_name, _value)
