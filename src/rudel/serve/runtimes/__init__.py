"""Runtimes: Keras models compiled by JAX, LiteRT files, and SavedModels by TensorFlow."""
