"""What every contestant shares: the job it is given, the drawings, and the answer it prints."""

import importlib.metadata
import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.data.dataset import Dataset
from rudel.recipes.load import find_recipe

WARM_UP_STEPS = 64


@dataclass(frozen=True)
class Job:
    """What to train.

    Args:
        data: a folder in Quick, Draw!'s layout.
        classes: what to tell apart.
        net: mlp or cnn.
        steps: optimizer steps, warm-up included.
        batch_size: examples a step.
        seed: of weights, dropout and order; the held-out drawings are the same for every seed.
        steps_per_execution: Keras' setting for its own `fit`.
    """

    data: str
    classes: Sequence[str]
    net: str
    steps: int
    batch_size: int
    seed: int
    steps_per_execution: int = 1

    @property
    def warm_up(self) -> int:
        """Steps to take before the clock starts."""
        return min(WARM_UP_STEPS, self.steps // 2)


def read() -> Job:
    """The job in this program's argument."""
    return Job(**json.loads(sys.argv[1]))


def drawings(job: Job) -> Dataset:
    """The recipe's training and validation drawings, uint8 (N, 28, 28)."""
    recipe = find_recipe("quickdraw")
    return recipe.data(recipe.settings({"classes": tuple(job.classes)}), source=job.data)


def recipe_model(job: Job, dataset: Dataset) -> Any:
    """The recipe's compiled Keras model, which takes drawings as uint8."""
    recipe = find_recipe("quickdraw")
    return recipe.model(recipe.settings({"net": job.net}), dataset=dataset, steps=job.steps)


def as_floats(pixels: np.ndarray) -> np.ndarray:
    """Pixels as float32 in 0..1."""
    return np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)


def answer(packages: Sequence[str], **numbers: Any) -> None:
    """Prints the numbers, the peak of this process' memory, and the versions of packages."""
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps(numbers | {"peak_bytes": peak_bytes(), "versions": versions}))


def leave_out(reason: str) -> None:
    """Prints why this contestant cannot take part."""
    print(json.dumps({"left_out": reason}))


def peak_bytes() -> int:
    """The largest resident memory this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
