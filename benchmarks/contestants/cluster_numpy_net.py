"""The article's net in NumPy, with Adam: for rivals that start a new process every round, it is there in an instant.

All weights are views of one vector, so that Adam is a dozen passes over memory and nothing is allocated.
"""

from collections.abc import Sequence

import cluster_node as node
import numpy as np

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7


class Net:
    """The net and its optimizer.

    Args:
        part: the job.
        weights: to begin with, in Keras' layout.
    """

    def __init__(self, part: node.Part, weights: Sequence[np.ndarray]) -> None:
        self._random = np.random.default_rng([part.seed, part.rank, 1])
        self._rate, self._taken = part.learning_rate, 0
        shapes = [value.shape for value in weights]
        size = sum(value.size for value in weights)
        self._flat, self._gradient, self._mean, self._square, self._spare = np.zeros((5, size), np.float32)
        self.weights, self._gradients = _views(self._flat, shapes), _views(self._gradient, shapes)
        self.set(weights)

    def set(self, weights: Sequence[np.ndarray]) -> None:
        """Takes over weights; what the optimizer remembers stays."""
        for into, value in zip(self.weights, weights, strict=True):
            into[...] = value

    def step(self, pixels: np.ndarray, labels: np.ndarray) -> None:
        """Learns from a batch: uint8 (N, 784), int64 (N,)."""
        first, first_bias, second, second_bias = self.weights
        x = np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
        hidden = x @ first + first_bias
        kept = (self._random.random(hidden.shape, np.float32) >= node.DROPOUT) & (hidden > 0)
        hidden *= kept * np.float32(1 / (1 - node.DROPOUT))
        outputs = hidden @ second + second_bias
        outputs -= outputs.max(1, keepdims=True)
        np.exp(outputs, out=outputs)
        outputs /= outputs.sum(1, keepdims=True)
        outputs[np.arange(len(labels)), labels] -= 1
        outputs /= len(labels)
        inner = (outputs @ second.T) * (kept * np.float32(1 / (1 - node.DROPOUT)))
        np.matmul(x.T, inner, out=self._gradients[0])
        np.sum(inner, 0, out=self._gradients[1])
        np.matmul(hidden.T, outputs, out=self._gradients[2])
        np.sum(outputs, 0, out=self._gradients[3])
        self._adam()

    def _adam(self) -> None:
        self._taken += 1
        gradient, mean, square, spare = self._gradient, self._mean, self._square, self._spare
        rate = self._rate * np.sqrt(1 - _BETA_2**self._taken) / (1 - _BETA_1**self._taken)
        mean *= np.float32(_BETA_1)
        np.multiply(gradient, np.float32(1 - _BETA_1), out=spare)
        mean += spare
        square *= np.float32(_BETA_2)
        np.multiply(gradient, gradient, out=spare)
        spare *= np.float32(1 - _BETA_2)
        square += spare
        np.sqrt(square, out=spare)
        spare += np.float32(_EPSILON)
        np.divide(mean, spare, out=spare)
        spare *= np.float32(rate)
        self._flat -= spare


def _views(flat: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    views, at = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        views.append(flat[at : at + size].reshape(shape))
        at += size
    return views
