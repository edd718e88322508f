"""Undocumented parts of Keras that Rudel uses.

Keras has no public way to list nested layers, to build a compiled model without a batch of values, to train with a
learning rate from outside, to say what a model was compiled with, or to load lambdas in one block alone. All backends
have these parts; those of JAX alone are in `rudel.internals.keras_jax`.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
from keras.src.backend import get_keras_mask, rnn
from keras.src.saving.serialization_lib import SafeModeScope
from keras.src.utils import module_utils  # its `tensorflow` is imported by whoever looks at it closely

from rudel.aliases import Tree
from rudel.internals import mentions, require

recurrence = rnn
"""Keras' loop over time: `(step, inputs, states, go_backwards=...) -> (last output, outputs, states)`."""


def layers_of(model: keras.Model, *, include_self: bool = True, recursive: bool = True) -> list[Any]:
    """A model's layers.

    Args:
        model: a Keras model, or a layer that holds others.
        include_self: whether the model itself is the first of them.
        recursive: whether layers inside layers are listed, too.
    """
    return model._flatten_layers(include_self=include_self, recursive=recursive)


def calls_of(operation: keras.Operation) -> list[Any]:
    """The symbolic calls of an operation, each with `arguments`, `input_tensors` and `output_tensors`."""
    return operation._inbound_nodes


def has_masked_outputs(model: keras.Model) -> bool:
    """Whether a model made of layers passes a mask on to its loss; False for others, and where it is not built."""
    try:
        outputs = model.outputs
    except (AttributeError, ValueError):
        return False
    return any(get_keras_mask(tensor) is not None for tensor in jax.tree.leaves(outputs))


def frozen_or_trainable(layer: keras.Layer) -> list[Any]:
    """The variables of a layer itself that are trainable, or would be if the layer were not frozen."""
    return layer._trainable_variables


def declare_dtype(layer: keras.layers.InputLayer, dtype: str) -> None:
    """Gives an input another dtype, to which calls of its model cast."""
    tensor: Any = layer.output
    layer._dtype = tensor._dtype = dtype


