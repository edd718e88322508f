"""A compiled model on this computer: the outputs that a board's have to equal, float32 within rounding."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.micro.check import beyond_rounding
from rudel.micro.compiler import Compiled, Port
from rudel.micro.host import HostModel


def host_outputs(compiled: Compiled, inputs: Sequence[bytes]) -> list[bytes]:
    """Runs a model here.

    Args:
        compiled: the model, for any target.
        inputs: each the bytes of all input tensors in order.

    Returns:
        The bytes of all output tensors, for every input.

    Raises:
        CompileError: there is no C compiler, or it refuses the model.
    """
    with tempfile.TemporaryDirectory(prefix="rudel-host-") as folder:
        model = HostModel(compiled, Path(folder))
        outputs = []
        for given in inputs:
            model.reset()
            outputs.append(b"".join(array.tobytes() for array in model(*_arrays(compiled.inputs, given))))
        return outputs


def count_differing(compiled: Compiled, outputs: Sequence[bytes], expected: Sequence[bytes]) -> int:
    """Returns for how many inputs the outputs differ from those expected, float32 by more than rounding may.

    Args:
        compiled: the model.
        outputs: the bytes of all output tensors, for every input.
        expected: the same, as of `host_outputs`.
    """
    ports = compiled.outputs
    return sum(
        any(beyond_rounding(*pair).any() for pair in zip(_arrays(ports, ours), _arrays(ports, theirs), strict=True))
        for ours, theirs in zip(outputs, expected, strict=True)
    )


def _arrays(ports: Sequence[Port], given: bytes) -> list[np.ndarray]:
    arrays, start = [], 0
    for port in ports:
        arrays.append(np.frombuffer(given, port.dtype, port.size, start))
        start += arrays[-1].nbytes
    return arrays
