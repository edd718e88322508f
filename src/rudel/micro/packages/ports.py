"""Inputs and outputs of a compiled model, as the code around it calls them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rudel.micro.emit import C_TYPES

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled


@dataclass(frozen=True)
class Port:
    """An input or an output.

    Attributes:
        variable: how it is called in code: `input`, `output`; with a number where there are several.
        macro: what its macros in the header start with, such as `SINE_INPUT`.
        type: in C.
        dtype: in NumPy.
        shape: with the batch.
        scale: None where the numbers are real as they are.
        zero_point: 0 where there is no scale.
        in_arena: whether it has a place in the arena, which the macro without an ending names.
    """

    variable: str
    macro: str
    type: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None
    zero_point: int
    in_arena: bool

    @property
    def quantised(self) -> bool:
        """Whether numbers stand for others."""
        return self.scale is not None


def ports(compiled: "Compiled", side: Literal["input", "output"]) -> list[Port]:
    """All inputs, or all outputs, in the order of the parameters of `NAME_invoke`."""
    tensors, indices = (
        (compiled.inputs, compiled.graph.inputs) if side == "input" else (compiled.outputs, compiled.graph.outputs)
    )
    numbers = [""] if len(tensors) == 1 else [str(i) for i in range(len(tensors))]
    return [
        Port(
            variable=side + number,
            macro=f"{compiled.name}_{side}{number}".upper(),
            type=C_TYPES[tensor.dtype],
            dtype=tensor.dtype,
            shape=tuple(tensor.shape),
            scale=tensor.scale,
            zero_point=tensor.zero_point or 0,
            in_arena=index in compiled.memory.offsets,
        )
        for number, tensor, index in zip(numbers, tensors, indices, strict=True)
    ]


def remembers(compiled: "Compiled") -> bool:
    """Whether the model keeps something from one input to the next, which `NAME_reset` makes it forget."""
    return any(tensor.variable for tensor in compiled.graph.tensors)
