"""TFRecord files of `tf.train.Example`s, written and read without TensorFlow."""
