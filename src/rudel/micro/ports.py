"""Inputs and outputs of a compiled model: what they are, and what C and the code around it call them.

The parameters of `NAME_invoke` are in the order of the `.tflite` file's signature, which also names them. Without a
signature they are in the order of the file, have the names of their tensors, and are numbered in C.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from rudel.micro.emit import C_TYPES
from rudel.micro.graph import Graph, Tensor
from rudel.micro.memory import Memory
from rudel.micro.names import identifier

Side = Literal["input", "output"]


@dataclass(frozen=True)
class Port:
    """An input or output of a compiled model.

    Attributes:
        name: in the signature, or of the tensor; any text.
        shape: with the batch.
        dtype: in NumPy.
        scale: None where the numbers are real as they are.
        zero_point: None where there is no scale.
        variable: the parameter in C: `input`, `output`; `input_NAME` where there are several.
        macro: what its macros in the header start with, such as `SINE_INPUT`; numbered where there are several.
        in_arena: whether it has a place in the arena, which the macro without an ending names.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float | None
    zero_point: int | None
    variable: str
    macro: str
    in_arena: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def type(self) -> str:
        """The type of an element in C."""
        return C_TYPES[self.dtype]

    @property
    def quantised(self) -> bool:
        """Whether numbers stand for others."""
        return self.scale is not None

    @property
    def described(self) -> str:
        """Name, dtype and shape in a form that can stand in any comment."""
        name = re.sub(r"[^\w .:;,()\[\]/-]", "?", self.name, flags=re.ASCII)
        return f"{name}, {self.dtype} {list(self.shape)}"


def ports_of(name: str, graph: Graph, memory: Memory, side: Side) -> tuple[Port, ...]:
    """Returns all inputs, or all outputs, in the order of the parameters of `NAME_invoke`.

    Args:
        name: what names in the model's C begin with.
        graph: what was compiled, after all passes.
        memory: where tensors lie in the arena.
        side: which of them.
    """
    indices, names = (graph.inputs, graph.input_names) if side == "input" else (graph.outputs, graph.output_names)
    variables = _variables(name, side, len(indices), names)
    return tuple(
        _port(
            graph[index],
            names[number] if names else graph[index].name,
            variables[number],
            f"{name}_{side}{number if len(indices) > 1 else ''}".upper(),
            index in memory.offsets,
        )
        for number, index in enumerate(indices)
    )


def _port(tensor: Tensor, name: str, variable: str, macro: str, in_arena: bool) -> Port:
    quantisation = tensor.quantisation
    if quantisation is None or len(quantisation.scale) != 1 or tensor.dtype == "float32":
        return Port(name, tensor.shape, tensor.dtype, None, None, variable, macro, in_arena)
    return Port(name, tensor.shape, tensor.dtype, tensor.scale, tensor.zero_point, variable, macro, in_arena)


def _variables(model: str, side: Side, count: int, names: tuple[str, ...]) -> list[str]:
    """Returns parameters: named as in the signature where that makes names that differ from all others in the C."""
    if count == 1:
        return [side]
    named = [f"{side}_{identifier(name)}" for name in names]
    if len(set(named)) < count or any(len(one) > 60 or one.startswith(f"{model}_") for one in named):
        return [f"{side}{number}" for number in range(count)]
    return named
