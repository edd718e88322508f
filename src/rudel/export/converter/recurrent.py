"""Recurrent layers in forms that small runtimes have.

Keras writes a recurrent layer as a loop over time, which the converter turns into WHILE operators: microcontrollers
have none, and they cannot be quantised. An LSTM has an operator of its own, UNIDIRECTIONAL_SEQUENCE_LSTM, and the
converter puts it in where it finds a function that says it implements one; other layers are unrolled.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from rudel.aliases import Tensor, Tree
from rudel.errors import ExportError
from rudel.internals.keras import layers_of, recurrence, replaced_inner_loop


@contextlib.contextmanager
def fuse_lstms() -> Iterator[None]:
    """Marks the LSTMs that are traced inside the block, so that the converter makes one operator of each.

    That operator has the activations tanh and sigmoid, and no mask. Which arguments, results and attributes the
    function must have is set by the pass `prepare-composite-functions-tf` of the converter.
    """
    numbers = itertools.count()

    def marked(original: Callable[..., Any]) -> Callable[..., Any]:
        def inner_loop(
            self: Any, sequences: Tensor, initial_state: Tree, mask: Tensor | None, training: bool = False
        ) -> Tree:
            if mask is not None or not _is_standard(self.cell):
                return original(self, sequences, initial_state, mask, training)
            function = _marked(next(numbers), self.go_backwards)
            weights = [tf.convert_to_tensor(w) for w in (self.cell.kernel, self.cell.recurrent_kernel, self.cell.bias)]
            last, outputs, hidden, carry, _ = function(sequences, *initial_state, *weights)
            return last, outputs, [hidden, carry]

        return inner_loop

    with replaced_inner_loop(marked):
        yield


def unroll(model: keras.Model) -> None:
    """Makes every step of the recurrent layers a part of the graph."""
    for layer in layers_of(model):
        if isinstance(layer, keras.layers.RNN):
            layer.unroll = True


def refuse_memory(model: keras.Model) -> None:
    """Refuses layers that remember what they saw from one call to the next.

    Raises:
        ExportError: names the layer.
    """
    for layer in layers_of(model):
        if getattr(layer, "stateful", False) is True and isinstance(layer, keras.layers.RNN):
            raise ExportError(
                f"The layer `{layer.name}` keeps its state from call to call (stateful=True), which an exported model "
                "cannot: build the model with stateful=False."
            )


def _is_standard(cell: keras.Layer) -> bool:
    return cell.use_bias and cell.activation is keras.activations.tanh and (
        cell.recurrent_activation is keras.activations.sigmoid
    )  # fmt: skip


def _marked(number: int, backwards: bool) -> Any:
    """An LSTM as a function of (inputs, hidden, carry, kernel, recurrent kernel, bias)."""

    def lstm(inputs: Tensor, hidden: Tensor, carry: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor) -> Any:
        def step(x: Tensor, states: Tree) -> Any:
            gates = tf.split(tf.matmul(x, kernel) + tf.matmul(states[0], recurrent) + bias, 4, axis=1)
            inward, forget, candidate, outward = gates
            carry = tf.sigmoid(forget) * states[1] + tf.sigmoid(inward) * tf.tanh(candidate)
            hidden = tf.sigmoid(outward) * tf.tanh(carry)
            return hidden, [hidden, carry]

        last, outputs, (hidden, carry) = recurrence(step, inputs, [hidden, carry], go_backwards=backwards)
        return last, outputs, hidden, carry, tf.constant(1.0)  # the last is where it ran; the converter wants five

    attributes = {
        "api_implements": f"lstm_{number}",
        "api_preferred_device": "CPU",
        "time_major": False,
        "go_backwards": backwards,
    }
    return tf.function(lstm, autograph=False, experimental_attributes=attributes)
