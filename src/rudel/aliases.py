"""Names for types that Python's own cannot express: what they stand for is checked where such values come in."""

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""A JSON object, as `json.loads` returns it."""

Tree: TypeAlias = Any
"""A JAX pytree: arrays, tensors or their shapes, in nested dicts, lists and tuples."""

Tensor: TypeAlias = Any
"""An array of NumPy, JAX, TensorFlow or PyTorch, or a symbolic `keras.KerasTensor`: what `keras.ops` computes with."""

Shape: TypeAlias = tuple[int | None, ...]
"""The lengths of an array's axes; None for one that is open, as the batch is."""

TrainingData: TypeAlias = Any
"""Examples as `rudel.fit` takes them: arrays in nested structures, a dataset, a stream, or a source of batches."""
