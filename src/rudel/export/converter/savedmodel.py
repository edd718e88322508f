"""SavedModel: TensorFlow's own form, for any number of examples a call.

Its signatures:

    serving_arrays   takes the model's inputs as arrays, and gives its outputs
    serving_default  takes JPEG and PNG files as `image_bytes`, string (N,), and gives `class`, string (N,), `class_id`,
                     int64 (N,), and `probabilities`, float32 (N, classes); where a run takes no photographs, it is the
                     same as serving_arrays; where it takes a table, categories are string (N,)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from rudel.export.converter.forward import Forward
from rudel.export.converter.photographs import decode_all


def write(forward: Forward, photographs: dict[str, Any] | None, texts: Mapping[str, Sequence[str]], made: Path) -> None:
    """Writes the folder of a SavedModel, whose bytes depend on the model alone.

    Args:
        forward: the model.
        photographs: what `rudel.export.photographs.Serving` says, or None.
        texts: by input that takes a number for a text, the texts that are numbered from 1; others are 0.
        made: the folder.
    """
    arrays = forward.trace()
    default = arrays
    if photographs:
        function = tf.function(lambda image_bytes: _classified(forward, photographs, image_bytes), autograph=False)
        default = function.get_concrete_function(tf.TensorSpec((None,), tf.string, name="image_bytes"))
    tables = {name: _table(known) for name, known in texts.items()}
    if tables:
        specs = [tf.TensorSpec(s.shape, tf.string, s.name) if s.name in tables else s for s in forward.signature]
        function = tf.function(lambda *given: _numbered(forward, tables, given), specs, autograph=False)
        default = function.get_concrete_function()
    forward.save(made, {"serving_default": default, "serving_arrays": arrays}, tables)
    (made / "fingerprint.pb").unlink(missing_ok=True)  # it holds a random identifier; readers do without it


def _table(texts: Sequence[str]) -> Any:
    numbers = tf.range(1, len(texts) + 1, dtype=tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(list(texts)), numbers), 0)


def _numbered(forward: Forward, tables: Mapping[str, Any], given: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    names = forward.inputs
    return forward.function(
        *(tables[name].lookup(t) if name in tables else t for name, t in zip(names, given, strict=True))
    )


def _classified(forward: Forward, about: dict[str, Any], files: tf.Tensor) -> dict[str, tf.Tensor]:
    pixels = decode_all(files, about["height"], about["width"], about["channels"])
    (spec,) = forward.signature
    examples = tf.reshape(tf.cast(pixels, spec.dtype), (-1, *spec.shape[1:]))
    (outputs,) = forward.function(examples).values()
    probabilities = tf.cast(outputs, tf.float32)
    if about["squash"]:
        probabilities = tf.nn.softmax(probabilities) if about["squash"] == "softmax" else tf.sigmoid(probabilities)
    if about["pairs"]:
        probabilities = tf.concat([1 - probabilities, probabilities], axis=1)
    likeliest = tf.argmax(probabilities, axis=1)
    names = tf.constant([name.encode() for name in about["classes"]])
    return {"class": tf.gather(names, likeliest), "class_id": likeliest, "probabilities": probabilities}
