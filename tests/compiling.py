"""How the tests compile: fast, as they compile longer than they compute."""

QUICKLY = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false",  # the emitters make a loop compile three times as long
}
"""Variables that leave out most of XLA's optimisations: to be set before JAX is imported, where they are not set."""
