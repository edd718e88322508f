"""TensorFlow's own: `tf.io.read_file`, `tf.io.decode_jpeg`, `tf.train.Example`, `tf.io.TFRecordWriter`.

Reading and decoding run in a parallel map of `tf.data`, which tunes itself; examples are made and written by the
thread that takes its results. Pictures become the same six features in the same two shards. `decode_jpeg` gets the
ratio that the job names: with 8, it decodes pictures at an eighth of their size, which finds a damaged file as well and
costs less. Nothing is turned upright, since TensorFlow reads no EXIF, and nothing is flushed to the disk.
"""

import hashlib
from pathlib import Path
from typing import Any

import images_job
import tensorflow as tf


def _convert(out: Path) -> int:
    root = Path(images_job.JOB["data"])
    names = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*"))
    count = 0
    for split, part in _splits(names).items():
        paths = [f"{root}/{name}" for name in part]
        pictures = tf.data.Dataset.from_tensor_slices(paths).map(_decoded, num_parallel_calls=tf.data.AUTOTUNE)
        with tf.io.TFRecordWriter(str(out / f"{split}-00000-of-00001.tfrecord")) as writer:
            for name, (content, shape) in zip(
                part, pictures.prefetch(tf.data.AUTOTUNE).as_numpy_iterator(), strict=True
            ):
                writer.write(_example(name, content, shape))
                count += 1
    return count


def _splits(names: list[str]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {"train": [], "validation": []}
    for name in names:
        share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
        splits["validation" if share < images_job.VALIDATION else "train"].append(name)
    return splits


def _decoded(path: Any) -> tuple[Any, Any]:
    content = tf.io.read_file(path)
    return content, tf.shape(tf.io.decode_jpeg(content, ratio=images_job.JOB["ratio"]))


def _example(name: str, content: bytes, shape: Any) -> bytes:
    text = name.partition("/")[0]
    ratio = images_job.JOB["ratio"]
    features = {
        "image/encoded": _bytes(content),
        "image/class/label": _int64(images_job.CLASSES.index(text)),
        "image/class/text": _bytes(text.encode()),
        "image/height": _int64(int(shape[0]) * ratio),
        "image/width": _int64(int(shape[1]) * ratio),
        "image/filename": _bytes(name.encode()),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _bytes(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64(value: int) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


if __name__ == "__main__":
    images_job.answer(_convert)
