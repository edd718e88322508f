"""Examples that are read when a step needs them, for data that is larger than memory.

A stream knows how many examples there are and gives any of them by index. Nothing more is needed: the order of a
training is a pure function of its seed (`rudel.loop.schedule`), so streamed and in memory, resumed and uninterrupted,
a training sees the same batches.
"""

import zlib
from abc import ABC, abstractmethod

import numpy as np

from rudel.data.dataset import Examples


class Stream(ABC):
    """Examples on disk or elsewhere, read by index.

    A `Dataset` takes a stream wherever it takes `Examples`.
    """

    @abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    @abstractmethod
    def take(self, indices: np.ndarray | slice) -> Examples:
        """The examples at these indices, in this order, in memory.

        Args:
            indices: (n,) integers, or a slice.

        Returns:
            Examples whose arrays have n rows; shapes and dtypes of a row are the same in every call.

        Raises:
            DataError: a record cannot be read; names the file and the place in it.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A short text that is another one if the examples, or what is made of them, are others."""

    def subset(self, indices: np.ndarray) -> "Stream":
        """The examples at these indices alone, in this order, read when they are needed."""
        return Subset(self, indices)

    def in_memory(self) -> Examples:
        """All examples, read at once."""
        return self.take(np.arange(len(self)))


class Subset(Stream):
    """Some examples of a stream, in an order of their own.

    Args:
        stream: the whole.
        indices: which of its examples, (n,) integers.
    """

    def __init__(self, stream: Stream, indices: np.ndarray) -> None:
        self._stream, self._indices = stream, np.asarray(indices)

    def __len__(self) -> int:
        return len(self._indices)

    def take(self, indices: np.ndarray | slice) -> Examples:
        """The examples at these places of the subset."""
        return self._stream.take(self._indices[indices])

    def fingerprint(self) -> str:
        """That of the whole, and of the choice."""
        chosen = zlib.crc32(np.ascontiguousarray(self._indices, np.int64).view(np.uint8).data)
        return f"{self._stream.fingerprint()} {len(self)} {chosen:08x}"
