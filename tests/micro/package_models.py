"""Models for the tests of packages, and the programs that these tests need."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from micro_support.models import Op, T, build
from missing import skip_or_fail


def dense(inputs: int, outputs: int, seed: int = 0, *, integers: bool = True) -> bytes:
    """A model of one fully connected layer, in int8 or float32."""
    random = np.random.default_rng(seed)
    weights = random.integers(-127, 128, (outputs, inputs))
    bias = random.integers(-500, 500, outputs)
    options: dict[str, Any] = {}
    if integers:
        tensors = [
            T((1, inputs), "int8", 0.02, 3),
            T((outputs, inputs), "int8", 0.01, 0, data=weights),
            T((outputs,), "int32", 0.0002, 0, data=bias),
            T((1, outputs), "int8", 0.05, -7),
        ]
    else:
        tensors = [
            T((1, inputs), "float32"),
            T((outputs, inputs), "float32", data=weights / 100),
            T((outputs,), "float32", data=bias / 100),
            T((1, outputs), "float32"),
        ]
    return build(tensors, [Op("FULLY_CONNECTED", (0, 1, 2), (3,), options)], [0], [3])


def softmax_of_floats(size: int) -> bytes:
    """A model in float32 whose C needs `expf`."""
    operators = [Op("SOFTMAX", (0,), (1,), {"beta": 1.0})]
    return build([T((1, size), "float32"), T((1, size), "float32")], operators, [0], [1])


def lstm() -> bytes:
    """A classifier of three classes: an LSTM of 4 cells over 6 steps, a dense layer and a softmax, in int8."""
    random = np.random.default_rng(0)
    steps, length, cells, classes = 6, 5, 4, 3
    hidden = {"scale": 1 / 128, "zero_point": 5}

    def weights(rows: int, columns: int) -> T:
        return T((rows, columns), scale=0.01, data=random.integers(-127, 128, (rows, columns)))

    def biases(count: int) -> T:
        return T((count,), "int32", scale=0.0005, data=random.integers(-3000, 3000, count))

    tensors = [
        T((1, steps, length), scale=0.05, zero_point=3),
        *(weights(cells, length) for _ in range(4)),
        *(weights(cells, cells) for _ in range(4)),
        *(biases(cells) for _ in range(4)),
        T((1, cells), **hidden, variable=True),
        T((1, cells), "int16", scale=2**-11, variable=True),
        T((1, steps, cells), **hidden),
        *(T((0,), "int16", scale=2**-12) for _ in range(4)),
        T((0,), **hidden),
        T((2,), "int32", data=np.array([1, steps * cells])),
        T((1, steps * cells), **hidden),
        weights(classes, steps * cells),
        T((1, classes), scale=0.05),
        T((1, classes), scale=1 / 256, zero_point=-128),
    ]
    inputs = (*range(9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1)
    options = {"activation": "TANH"}
    operators = [
        Op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (15,), options, intermediates=(16, 17, 18, 19, 20)),
        Op("RESHAPE", (15, 21), (22,)),
        Op("FULLY_CONNECTED", (22, 23, -1), (24,), {"activation": "NONE"}),
        Op("SOFTMAX", (24,), (25,), {"beta": 1.0}),
    ]
    return build(tensors, operators, [0], [25])


def sum_of_two() -> bytes:
    """A model of two inputs, whose outputs are their sum and the first of them times the second."""
    tensors = [
        T((1, 4), "int8", 0.02, 3),
        T((1, 4), "int8", 0.03, -5),
        T((1, 4), "int8", 0.05, 1),
        T((1, 4), "int8", 0.04, 0),
    ]
    options: dict[str, Any] = {}
    operators = [Op("ADD", (0, 1), (2,), options), Op("MUL", (0, 1), (3,), options)]
    return build(tensors, operators, [0, 1], [2, 3])


def three_of_one_shape() -> bytes:
    """A model of (query, doc, ctx) -> (zz, aa) = (query - doc, doc * ctx), in another order than its signature."""
    tensors = [T((1, 4), "int8", 0.1), T((1, 4), "int8", 0.1), T((1, 4), "int8", 0.1), T((1, 4)), T((1, 4))]
    tensors[3:] = [T((1, 4), "int8", 0.2, 5), T((1, 4), "int8", 0.5, -3)]
    operators = [Op("MUL", (1, 0), (4,), {"activation": "NONE"}), Op("SUB", (2, 1), (3,), {"activation": "NONE"})]
    signature = {"query": 2, "doc": 1, "ctx": 0}, {"zz": 3, "aa": 4}
    return build(tensors, operators, [0, 1, 2], [4, 3], signature)


def tool(name: str, package: str) -> str:
    """The path of a program; without it the test is skipped on a user's machine, and fails where `CI` is set."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ["PATH"]]))
    if not found:
        missing(name, package)
    return found


def missing(name: str, package: str) -> NoReturn:
    """Skips the test on a user's machine, and fails where `CI` is set."""
    skip_or_fail(f"This test needs `{name}`: {package}")


def run(*command: object, folder: Path | None = None) -> str:
    """Runs a program that has to succeed, and returns what it said."""
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
