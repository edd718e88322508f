"""tf_keras under MultiWorkerMirroredStrategy, as the article did it: `python cluster_tensorflow.py PART`.

Every worker takes its share of each global batch; gradients are summed over the network in every step. `fit` is called
twice: for a few steps in which TensorFlow traces and connects, and for those that count.
"""

# pyright: reportMissingImports=false
# TensorFlow is a rival that need not be installed.

import json
import os

import cluster_node as node

WARM_UP_STEPS = 3


def main() -> None:
    """Trains a part of the job, tells."""
    part = node.read()
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": list(part.addresses)}, "task": {"type": "worker", "index": part.rank}}
    )
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_USE_LEGACY_KERAS": "1"}
    import tensorflow as tf
    import tf_keras as keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(part.seed)
    pixels, labels = node.share(part)
    global_batch = part.batch_size * part.workers
    examples = tf.data.Dataset.from_tensor_slices((pixels.astype("float32") / 255, labels))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # shares are dealt
    examples = examples.shuffle(len(labels)).repeat().batch(global_batch, drop_remainder=True)
    examples = examples.prefetch(tf.data.AUTOTUNE).with_options(options)
    layers = keras.layers
    with strategy.scope():
        model = keras.Sequential([keras.Input((node.PIXELS,))])
        for units in part.hidden:
            model.add(layers.Dense(units, activation="relu"))
            model.add(layers.Dropout(node.DROPOUT))
        model.add(layers.Dense(part.classes, activation="softmax"))
        model.compile(keras.optimizers.Adam(part.learning_rate), "sparse_categorical_crossentropy", ["accuracy"])
    model.fit(examples, steps_per_epoch=WARM_UP_STEPS, epochs=1, verbose=0)
    node.when_told()
    clock = node.Clock()
    model.fit(examples, steps_per_epoch=part.steps, epochs=1, verbose=0)
    node.tell("done", seconds=clock(), versions={"tensorflow": tf.__version__, "tf_keras": keras.__version__})
    if part.rank == 0:
        kept = node.Snapshots()
        kept.keep(clock(), model.get_weights())
        kept.save()
    node.tell("saved")


if __name__ == "__main__":
    main()
