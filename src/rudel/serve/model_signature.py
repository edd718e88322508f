"""Inputs and outputs of a served model, and the names that protocols have for dtypes."""

from dataclasses import dataclass

import numpy as np

OPEN = -1
"""A dimension of any size."""

V2_NAMES = {
    "bool": "BOOL",
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    "bytes": "BYTES",
}
"""Datatypes of the Open Inference Protocol by the names that NumPy has for them."""

V2_DTYPES = {v2_name: np.dtype(name).newbyteorder("<") for name, v2_name in V2_NAMES.items() if name != "bytes"}

_TENSORFLOW_NAMES = {
    "bool": "DT_BOOL",
    **{name: f"DT_{name.upper()}" for name in V2_NAMES if name.startswith(("int", "uint"))},
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bytes": "DT_STRING",
}


@dataclass(frozen=True)
class Tensor:
    """One input or output.

    Args:
        name: unique among the inputs, or the outputs.
        shape: of one example; `OPEN` for a dimension of any size.
        dtype: NumPy's name of it, or `bytes`.
        gaps: whether a value may be missing: null in JSON, NaN, an empty text.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    gaps: bool = False

    @property
    def takes_images(self) -> bool:
        """Whether the model itself decodes images, as a SavedModel of `rudel export` does."""
        return (self.name, self.shape, self.dtype) == ("image_bytes", (), "bytes")

    @property
    def v2_name(self) -> str:
        """Its datatype in the Open Inference Protocol."""
        return V2_NAMES[self.dtype]

    @property
    def tensorflow_name(self) -> str:
        """Its datatype in TensorFlow."""
        return _TENSORFLOW_NAMES[self.dtype]

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an example may have this shape.

        >>> Tensor("x", (OPEN, 3), "float32").fits((7, 3))
        True
        """
        return len(shape) == len(self.shape) and all(
            own in (OPEN, other) for own, other in zip(self.shape, shape, strict=True)
        )

    @property
    def shape_text(self) -> str:
        """The shape of one example, in words.

        >>> Tensor("x", (28, 28), "uint8").shape_text, Tensor("x", (OPEN, 3), "uint8").shape_text
        ('(28, 28)', '(any, 3)')
        """
        sizes = ["any" if size == OPEN else str(size) for size in self.shape]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def may_be_missing(shape: tuple[int, ...], dtype: str) -> bool:
    """Whether an input of an exported model may be a column of a table, in which NaN stands for a missing number.

    >>> may_be_missing((), "float32"), may_be_missing((4,), "float32"), may_be_missing((), "int8")
    (True, False, False)
    """
    return not shape and np.dtype(dtype).kind == "f"


@dataclass(frozen=True)
class Signature:
    """All inputs and outputs of a model, in its order."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def is_open(self) -> bool:
        """Whether examples may have different shapes, so that not any two fit into one batch."""
        return any(OPEN in tensor.shape for tensor in self.inputs)
