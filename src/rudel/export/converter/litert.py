"""LiteRT: a `.tflite` file in float32, with smaller weights, or all in integers."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rudel.errors import ExportError
from rudel.export.converter.forward import Forward
from rudel.export.converter.model import sentence_of
from rudel.export.converter.recurrent import with_valid_states
from rudel.micro.signature import reordered

_INTEGERS = {
    "litert-int8": (tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.int8),
    "litert-int16": (tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8, tf.int16),
}
"""Operators and the type of inputs and outputs, by form."""


def write(forward: Forward, form: str, calibration: str | None, folder: Path, made: Path) -> None:
    """Converts a model for one example at a time.

    Args:
        forward: the model.
        form: litert, litert-f16, litert-dynamic, litert-int8 or litert-int16.
        calibration: path of examples that the ranges of integers are found on.
        folder: for a SavedModel on the way.
        made: the file to write.

    Raises:
        ExportError: LiteRT has no operator for something, or none for integers.
    """
    with _flips_by_slices():
        forward.save(folder / "on-the-way")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "on-the-way"), ["serving_default"])
    if form != "litert":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "litert-f16":
        converter.target_spec.supported_types = [tf.float16]
    if form in _INTEGERS:
        operators, dtype = _INTEGERS[form]
        converter.representative_dataset = lambda: _examples(forward, calibration)
        converter.target_spec.supported_ops = [operators]
        converter.inference_input_type = converter.inference_output_type = dtype
    try:
        content = converter.convert()
    except Exception as error:
        raise ExportError(
            _sentence(str(error), form) or f"The conversion to {form} failed: {sentence_of(error)}"
        ) from error
    if form == "litert-int8":
        content = with_valid_states(content)
    made.write_bytes(reordered(content, forward.inputs, forward.outputs))


@contextlib.contextmanager
def _flips_by_slices() -> Iterator[None]:
    """Inside the block, TensorFlow flips tensors by STRIDED_SLICE.

    REVERSE_V2 moves integers as they are, and the converter may give its input another scale than its output.
    """
    module: Any = tf
    original = module.reverse

    def flipped(tensor: Any, axis: Any, name: str | None = None) -> Any:
        axes = np.atleast_1d(tf.get_static_value(tf.convert_to_tensor(axis))) % tensor.shape.rank
        return tensor[tuple(slice(None, None, -1 if i in axes else 1) for i in range(tensor.shape.rank))]

    module.reverse = flipped
    try:
        yield
    finally:
        module.reverse = original


def _examples(forward: Forward, calibration: str | None) -> Iterator[dict[Any, Any]]:
    assert calibration
    with np.load(calibration) as stored:
        columns = [stored[str(i)] for i in range(len(forward.signature))]
    for rows in zip(*columns, strict=True):
        yield {
            spec.name: row.reshape(spec.shape).astype(spec.dtype.as_numpy_dtype)
            for spec, row in zip(forward.signature, rows, strict=True)
        }


def _sentence(message: str, form: str) -> str:
    """The essence of the converter's pages of text in a sentence, where they are of a known kind."""
    missing = re.findall(r"^(?:TF Select|Flex|Custom) ops: (.+)$", message, re.MULTILINE)
    if missing:
        names = sorted({name.strip() for line in missing for name in line.split(",")})
        return (
            f"LiteRT has no operator for {', '.join(names)}: build the model without "
            f"{'it' if len(names) == 1 else 'them'}, or export to savedmodel."
        )
    if re.search("Unsupported input type INT16 for input tensor .* of type FLOAT32", message):
        return (
            "The model has an input that nothing reads, which LiteRT cannot have in int16: build the model without it, "
            "or export to litert-int8."
        )
    unsupported = re.search(r"Quantization (?:to 16x8-bit )?not yet supported for op: '?([\w.]+)", message)
    if unsupported:
        return (
            f"LiteRT cannot compute {unsupported[1]} in {form.removeprefix('litert-')}: build the model without it, "
            "or export to litert-dynamic."
        )
    if "failed to legalize" in message or "is neither a custom op nor a flex op" in message:
        names = sorted(set(re.findall(r"'tf\.(\w+)' op", message)))
        if names:
            return f"LiteRT has no operator for {', '.join(names)}: export to savedmodel, or {form} without it."
    return ""
