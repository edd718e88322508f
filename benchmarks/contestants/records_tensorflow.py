"""Reads records by tf.data, as its guides advise: `python records_tensorflow.py JOB`, see records.py."""

import glob
import json
import os
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf
from records_photographs import timed

_BUFFER = 10_000


def main() -> None:
    """Reads what the job says, and prints the seconds a record took."""
    job = json.loads(sys.argv[1])
    dataset = {"bytes": _small, "photographs": _photographs}[job["task"]](job).prefetch(tf.data.AUTOTUNE)
    print(json.dumps(timed(lambda: sum(int(batch[1].shape[0]) for batch in dataset), job["seconds"])))


def _small(job: dict[str, Any]) -> Any:
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parsed(contents: Any) -> Any:
        batch = tf.io.parse_example(contents, features)
        pixels = tf.reshape(tf.io.decode_raw(batch["image"], tf.uint8, fixed_length=784), (-1, 28, 28))
        return pixels, batch["label"]

    shuffled = _files(job).shuffle(_BUFFER, seed=0)
    return shuffled.batch(job["batch_size"], drop_remainder=True).map(parsed, num_parallel_calls=tf.data.AUTOTUNE)


def _photographs(job: dict[str, Any]) -> Any:
    names = {"image/encoded": tf.string, "image/class/label": tf.int64}
    features = {name: tf.io.FixedLenFeature([], kind) for name, kind in names.items()}

    def example(content: Any) -> Any:
        found = tf.io.parse_single_example(content, features)
        picture = tf.io.decode_jpeg(found["image/encoded"], 3, dct_method="INTEGER_ACCURATE")
        picture = tf.image.random_flip_left_right(tf.ensure_shape(picture, (100, 100, 3)))
        picture = tf.image.random_crop(tf.pad(picture, [[4, 4], [4, 4], [0, 0]]), (100, 100, 3))
        return picture, found["image/class/label"]

    shuffled = _files(job).shuffle(_BUFFER, seed=0)
    mapped = shuffled.map(example, num_parallel_calls=tf.data.AUTOTUNE)
    return mapped.batch(job["batch_size"], drop_remainder=True)


def _files(job: dict[str, Any]) -> Any:
    """One file after the other: reading several by turns (`interleave`, `num_parallel_reads`) was slower everywhere."""
    names = sorted(glob.glob(job["folder"] + "/*.tfrecord"))  # noqa: PTH207
    return tf.data.TFRecordDataset(names, buffer_size=8 << 20)


if __name__ == "__main__":
    main()
