"""Recurrent layers in forms that small runtimes have.

Keras writes a recurrent layer as a loop over time, which the converter turns into WHILE operators: microcontrollers
have none, and they cannot be quantised. An LSTM has an operator of its own, UNIDIRECTIONAL_SEQUENCE_LSTM, and the
converter puts it in where it finds a function that says it implements one; other layers are unrolled.
"""

import contextlib
import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from rudel.aliases import Tensor, Tree
from rudel.errors import ExportError
from rudel.internals.keras import layers_of, recurrence, replaced_inner_loop
from rudel.micro.flatbuffer import Flatbuffer
from rudel.micro.schema import BUILTIN_OPERATORS

_LSTM = BUILTIN_OPERATORS.index("UNIDIRECTIONAL_SEQUENCE_LSTM")
_HIDDEN_STATE, _HIDDEN = 18, 4
"""What one step of that operator leaves to the next, among its inputs, and the same among its intermediate tensors."""
_CELL_STATE, _LEAST_CELL_SCALE = 19, 2.0**-15
"""The cells among its inputs, and the least scale for which its kernels compute a hyperbolic tangent."""


@contextlib.contextmanager
def fuse_lstms() -> Iterator[None]:
    """Marks the LSTMs that are traced inside the block, so that the converter makes one operator of each.

    That operator has the activations tanh and sigmoid, and no mask; it begins with states of zeros, and does not give
    the last ones. Which arguments, results and attributes the function must have is set by the pass
    `prepare-composite-functions-tf` of the converter.
    """
    numbers = itertools.count()

    def marked(original: Callable[..., Any]) -> Callable[..., Any]:
        def inner_loop(
            self: Any, sequences: Tensor, initial_state: Tree, mask: Tensor | None, training: bool = False
        ) -> Tree:
            if mask is not None or self.return_state or not (_is_standard(self.cell) and _are_zeros(initial_state)):
                return original(self, sequences, initial_state, mask, training)
            function = _marked(next(numbers))
            sequences = sequences[:, ::-1] if self.go_backwards else sequences
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


def with_valid_states(content: bytes) -> bytes:
    """Returns a `.tflite` file in int8 whose LSTMs have states that their kernels can compute with.

    Hidden states have the scale and zero point of outputs: the operator gives the same integers as both, and the
    converter sets different ones where something behind it, such as a concatenation, asks for that of the output. Cells
    have a scale of at least 2**-15: the converter gives those that stay below 1/2 in the calibration one of 2**-16,
    with which kernels leave hidden states as they were.
    """
    model, changed = Flatbuffer.of(content).root(), bytearray(content)
    codes, graph = model.tables(1), model.tables(2)[0]
    scales: list[Any] = [tensor.table(4) for tensor in graph.tables(0)]
    for operator in graph.tables(3):
        if codes[operator.integer(0, "I")].integer(3, "i") != _LSTM:
            continue
        (output,) = operator.integers(2)
        for slot, size in ((2, 4), (3, 8)):  # float32 scales and int64 zero points
            at, _ = scales[output].vector(slot, size)
            for tensor in (operator.integers(1)[_HIDDEN_STATE], operator.integers(8)[_HIDDEN]):
                to, _ = scales[tensor].vector(slot, size)
                changed[to : to + size] = content[at : at + size]
        cell, _ = scales[operator.integers(1)[_CELL_STATE]].vector(2, 4)
        struct.pack_into("<f", changed, cell, max(*struct.unpack_from("<f", content, cell), _LEAST_CELL_SCALE))
    return bytes(changed)


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


def _are_zeros(states: Tree) -> bool:
    values = [tf.get_static_value(state) for state in states]
    return all(value is not None and not value.any() for value in values)


def _is_standard(cell: keras.Layer) -> bool:
    return cell.use_bias and cell.activation is keras.activations.tanh and (
        cell.recurrent_activation is keras.activations.sigmoid
    )  # fmt: skip


def _marked(number: int) -> Any:
    """An LSTM as a function of (inputs, hidden, carry, kernel, recurrent kernel, bias)."""

    def lstm(inputs: Tensor, hidden: Tensor, carry: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor) -> Any:
        def step(x: Tensor, states: Tree) -> Any:
            gates = tf.split(tf.matmul(x, kernel) + tf.matmul(states[0], recurrent) + bias, 4, axis=1)
            inward, forget, candidate, outward = gates
            carry = tf.sigmoid(forget) * states[1] + tf.sigmoid(inward) * tf.tanh(candidate)
            hidden = tf.sigmoid(outward) * tf.tanh(carry)
            return hidden, [hidden, carry]

        last, outputs, (hidden, carry) = recurrence(step, inputs, [hidden, carry])
        return last, outputs, hidden, carry, tf.constant(1.0)  # the last is where it ran; the converter wants five

    attributes = {
        "api_implements": f"lstm_{number}",
        "api_preferred_device": "CPU",
        "time_major": False,
        "go_backwards": False,
    }
    return tf.function(lstm, autograph=False, experimental_attributes=attributes)
