"""tf_keras under ParameterServerStrategy, as its coordinator: `python cluster_parameter_server.py SETTINGS`.

The settings are JSON: cluster (addresses by job), and `part`, as of `cluster_node.py`. The weights are with the one
parameter server, on the desktop as this program is. A worker fetches them for every step, takes a batch of its own
share of the drawings, and sends its gradients back; nobody waits for anybody. `fit` is called twice: for a few steps in
which TensorFlow traces and connects, and for those that count. A step here is a step of one worker.
"""

# pyright: reportMissingImports=false
# TensorFlow is a rival that need not be installed.

import json
import os
import sys
from typing import Any

import cluster_node as node

WARM_UP_STEPS = 3  # for each worker
_SHUFFLED = 8192


def main() -> None:
    """Trains a part of the job, tells."""
    given = json.loads(sys.argv[1])
    part = node.Part(**given["part"])
    config = {"cluster": given["cluster"], "task": {"type": "chief", "index": 0}}
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_USE_LEGACY_KERAS": "1"}
    os.environ["TF_CONFIG"] = json.dumps(config)
    import tensorflow as tf
    import tf_keras as keras

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    keras.utils.set_random_seed(part.seed)

    def pixels_and_class(rows: Any) -> Any:
        values = tf.io.decode_raw(rows, tf.uint8)
        return tf.cast(values[:, : node.PIXELS], tf.float32) / 255, tf.cast(values[:, node.PIXELS], tf.int64)

    def examples(_: Any) -> Any:
        rows = tf.data.FixedLengthRecordDataset("records.bin", node.PIXELS + 1)
        rows = rows.shuffle(_SHUFFLED).repeat().batch(part.batch_size, drop_remainder=True)
        return rows.map(pixels_and_class).prefetch(tf.data.AUTOTUNE)

    with strategy.scope():
        model = keras.Sequential([keras.Input((node.PIXELS,))])
        for units in part.hidden:
            model.add(keras.layers.Dense(units, activation="relu"))
            model.add(keras.layers.Dropout(node.DROPOUT))
        model.add(keras.layers.Dense(part.classes, activation="softmax"))
        model.compile(keras.optimizers.Adam(part.learning_rate), "sparse_categorical_crossentropy", ["accuracy"])
    data = keras.utils.experimental.DatasetCreator(examples)
    model.fit(data, steps_per_epoch=WARM_UP_STEPS * part.workers, epochs=1, verbose=0)
    node.when_told()
    clock = node.Clock()
    model.fit(data, steps_per_epoch=part.steps, epochs=1, verbose=0)
    node.tell("done", seconds=clock(), versions={"tensorflow": tf.__version__, "tf_keras": keras.__version__})


if __name__ == "__main__":
    main()
