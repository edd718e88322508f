"""Size of the arena that TensorFlow Lite Micro needs for a model.

It is measured where the package `tflite-micro` is installed: the smallest arena in which the model can be set up on
this computer, whose pointers are twice as long as a microcontroller's. Else it is estimated, from above:

- what stays: for every tensor and operator the structures that the interpreter keeps, with the sizes that they have on
  64-bit computers, and for every channel of a convolution or dense layer a multiplier and a shift;
- what comes and goes: intermediate results, placed as its greedy planner does: the largest first, each at the lowest
  place that is free while it is needed.

In both cases room for the scratch buffers that Arm's kernels ask for is counted in, so that the arena is large enough
for these, too.

Sources: TensorFlow Lite Micro, docs/memory_management.md; of CMSIS-NN, the functions
`arm_convolve_wrapper_s8_get_buffer_size`, `arm_depthwise_conv_wrapper_s8_get_buffer_size`,
`arm_avgpool_s8_get_buffer_size` and `arm_svdf_s8_get_buffer_size`.
"""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.errors import ExportError
from rudel.export import process
from rudel.micro.graph import Graph, Operator
from rudel.micro.reader import read_model

_INTERPRETER = 1024
_TENSOR = 24
_PORT = 160
_OPERATOR = 224
_CHANNEL = 8
_LSTM = 1600
_PLANNED = 64
_ALIGNMENT = 16


@dataclass(frozen=True)
class Arena:
    """An arena that is large enough.

    Attributes:
        bytes: its size.
        measured: whether it was measured, and not estimated.
    """

    bytes: int
    measured: bool


def arena_for(model: bytes, path: Path, folder: Path) -> Arena:
    """Size that the arena should have.

    Args:
        model: the bytes of a .tflite file.
        path: where they are.
        folder: for the process that measures.

    Raises:
        CompileError: the model is none that can be read.
    """
    graph = read_model(model)
    if importlib.util.find_spec("tflite_micro") is not None:
        try:
            size = process.run("rudel.export.tflm", {"path": str(path)}, folder, "measuring the arena")
            return Arena(_up(size + _planned(graph) - _planned(graph, with_scratch=False)), measured=True)
        except ExportError:  # it lacks an operator of the model's: that is no reason to export nothing
            pass
    return Arena(estimated(graph), measured=False)


def estimated(graph: Graph) -> int:
    """An upper estimate in bytes."""
    setting_up = _PLANNED * len(graph.tensors)
    stays = _INTERPRETER + _PORT * (len(graph.inputs) + len(graph.outputs)) + _TENSOR * len(graph.tensors)
    for operator in graph.operators:
        channels = [len(q.scale) for i in operator.inputs if i >= 0 and (q := graph[i].quantisation)]
        stays += _OPERATOR + _CHANNEL * max(channels, default=0)
        setting_up = max(setting_up, 4 * sum(channels) + _PLANNED * len(operator.inputs))
        stays += _LSTM if "LSTM" in operator.kind else 0
        stays += 16 * sum(graph[i].quantisation is not None for i in (*operator.inputs, *operator.outputs) if i >= 0)
    stays += sum(_up(tensor.bytes) for tensor in graph.tensors if tensor.variable)
    return _up(stays + max(_planned(graph), setting_up))


def _planned(graph: Graph, with_scratch: bool = True) -> int:
    """Bytes for what comes and goes."""
    last = len(graph.operators)
    first_used, last_used = dict.fromkeys(graph.inputs, 0), dict.fromkeys(graph.inputs, 0)
    buffers: list[tuple[int, int, int]] = []
    for number, operator in enumerate(graph.operators):
        for index in operator.outputs:
            first_used.setdefault(index, number)
            last_used[index] = number
        for index in operator.inputs:
            if index in first_used:
                last_used[index] = number
        if with_scratch and (scratch := _scratch(graph, operator)):
            buffers.append((scratch, number, number))
    last_used |= dict.fromkeys(graph.outputs, last)
    buffers += [(graph[i].bytes, first, last_used[i]) for i, first in first_used.items() if not graph[i].variable]
    return _greedy(buffers)


def _greedy(buffers: Sequence[tuple[int, int, int]]) -> int:
    """Height of a pile of buffers (bytes, first, last), the largest placed first, each as low as it can be.

    >>> _greedy([(64, 0, 1), (32, 1, 2), (64, 2, 3)])
    96
    """
    placed: list[tuple[int, int, int, int]] = []
    for size, first, last in sorted(buffers, key=lambda buffer: -buffer[0]):
        size = _up(size)
        start = 0
        for other, end, began, ended in sorted(placed):
            if began <= last and first <= ended:
                if start + size <= other:
                    break
                start = max(start, end)
        placed.append((start, start + size, first, last))
    return max((end for _, end, _, _ in placed), default=0)


def _scratch(graph: Graph, operator: Operator) -> int:
    """Bytes that Arm's kernel for an operator may ask for, from above; and what an LSTM needs for its gates."""
    inputs, outputs = ([graph[i] for i in side if i >= 0] for side in (operator.inputs, operator.outputs))
    if operator.kind == "CONV_2D":
        return 4 * math.prod(inputs[1].shape[1:]) + 16
    if operator.kind == "DEPTHWISE_CONV_2D":
        return 2 * math.prod(inputs[1].shape[1:]) + 16
    if operator.kind == "TRANSPOSE_CONV":
        return 4 * math.prod(outputs[0].shape) + 8 * inputs[1].shape[-1]
    if operator.kind == "FULLY_CONNECTED":
        return 4 * inputs[1].shape[0]
    if operator.kind == "AVERAGE_POOL_2D":
        return 4 * inputs[0].shape[-1]
    if operator.kind == "MEAN":
        return 4 * math.prod(outputs[0].shape)
    if operator.kind == "SVDF":
        return 4 * (inputs[1].shape[0] + outputs[0].size)
    if "LSTM" in operator.kind:
        return 4 * 4 * inputs[0].shape[0] * inputs[1].shape[0] + 4 * _ALIGNMENT
    return 0


def _up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
