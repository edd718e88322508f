"""Checks of the tensors of operators; each raises one sentence."""

import contextlib
from collections.abc import Iterator

import numpy as np

from rudel.errors import CompileError
from rudel.micro.arithmetic import ScalesError
from rudel.micro.graph import Graph, Operator, Tensor


def require(holds: bool, operator: Operator, problem: str) -> None:
    """Raises:
    CompileError: `holds` is false; the sentence names the operator and says `problem`.
    """
    if not holds:
        raise CompileError(f"{operator.title} cannot be compiled: {problem}.")


@contextlib.contextmanager
def scales_checked(operator: Operator) -> Iterator[None]:
    """Names the operator in an error about its scales that is raised in the block.

    Raises:
        CompileError: in the place of a `ScalesError`.
    """
    try:
        yield
    except ScalesError as error:
        raise CompileError(f"{operator.title} cannot be compiled: {error}.") from error


def unsupported(operator: Operator, what: str) -> CompileError:
    """Returns the error for something that an operator has and the compiler does not know."""
    return CompileError(f"{operator.title} cannot be compiled: {what} is not supported.")


def arity(operator: Operator, least: int, most: int | None = None) -> None:
    """Checks how many inputs there are, the first `least` of them given, and that there is one output."""
    count = len(operator.inputs)
    require(
        least <= count <= (most or least) and min(operator.inputs[:least], default=0) >= 0,
        operator,
        f"it has {count} inputs",
    )
    require(len(operator.outputs) == 1, operator, f"it has {len(operator.outputs)} outputs")


def quantised_int8(tensor: Tensor, operator: Operator) -> None:
    """Checks that a tensor is int8 with one scale."""
    require(
        tensor.dtype != "float32",
        operator,
        "it computes in float32, and only in int8 is there code for it; export the model by `rudel export RUN --to "
        "litert-int8`, or use another layer",
    )
    require(tensor.dtype == "int8", operator, f"`{tensor.name[:60]}` has type {tensor.dtype}, not int8")
    require(tensor.quantised, operator, f"`{tensor.name[:60]}` has no quantisation")
    assert tensor.quantisation is not None
    require(len(tensor.quantisation.scale) == 1, operator, f"`{tensor.name[:60]}` is quantised per channel")
    require(-128 <= tensor.zero_point <= 127, operator, f"`{tensor.name[:60]}` has zero point {tensor.zero_point}")


def quantised_int16(tensor: Tensor, operator: Operator, *, symmetric: bool = True) -> None:
    """Checks that a tensor is int16 with one scale, and with the zero point 0 where that is `symmetric`."""
    require(tensor.dtype == "int16", operator, f"`{tensor.name[:60]}` has type {tensor.dtype}, not int16")
    require(tensor.quantised, operator, f"`{tensor.name[:60]}` has no quantisation")
    assert tensor.quantisation is not None
    require(len(tensor.quantisation.scale) == 1, operator, f"`{tensor.name[:60]}` is quantised per channel")
    require(
        tensor.zero_point == 0 if symmetric else -32768 <= tensor.zero_point <= 32767,
        operator,
        f"`{tensor.name[:60]}` is int16 with zero point {tensor.zero_point}"
        + (", not 0, as 16x8 quantisation has it" if symmetric else ""),
    )


def quantised_activations(operator: Operator, *tensors: Tensor) -> None:
    """Checks that tensors are all int8 with one scale, or all int16 with one scale and zero point 0."""
    check = quantised_int16 if tensors[0].dtype == "int16" else quantised_int8
    for tensor in tensors:
        check(tensor, operator)


def bounds_of(tensor: Tensor) -> tuple[int, int]:
    """Returns the least and the greatest integer of a tensor's type."""
    info = np.iinfo(tensor.dtype)
    return int(info.min), int(info.max)


def constant(operator: Operator, graph: Graph, position: int, name: str) -> np.ndarray:
    """Returns a constant input.

    Raises:
        CompileError: it is missing or computed.
    """
    data = graph.constant(operator.inputs[position]) if position < len(operator.inputs) else None
    require(data is not None, operator, f"its {name} are not constant")
    assert data is not None
    return data


def integers(operator: Operator, graph: Graph, position: int, name: str) -> list[int]:
    """Returns a constant input of whole numbers as a list."""
    data = constant(operator, graph, position, name)
    require(data.dtype in (np.int32, np.int64) and data.size <= 64, operator, f"its {name} are not a few integers")
    return [int(value) for value in data.ravel()]


def same_shape(first: Tensor, second: Tensor, operator: Operator) -> None:
    """Checks that two tensors have one shape."""
    require(
        first.shape == second.shape,
        operator,
        f"the shapes {list(first.shape)} and {list(second.shape)} of its tensors do not fit",
    )
