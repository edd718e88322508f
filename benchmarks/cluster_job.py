"""The article's job as the cluster benchmark's desktop knows it: drawings, shares of them, what weights are worth."""

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from contestants.job import Job, drawings

from rudel.data.dataset import Dataset

BATCH_SIZE = 32
SAMPLES, CNN_SAMPLES = 262_144, 327_680
CLASSES = "airplane,alarm clock,apple,banana,bicycle,bird,book,cat,dog,fish,flower,house,rainbow"

_DRAWINGS = 4000  # of each class, as the recipe takes them
_CHUNK = 1024


@dataclass(frozen=True)
class ClusterJob:
    """What is to be learned.

    Args:
        data: a folder in Quick, Draw!'s layout.
        classes: what to tell apart.
        samples: examples that all workers together learn from.
        cnn_samples: the same for the convolutional net, whose steps take so much longer.
    """

    data: Path
    classes: Sequence[str]
    samples: int = SAMPLES
    cnn_samples: int = CNN_SAMPLES

    @cached_property
    def dataset(self) -> Dataset:
        """Training and held-out drawings, the same for everybody."""
        return drawings(Job(str(self.data), self.classes, "mlp", 1, BATCH_SIZE, 0))

    def steps(self, net: str) -> int:
        """Steps of the whole job at the usual batch size."""
        return (self.samples if net == "mlp" else self.cnn_samples) // BATCH_SIZE

    def share(self, rank: int, workers: int) -> bytes:
        """An .npz file with a worker's share of the training drawings, which are in random order: uint8, uint8."""
        held = io.BytesIO()
        train = self.dataset.train
        np.savez(held, x=train.x[rank::workers], y=train.y[rank::workers].astype(np.uint8))
        return held.getvalue()

    def records(self, rank: int, workers: int) -> bytes:
        """The same share as rows of 785 bytes: pixels, class."""
        train = self.dataset.train
        x, y = train.x[rank::workers], train.y[rank::workers].astype(np.uint8)
        return np.concatenate([x.reshape(len(x), -1), y[:, None]], 1).tobytes()

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Quick, Draw!'s files of the classes, cut to the drawings that are used, by name."""
        return {f"drawings/{name}.npy": self._first_drawings(name) for name in self.classes}

    @cached_property
    def content(self) -> str:
        """A fingerprint of the drawings."""
        hashed = hashlib.sha256(json.dumps(list(self.classes)).encode())
        for content in self.files.values():
            hashed.update(content)
        return hashed.hexdigest()

    def accuracy(self, weights: Sequence[np.ndarray]) -> float:
        """The share of the held-out drawings that an MLP with these weights gets right.

        Args:
            weights: as Keras has them: (784, hidden), (hidden,), ..., (hidden, classes), (classes,).
        """
        held_out = self.dataset.validation
        assert held_out
        (first, *_), layers = weights, list(zip(weights[::2], weights[1::2], strict=True))
        right = 0
        for start in range(0, len(held_out), _CHUNK):
            pixels = held_out.x[start : start + _CHUNK].reshape(-1, first.shape[0])
            outputs = np.multiply(pixels, np.float32(1 / 255))
            for number, (kernel, bias) in enumerate(layers):
                outputs = (np.maximum(outputs, 0) if number else outputs) @ kernel + bias
            right += int((outputs.argmax(1) == held_out.y[start : start + _CHUNK]).sum())
        return right / len(held_out)

    def judged(self, snapshots: bytes) -> list[tuple[float, float]]:
        """(seconds, accuracy) of what `contestants/cluster_node.py` has kept."""
        with np.load(io.BytesIO(snapshots)) as held:
            moments = held["seconds"].tolist()
            count = (len(held.files) - 1) // len(moments)  # one has the moments
            kept = [[held[f"{i}/{j}"] for j in range(count)] for i in range(len(moments))]
        return [(seconds, self.accuracy(weights)) for seconds, weights in zip(moments, kept, strict=True)]

    def _first_drawings(self, name: str) -> bytes:
        places = (self.data / "full" / "numpy_bitmap" / f"{name}.npy", self.data / f"{name}.npy")
        path = next(place for place in places if place.is_file())
        held = io.BytesIO()
        np.save(held, np.load(path, mmap_mode="r")[:_DRAWINGS])
        return held.getvalue()
