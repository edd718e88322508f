"""Encoding of weight changes as bytes, with the residual that the bytes leave out.

A codec is a pair of pure functions. The first turns a change, such as what local steps have done to weights since these
were agreed upon, into a message; both sides read the same from it. What the message leaves out stays where it is: a
replica keeps it in its weights, where its next steps go on from it, and it is part of the next change (error feedback);
a coordinator adds it to what it sends next. So nothing is lost by rounding or by leaving out.

Names, for the command line and for both sides to agree upon:

    float32     as they are
    float16     rounded to half the bytes
    int8        rounded to whole numbers, with a power of two as scale for every 256 elements
    top8        the largest element of every 8, in a byte; of small arrays, all elements
    top16       the same of every 16, with magnitudes over a smaller range
    top32       the same of every 32

Where the ideas are from: error feedback, F. Seide and others, *1-bit stochastic gradient descent*, Interspeech 2014,
and why it converges, S. P. Karimireddy and others, 1901.09847; the largest entries, Y. Lin and others, *Deep gradient
compression*, 1712.01887; few bits for the deltas of many local steps (A. Douillard and others, *DiLoCo*, 2311.08105),
A. Douillard and others, *Streaming DiLoCo*, 2501.18512, and A. Sarfi and others, *SparseLoCo*, 2508.15706. Unlike
there, what was not sent is not taken back from a replica's weights until it is: that way, with rounds of 32 steps and
a tenth of the elements, four replicas learn drawings in two thirds of the steps (see docs/how-it-works.md).

Limit: a message says nothing of shapes: both sides know the model.
"""

import functools
import itertools
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rudel.array_types import Float32, Num
from rudel.errors import NonFiniteError, OptionError
from rudel.replicas.codec.delta_forms import FORMS, Form
from rudel.replicas.codec.weight_vector import Layout

MOST = 1e30
"""The largest change of a weight that is sent."""

_CHECKSUM = struct.Struct("<I")
_NAMES = "float32, float16, int8, top8, top16 or top32"


@dataclass(frozen=True)
class Codec:
    """An encoding of changes.

    Args:
        name: what `make_codec` makes it from; both sides must have the same.
        form: of the arrays that travel.
    """

    name: str
    form: Form

    def encode(
        self, vector: Float32[np.ndarray, "weights"], layout: Layout
    ) -> tuple[bytes, Float32[np.ndarray, "weights"]]:
        """Writes a change.

        Args:
            vector: float32 (N,).
            layout: of it.

        Returns:
            The message, and what is read from it: float32 (N,).

        Raises:
            NonFiniteError: an element is NaN, infinite or above `MOST`.
        """
        with _on_cpu():
            arrays, largest = _writer(self.form)(layout.arrays(vector))
        if not float(largest) <= MOST:
            raise NonFiniteError(not_finite(vector, layout))
        return self.packed(arrays), self._read(arrays, layout)

    def decode(self, message: bytes, layout: Layout) -> Float32[np.ndarray, "weights"]:
        """Reads a change.

        Returns:
            float32 (N,).

        Raises:
            ValueError: `encode` cannot have written the message.
        """
        return self._read(self.unpacked(message, layout), layout)

    def weighted_sum(self, messages: Iterable[tuple[bytes, int]], layout: Layout) -> Float32[np.ndarray, "weights"]:
        """The sum of changes, each times its weight, in one pass over the elements for each message.

        Returns:
            float32 (N,), new.

        Raises:
            ValueError: `encode` cannot have written a message.
        """
        sums, add = layout.arrays(np.zeros(layout.size, np.float32)), _adder(self.form, layout)
        with _on_cpu():
            for message, weight in messages:
                sums = add(sums, self.unpacked(message, layout), np.float32(weight))
        return layout.vector(sums)

    def packed(self, arrays: Sequence[Any]) -> bytes:
        """Arrays that the form has written, as a message, after a checksum that also tells codecs apart."""
        body = b"".join(np.asarray(array).tobytes() for array in arrays)
        return self._checksum(body) + body

    def unpacked(self, message: bytes, layout: Layout) -> list[np.ndarray]:
        """The arrays of a message.

        Raises:
            ValueError: `packed` cannot have written it for this layout.
        """
        head, body = message[: _CHECKSUM.size], memoryview(message)[_CHECKSUM.size :]
        if head != self._checksum(body):
            raise ValueError(f"The message is damaged, or was not written by the codec {self.name!r}.")
        expected = _travelling(self.form, layout)
        if len(body) != sum(math.prod(shape) * dtype.itemsize for shape, dtype in expected):
            raise ValueError("The message is of a model of other shapes.")
        arrays, place = [], _CHECKSUM.size
        for shape, dtype in expected:
            arrays.append(np.frombuffer(message, dtype, math.prod(shape), place).reshape(shape))
            place += arrays[-1].nbytes
        if not self.form.sound(arrays, layout.shapes):
            raise ValueError("The message is damaged: it holds numbers that are not finite.")
        return arrays

    def _checksum(self, body: bytes | memoryview) -> bytes:
        return _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(self.name.encode())))

    def _read(self, arrays: Sequence[Any], layout: Layout) -> Float32[np.ndarray, "weights"]:
        with _on_cpu():
            read = _reader(self.form, layout)(list(arrays))
        return np.concatenate([np.asarray(array).reshape(-1) for array in read])


