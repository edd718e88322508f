"""A compiled model on this computer: the outputs that a board's have to equal."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.micro.compiler import Compiled
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
            outputs.append(b"".join(array.tobytes() for array in model(*_arrays(compiled, given))))
        return outputs


def _arrays(compiled: Compiled, given: bytes) -> list[np.ndarray]:
    arrays, start = [], 0
    for port in compiled.inputs:
        arrays.append(np.frombuffer(given, port.dtype, port.size, start))
        start += arrays[-1].nbytes
    return arrays
