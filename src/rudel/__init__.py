"""Rudel trains one Keras 3 model on whatever computers you have and puts it wherever you need it.

`import rudel` before `import keras` makes Keras run on JAX, with compiled programs kept in Rudel's cache folder.
Nothing heavy is imported until it is used.

>>> import rudel, numpy as np
>>> dataset = rudel.Dataset(rudel.Examples(x=np.zeros((1, 28, 28), np.uint8), y=np.array([7])))
>>> len(dataset.train)
1
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from rudel.cache import jax_cache

__version__ = "0.1.0"

os.environ.setdefault("KERAS_BACKEND", "jax")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    for _option, _value in jax_cache().items():
        os.environ.setdefault(_option.upper(), str(_value))

if TYPE_CHECKING:
    from rudel.cluster.ssh_cluster import Cluster
    from rudel.data.dataset import Dataset, Examples, split
    from rudel.data.images.images_dataset import Images
    from rudel.data.records.records import Records
    from rudel.errors import RudelError
    from rudel.export import export
    from rudel.loop.evaluation import evaluate, predict
    from rudel.mesh.hosts.join import join
    from rudel.mesh.mesh_options import Mesh
    from rudel.replicas.asynchronous.async_options import Async
    from rudel.replicas.diloco.diloco_options import Diloco
    from rudel.report import write_report
    from rudel.runs.loading import load
    from rudel.training.fit import fit
    from rudel.training.from_recipe import train_recipe
    from rudel.tuning.tune import tune

__all__ = [
    "Async",
    "Cluster",
    "Dataset",
    "Diloco",
    "Examples",
    "Images",
    "Mesh",
    "Records",
    "RudelError",
    "evaluate",
    "export",
    "fit",
    "join",
    "load",
    "predict",
    "split",
    "train_recipe",
    "tune",
    "write_report",
]

_HOMES = {
    "Async": "rudel.replicas.asynchronous.async_options",
    "Cluster": "rudel.cluster.ssh_cluster",
    "Dataset": "rudel.data.dataset",
    "Diloco": "rudel.replicas.diloco.diloco_options",
    "Examples": "rudel.data.dataset",
    "Images": "rudel.data.images.images_dataset",
    "Mesh": "rudel.mesh.mesh_options",
    "Records": "rudel.data.records.records",
    "RudelError": "rudel.errors",
    "evaluate": "rudel.loop.evaluation",
    "export": "rudel.export",
    "fit": "rudel.training.fit",
    "join": "rudel.mesh.hosts.join",
    "load": "rudel.runs.loading",
    "predict": "rudel.loop.evaluation",
    "split": "rudel.data.dataset",
    "train_recipe": "rudel.training.from_recipe",
    "tune": "rudel.tuning.tune",
    "write_report": "rudel.report",
}


def _note_fork() -> None:
    if "jax" in sys.modules:
        from rudel.internals.jax import note_fork

        note_fork()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_note_fork)


if not TYPE_CHECKING:  # so that type checkers know of a name that is not there

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'rudel' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
