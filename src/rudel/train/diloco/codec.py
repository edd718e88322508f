"""Codecs of deltas: how the change of a model's weights in a round becomes bytes, and what is made up for later.

A codec is three pure functions. `init` makes residuals: arrays of zeros in the shapes of the weights. `encode` adds
them to the deltas, writes what shall be sent, and returns with it what was not, which are the next residuals: what is
too small to be sent adds up over rounds until it is sent (error feedback). `decode` makes arrays of a message, the same
bits on every host, of whatever make.

    float32               as they are
    float16, bfloat16     rounded to half the bytes
    int8, int4            rounded to whole numbers, with a scale for every 256 elements
    topk:SHARE:BITS       this share of each array, those that are largest, in BITS bits each; a third of the residuals
                          is forgotten in every round
    topk:SHARE:BITS:KEPT  the same, with this share of the residuals kept

Where the ideas are from: error feedback, F. Seide and others, *1-bit stochastic gradient descent*, Interspeech 2014,
and why it converges, S. P. Karimireddy and others, 1901.09847; the largest entries, Y. Lin and others, *Deep gradient
compression*, 1712.01887; few bits for the deltas of many local steps (A. Douillard and others, *DiLoCo*, 2311.08105),
A. Douillard and others, *Streaming DiLoCo*, 2501.18512, and A. Sarfi and others, *SparseLoCo*, 2508.15706. The latter
forgets some of the residuals too: what was held back for long is no longer where the weights want to go.

Limits: arrays are float32 with fewer than 2**31 elements. A message says nothing of shapes: both sides know the model.
"""

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rudel.errors import NonFiniteError, OptionError
from rudel.train.diloco.bits import Reader
from rudel.train.diloco.forms import FLOATS, INTEGERS, Form, largest

Arrays = Sequence[np.ndarray]
"""One float32 array for each variable of a model."""

Shapes = Sequence[tuple[int, ...]]
"""Their shapes."""

_CHECKSUM = struct.Struct("<I")
_TOO_SMALL_TO_CHOOSE = 1024
_KEPT = 0.65
_MOST = 1e30
_NAMES = "float32, float16, bfloat16, int8, int4 or topk:SHARE:BITS, as topk:0.05:2"


@dataclass(frozen=True)
class Codec:
    """How deltas travel.

    Args:
        name: what `make_codec` makes it from; both sides must have the same.
        init: (shapes) -> residuals.
        encode: (deltas, residuals) -> (message, next residuals). Raises NonFiniteError.
        decode: (message, shapes) -> float32 arrays. Raises ValueError for what `encode` cannot have written.

    >>> codec = make_codec("int8")
    >>> deltas = [np.array([[1, 2], [3, 127]], np.float32)]
    >>> message, residuals = codec.encode(deltas, codec.init([(2, 2)]))
    >>> len(message), codec.decode(message, [(2, 2)])[0].tolist()
    (16, [[1.0, 2.0], [3.0, 127.0]])
    """

    name: str
    init: Callable[[Shapes], list[np.ndarray]]
    encode: Callable[[Arrays, Arrays], tuple[bytes, list[np.ndarray]]]
    decode: Callable[[bytes, Shapes], list[np.ndarray]]


def make_codec(name: str) -> Codec:
    """The codec of this name.

    Args:
        name: float32, float16, bfloat16, int8, int4, topk:SHARE:BITS or topk:SHARE:BITS:KEPT, with 0 < SHARE <= 1,
            1 to 8 BITS and 0 <= KEPT <= 1.

    Raises:
        OptionError: there is none of this name, or not with these numbers.

    >>> codec = make_codec("topk:0.05:2")
    >>> deltas = [np.random.default_rng(0).normal(size=100_000).astype(np.float32)]
    >>> message, residuals = codec.encode(deltas, codec.init([(100_000,)]))
    >>> round(8 * len(message) / (0.05 * 100_000))  # bits an element, its place included
    8
    >>> sent = codec.decode(message, [(100_000,)])
    >>> bool(np.all(sent[0] + residuals[0] == deltas[0]))
    True
    """
    kind, *numbers = name.split(":")
    if kind == "topk":
        share, bits, kept = _topk_numbers(name, numbers)
        chosen, rounded = largest(share, bits), INTEGERS["int8"]
        return _codec(name, lambda shape: rounded if math.prod(shape) < _TOO_SMALL_TO_CHOOSE else chosen, kept)
    form = (FLOATS | INTEGERS).get(name)
    if form is None:
        raise OptionError(f"There is no codec {name!r}: it can be {_NAMES}.")
    return _codec(name, lambda shape: form)


def _topk_numbers(name: str, numbers: Sequence[str]) -> tuple[float, int, float]:
    try:
        share, bits = float(numbers[0]), int(numbers[1])
        (kept,) = map(float, numbers[2:] or (_KEPT,))
    except (IndexError, ValueError):
        share, bits, kept = 0.0, 0, 0.0
    if not 0 < share <= 1 or not 1 <= bits <= 8 or not 0 <= kept <= 1:
        raise OptionError(
            f"The codec {name!r} must be topk:SHARE:BITS or topk:SHARE:BITS:KEPT, with a share above 0 and up to 1, "
            "1 to 8 bits, and 0 to 1 of the residuals kept, as topk:0.05:2."
        )
    return share, bits, kept


def _codec(name: str, form_of: Callable[[tuple[int, ...]], Form], kept: float = 1.0) -> Codec:
    """A codec that writes each array in the form for its shape, after a checksum that also tells codecs apart."""
    seed = zlib.crc32(name.encode())

    def init(shapes: Shapes) -> list[np.ndarray]:
        return [np.zeros(shape, np.float32) for shape in shapes]

    def encode(deltas: Arrays, residuals: Arrays) -> tuple[bytes, list[np.ndarray]]:
        parts, left = [], []
        for number, (delta, residual) in enumerate(zip(deltas, residuals, strict=True)):
            total = np.add(delta, residual if kept == 1 else residual * np.float32(kept), dtype=np.float32)
            if not (np.max(total, initial=0) <= _MOST and np.min(total, initial=0) >= -_MOST):
                raise NonFiniteError(
                    f"The change of weight array {number} in a round is NaN, infinite or above {_MOST:g}: "
                    "lower the learning rate, clip the gradients (clipnorm=1.0 in the optimizer), or look for outliers "
                    "in the data."
                )
            part, rest = form_of(total.shape).write(total)
            parts.append(part)
            left.append(rest)
        body = b"".join(parts)
        return _CHECKSUM.pack(zlib.crc32(body, seed)) + body, left

    def decode(message: bytes, shapes: Shapes) -> list[np.ndarray]:
        reader = Reader(message)
        (checksum,) = reader.fields(_CHECKSUM)
        if checksum != zlib.crc32(memoryview(message)[_CHECKSUM.size :], seed):
            raise ValueError(f"The message is damaged, or was not written by the codec {name!r}.")
        arrays = [form_of(tuple(shape)).read(reader, tuple(shape)) for shape in shapes]
        reader.end()
        return arrays

    return Codec(name, init, encode, decode)