def make_codec(name: str) -> Codec:
    """The codec of this name.

    Args:
        name: float32, float16, int8, top8, top16 or top32.

    Raises:
        OptionError: there is none of this name.

    >>> codec, layout = make_codec("top8"), Layout(((100_000,),))
    >>> vector = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    >>> message, sent = codec.encode(vector, layout)
    >>> len(message), int(np.count_nonzero(sent))
    (12505, 12500)
    >>> bool(np.all(codec.decode(message, layout) == sent))
    True
    """
    if name not in FORMS:
        raise OptionError(f"There is no codec {name!r}: it can be {_NAMES}.")
    return Codec(name, FORMS[name])


def largest_of(arrays: Sequence[Float32[jax.Array, "..."]]) -> Float32[jax.Array, ""]:
    """The largest size of an element, float32 (); NaN if there is one."""
    return functools.reduce(jnp.maximum, [jnp.abs(array).max(initial=0) for array in arrays], jnp.float32(0))


def not_finite(vector: Float32[np.ndarray, "weights"], layout: Layout) -> str:
    """The message about a change that cannot be sent."""
    spans = enumerate(itertools.pairwise(layout.bounds))
    number = next(n for n, (first, last) in spans if not (np.abs(vector[first:last]) <= MOST).all())
    return (
        f"The change of weight array {number} in a round is NaN, infinite or above {MOST:g}: lower the learning rate, "
        "clip the gradients (clipnorm=1.0 in the optimizer), or look for outliers in the data."
    )


def _on_cpu() -> Any:
    """Lets programs run where NumPy's arrays are."""
    return jax.default_device(jax.local_devices(backend="cpu")[0])


@functools.cache
def _writer(form: Form) -> Callable[[Sequence[np.ndarray]], tuple[list[jax.Array], jax.Array]]:
    return jax.jit(lambda arrays: (form.write(arrays), largest_of(arrays)))


@functools.lru_cache(maxsize=8)
def _reader(form: Form, layout: Layout) -> Callable[[Sequence[Any]], list[jax.Array]]:
    """Reads each array by itself: XLA takes many times as long for a vector of all of them."""

    def read(arrays: Sequence[Num[jax.Array, "..."]]) -> list[Float32[jax.Array, "..."]]:
        return form.read(arrays, layout.shapes)

    return jax.jit(read)


@functools.lru_cache(maxsize=8)
def _adder(form: Form, layout: Layout) -> Callable[[Sequence[Any], Sequence[Any], np.float32], list[jax.Array]]:
    """Adds what came, times a weight, to sums, which are consumed."""

    def add(sums: Sequence[jax.Array], came: Sequence[jax.Array], weight: jax.Array) -> list[jax.Array]:
        return [so_far + weight * one for so_far, one in zip(sums, form.read(came, layout.shapes), strict=True)]

    return jax.jit(add, donate_argnums=0)


@functools.lru_cache(maxsize=8)
def _travelling(form: Form, layout: Layout) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of each array that travels."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in layout.shapes]
    return [(array.shape, np.dtype(array.dtype)) for array in jax.eval_shape(form.write, shapes)]
