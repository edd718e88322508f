"""SavedModel: TensorFlow's own form, for any number of examples a call.

Its signatures:

    serving_arrays   takes the model's inputs as arrays, and gives its outputs
    serving_default  takes JPEG and PNG files as `image_bytes`, string (N,), and gives `class`, string (N,), `class_id`,
                     int64 (N,), and `probabilities`, float32 (N, classes); where a run takes no photographs, it is the
                     same as serving_arrays
"""

from pathlib import Path
from typing import Any

import tensorflow as tf

from rudel.export.converter.forward import Forward
from rudel.export.converter.photographs import decode_all


def write(forward: Forward, photographs: dict[str, Any] | None, made: Path) -> None:
    """Writes the folder of a SavedModel, whose bytes depend on the model alone.

    Args:
        forward: the model.
        photographs: what `rudel.export.photographs.Serving` says, or None.
        made: the folder.
    """
    arrays = forward.trace()
    default = arrays
    if photographs:
        function = tf.function(lambda image_bytes: _classified(forward, photographs, image_bytes), autograph=False)
        default = function.get_concrete_function(tf.TensorSpec((None,), tf.string, name="image_bytes"))
    forward.save(made, {"serving_default": default, "serving_arrays": arrays})
    (made / "fingerprint.pb").unlink(missing_ok=True)  # it holds a random identifier; readers do without it


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
