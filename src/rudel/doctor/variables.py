"""Environment variables that change what Rudel does, and what each of those that are set changes."""

from collections.abc import Mapping
from dataclasses import dataclass

from rudel.cache import jax_cache

_EFFECTS = {
    "KERAS_BACKEND": "Keras runs on that backend; Rudel's compiled loop needs jax",
    "KERAS_HOME": "Keras reads its configuration and keeps downloads there",
    "JAX_PLATFORMS": "JAX computes on that kind of device",
    "CUDA_VISIBLE_DEVICES": "JAX sees only those GPUs",
    "TPU_VISIBLE_CHIPS": "JAX sees only those TPU chips",
    "XLA_FLAGS": "options of the compiler",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "whether JAX takes most of a GPU's memory at once",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "how much of a GPU's memory JAX takes",
    "JAX_NUM_CPU_DEVICES": "number of devices that the processor counts as",
    "JAX_COORDINATOR_ADDRESS": "processes of the strategy `mesh` meet there",
    "JAX_COMPILATION_CACHE_DIR": "compiled programs are kept there",
    "JAX_ENABLE_X64": "arrays may have 64-bit numbers, which is slower",
    "OMP_NUM_THREADS": "threads of some libraries",
    "RUDEL_CACHE": "Rudel's cache is there",
    "RUDEL_SSH_CONFIG": "SSH is configured there, and not in ~/.ssh/config",
    "XDG_CACHE_HOME": "Rudel's cache is below that",
    "SSH_AUTH_SOCK": "an agent has SSH keys",
    "TF_CONFIG": "the strategy `mesh` trains with the processes that it names",
    "SLURM_JOB_ID": "the strategy `mesh` trains with the tasks of that job",
    "OMPI_COMM_WORLD_SIZE": "the strategy `mesh` trains with this number of Open MPI processes",
}

_EFFECTS_WHEN_EMPTY = {"CUDA_VISIBLE_DEVICES": "JAX sees no GPU"}


@dataclass(frozen=True)
class Variable:
    """A variable that is set.

    Args:
        name: of it.
        value: of it; empty where that, too, changes something.
        effect: what it does, in a few words.
    """

    name: str
    value: str
    effect: str


def describe(environment: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variables that are set and change something, those apart that `import rudel` itself sets.

    >>> describe({"JAX_PLATFORMS": "cpu", "HOME": "/root"})
    (Variable(name='JAX_PLATFORMS', value='cpu', effect='JAX computes on that kind of device'),)
    """
    empty = {name: effect for name, effect in _EFFECTS_WHEN_EMPTY.items() if environment.get(name) == ""}
    own = {"KERAS_BACKEND": "jax"} | {option.upper(): str(value) for option, value in jax_cache().items()}
    return tuple(
        Variable(name, environment[name], empty.get(name, effect))
        for name, effect in _EFFECTS.items()
        if name in empty or environment.get(name, "") not in ("", own.get(name))
    )
