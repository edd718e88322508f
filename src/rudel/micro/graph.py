"""A network as tensors and the operators between them.

Everything is frozen: a pass returns a new graph. Operators are in an order in which they can run; tensors are
referred to by their index, and -1 stands for an optional input that is not given.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Quantisation:
    """The reals that numbers stand for: real = scale * (number - zero point).

    Attributes:
        scale: float32, one for the tensor or one per channel.
        zero_point: int64, as many.
        axis: which dimension the channels are.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int = 0


@dataclass(frozen=True)
class Tensor:
    """An array of the network; `data` is None for those that are computed."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    quantisation: Quantisation | None = None
    data: np.ndarray | None = field(default=None, repr=False, compare=False)
    variable: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements."""
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def scale(self) -> float:
        """The scale of a tensor that has one."""
        assert self.quantisation is not None
        return float(self.quantisation.scale[0])

    @property
    def zero_point(self) -> int:
        """The zero point of a tensor that has one."""
        assert self.quantisation is not None
        return int(self.quantisation.zero_point[0])

    @property
    def quantised(self) -> bool:
        """Whether there is a scale."""
        return self.quantisation is not None


@dataclass(frozen=True)
class Operator:
    """One step of the computation.

    Attributes:
        index: its number in the file, for messages; passes keep it.
        kind: the name in the schema, or one that a pass has made up.
        inputs: indices of tensors; -1 for an optional one that is missing.
        options: by the names of the registry's entry, and what passes add.
        intermediates: tensors that only carry the quantisation of inner values.
    """

    index: int
    kind: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    intermediates: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """The operator in the words of messages."""
        return f"operator {self.index} ({self.kind}, version {self.version})"

    @property
    def title(self) -> str:
        """The operator at the start of a sentence."""
        return f"O{self.label[1:]}"

    def with_options(self, **options: object) -> "Operator":
        """Returns the same operator with some options set."""
        return dataclasses.replace(self, options={**self.options, **options})


@dataclass(frozen=True)
class Graph:
    """A whole network.

    Attributes:
        tensors: all tensors, each at its index.
        inputs: what the caller gives.
        outputs: what the caller gets.
        input_names: what the file's signature calls the inputs; empty without a signature.
        output_names: the same of the outputs.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    def __getitem__(self, index: int) -> Tensor:
        return self.tensors[index]

    def constant(self, index: int) -> np.ndarray | None:
        """Returns the data of a constant tensor, or None for -1 and for computed ones."""
        return None if index < 0 else self.tensors[index].data

    def producer(self, index: int) -> Operator | None:
        """Returns the operator that computes a tensor."""
        return next((operator for operator in self.operators if index in operator.outputs), None)

    def consumers(self, index: int) -> list[Operator]:
        """Returns the operators that read a tensor."""
        return [operator for operator in self.operators if index in operator.inputs]

    def replace(
        self,
        *,
        operators: Iterable[Operator] | None = None,
        tensors: Iterable[Tensor] = (),
        outputs: Iterable[int] | None = None,
    ) -> "Graph":
        """Returns a graph with other operators, and with `tensors` put in at their indices."""
        all_tensors = list(self.tensors)
        for tensor in sorted(tensors, key=lambda tensor: tensor.index):
            if tensor.index == len(all_tensors):
                all_tensors.append(tensor)
            else:
                all_tensors[tensor.index] = tensor
        return dataclasses.replace(
            self,
            tensors=tuple(all_tensors),
            operators=self.operators if operators is None else tuple(operators),
            outputs=self.outputs if outputs is None else tuple(outputs),
        )