def build_symbolically(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Makes the variables of a compiled model, its metrics and its loss from the shapes and dtypes of a batch."""
    model._symbolic_build(data_batch=batch)


def compile_config(model: keras.Model) -> dict[str, Any]:
    """The arguments of `model.compile` as they were given, without serialising them; {} where there are none."""
    return dict(getattr(getattr(model, "_compile_config", None), "config", None) or {})


def compile_stamp(model: keras.Model) -> Any:
    """An object that every call of `model.compile` replaces; None for a model that is not compiled."""
    return getattr(model, "_compile_config", None)


def compiled_metrics(model: keras.Model) -> Any:
    """The metrics that `model.compile` made, or None."""
    return getattr(model, "_compile_metrics", None)


def loss_arguments(loss: Tree) -> dict[str, Any]:
    """The arguments that a loss object of Keras passes to its function, such as `from_logits`."""
    return getattr(loss, "_fn_kwargs", {})


def metric_direction(metric: keras.Metric) -> str | None:
    """ "up" or "down", in which direction a metric improves; None where it does not say."""
    return getattr(metric, "_direction", None)


def restore_direction(callback: keras.callbacks.Callback) -> None:
    """Lets a callback that monitors a metric decide what is better, which it otherwise does at its first epoch.

    It negates `min_delta` then, so this comes before attributes are restored.
    """
    if decide := getattr(callback, "_set_monitor_op", None):
        decide()


def attention_projections(layer: keras.Layer) -> list[Any]:
    """The dense layers of a multi-head attention: query, key, value and output; None for one that is not there."""
    return [getattr(layer, f"_{name}_dense", None) for name in ("query", "key", "value", "output")]


def inner_optimizer(optimizer: keras.optimizers.Optimizer) -> Any:
    """The optimizer that moves the weights, inside one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def weight_average(optimizer: keras.optimizers.Optimizer) -> tuple[float, list[Any]] | None:
    """The momentum and the variables of the exponential average of the weights; None where the optimizer keeps none."""
    inner = inner_optimizer(optimizer)
    return (inner.ema_momentum, inner._model_variables_moving_average) if getattr(inner, "use_ema", False) else None


@contextlib.contextmanager
def weight_average_left(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Inside the block, steps of an optimizer leave the exponential average of the weights as it is."""
    inner = inner_optimizer(optimizer)
    before = getattr(inner, "use_ema", False)
    inner.use_ema = False
    try:
        yield
    finally:
        inner.use_ema = before


def set_iterations(optimizer: keras.optimizers.Optimizer, steps: int) -> None:
    """Sets the count of an optimizer's steps, also where it accumulates the gradients of several to one update."""
    inner_optimizer(optimizer)._iterations.assign(steps)


def iterations_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """The count of an optimizer's steps, an array of the backend; see `set_iterations`."""
    return inner_optimizer(optimizer)._iterations.value


def schedule_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """The `LearningRateSchedule` of an optimizer, or None where there is none, as where its rate is a number."""
    rate = getattr(inner_optimizer(optimizer), "_learning_rate", None)
    return rate if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) else None


def give_learning_rate(optimizer: keras.optimizers.Optimizer, rate: Callable[[], Any]) -> None:
    """From now on, an optimizer asks `rate` for its learning rate at every step, whatever it was made with."""
    inner_optimizer(optimizer)._get_current_learning_rate = rate


@contextlib.contextmanager
def learning_rate_given(optimizer: keras.optimizers.Optimizer, rate: Any) -> Iterator[None]:
    """Inside the block, an optimizer uses this learning rate, whatever it was made with."""
    give_learning_rate(optimizer, lambda: rate)
    try:
        yield
    finally:
        del inner_optimizer(optimizer)._get_current_learning_rate


@contextlib.contextmanager
def forget_missing_tensorflow() -> Iterator[None]:
    """Lets Keras look for TensorFlow again after the block, if it first looked for it inside."""
    unknown = module_utils.tensorflow._available is None
    try:
        yield
    finally:
        if unknown and module_utils.tensorflow.module is None:
            module_utils.tensorflow._available = None


@contextlib.contextmanager
def lambdas_loaded() -> Iterator[None]:
    """Inside the block, this thread loads models with lambdas, and code in them is executed."""
    with SafeModeScope(safe_mode=False):
        yield


@contextlib.contextmanager
def replaced_inner_loop(inner_loop: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Inside the block, LSTM layers compute their sequences by another function.

    Args:
        inner_loop: makes the other method of the layer's own.
    """
    original = keras.layers.LSTM.inner_loop
    keras.layers.LSTM.inner_loop = inner_loop(original)
    try:
        yield
    finally:
        keras.layers.LSTM.inner_loop = original


_optimizer = keras.optimizers.Optimizer
_layer, _model = keras.layers.Layer(name="checked"), keras.Sequential(name="checked")
_input = keras.layers.InputLayer((1,), name="checked_input")
require(
    "keras",
    {
        "Layer._flatten_layers": hasattr(_layer, "_flatten_layers") and _layer._flatten_layers() == [_layer],
        "Operation._inbound_nodes": len(getattr(_input, "_inbound_nodes", ())) == 1
        and all(hasattr(_input._inbound_nodes[0], name) for name in ("arguments", "input_tensors", "output_tensors")),
        "InputLayer._dtype": mentions(keras.layers.InputLayer.dtype, "_dtype")
        and mentions(keras.KerasTensor.dtype, "_dtype"),
        "Layer._trainable_variables": getattr(_layer, "_trainable_variables", None) == [],
        "Model._symbolic_build": hasattr(_model, "_symbolic_build"),
        "Model._compile_config": mentions(_model.get_compile_config, "_compile_config"),
        "Model._compile_metrics": hasattr(_model, "_compile_metrics"),
        "Optimizer._get_current_learning_rate": mentions(_optimizer.learning_rate, "_get_current_learning_rate")
        and mentions(getattr(_optimizer, "_get_current_learning_rate", None), "_learning_rate")
        and mentions(getattr(_optimizer, "_backend_apply_gradients", None), "learning_rate"),
        "Loss._fn_kwargs": "_fn_kwargs" in vars(keras.losses.MeanSquaredError()),
        "Metric._direction": mentions(keras.metrics.Accuracy.__init__, "_direction"),
        "MonitorCallback._set_monitor_op": hasattr(keras.callbacks.EarlyStopping, "_set_monitor_op"),
        "MultiHeadAttention._query_dense": mentions(
            keras.layers.MultiHeadAttention.build, *(f"_{name}_dense" for name in ("query", "key", "value", "output"))
        ),
        "SafeModeScope": mentions(SafeModeScope.__enter__, "in_safe_mode")
        and mentions(SafeModeScope.__exit__, "original_value"),
        "LSTM.inner_loop": hasattr(keras.layers.LSTM, "inner_loop"),
        "tensorflow._available": {"_available", "module"} <= set(vars(module_utils.tensorflow)),
    },
)
