"""What rivals share on a node: their part of the job, their share of the drawings, the start, and snapshots.

This runs on the nodes, in the rivals' environment, which has NumPy and no Rudel. A program makes itself ready (imports,
connections, compilation), says so, and begins when it is told to; its clock stops when the last weights are the same
everywhere. Snapshots of the weights are judged afterwards, on the desktop, for all rivals alike.
"""

import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PIXELS, HIDDEN, DROPOUT = 784, (256,), 0.2


@dataclass(frozen=True)
class Part:
    """What a worker has to do.

    Args:
        rank: which worker this is, from 0.
        addresses: of all workers, `host:port`.
        classes: how many there are.
        steps: optimizer steps to take while the clock runs.
        batch_size: examples of a step on this worker.
        learning_rate: of Adam.
        period: steps between two synchronisations, for those that have rounds.
        seed: of weights, dropout and order.
        server: `host:port` on the desktop, for those that have a server.
        hidden: units of the hidden layers.
    """

    rank: int
    addresses: Sequence[str]
    classes: int
    steps: int
    batch_size: int
    learning_rate: float
    period: int
    seed: int
    server: str = ""
    hidden: Sequence[int] = HIDDEN

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self.addresses)


def read() -> Part:
    """The part in this program's argument."""
    return Part(**json.loads(sys.argv[1]))


def share(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """This worker's drawings, uint8 (N, 784), and their classes, int64 (N,)."""
    with np.load(f"share-{part.rank}-of-{part.workers}.npz") as held:
        return held["x"].reshape(-1, PIXELS), held["y"].astype(np.int64)


def initial_weights(classes: int, seed: int, hidden: Sequence[int] = HIDDEN) -> list[np.ndarray]:
    """Glorot's uniform weights and zeros, as Keras begins."""
    random, sizes = np.random.default_rng(seed), (PIXELS, *hidden, classes)
    found: list[np.ndarray] = []
    for shape in itertools.pairwise(sizes):
        bound = np.sqrt(6 / sum(shape))
        found += [random.uniform(-bound, bound, shape).astype(np.float32), np.zeros(shape[1], np.float32)]
    return found


class Batches:
    """Indices of batches, a new permutation when one is used up."""

    def __init__(self, examples: int, part: Part) -> None:
        self._random = np.random.default_rng([part.seed, part.rank])
        self._examples, self._size = examples, part.batch_size
        self._order, self._at = np.empty(0, np.int64), 0

    def next(self) -> np.ndarray:
        """Indices of the next batch, int64 (batch size,)."""
        if self._at + self._size > len(self._order):
            self._order, self._at = self._random.permutation(self._examples), 0
        self._at += self._size
        return self._order[self._at - self._size : self._at]


@dataclass
class Snapshots:
    """Weights at some moments, in Keras' layout: (784, hidden), (hidden,), (hidden, classes), (classes,)."""

    seconds: list[float] = field(default_factory=list)
    weights: list[list[np.ndarray]] = field(default_factory=list)

    def keep(self, seconds: float, weights: Sequence[np.ndarray]) -> None:
        """Keeps a copy."""
        self.seconds.append(seconds)
        self.weights.append([np.array(value, np.float32) for value in weights])

    def save(self, path: str = "snapshots.npz") -> None:
        """Writes them into a file."""
        parts: dict[str, Any] = {f"{i}/{j}": w for i, kept in enumerate(self.weights) for j, w in enumerate(kept)}
        np.savez(Path(path), **parts, seconds=np.array(self.seconds))


def when_told() -> None:
    """Says that this program is ready, and waits for the word to begin."""
    tell("ready")
    if not sys.stdin.readline():
        sys.exit(1)


def tell(event: str, **numbers: Any) -> None:
    """Says something to the desktop."""
    print(json.dumps({"event": event, **numbers}), flush=True)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self._began
