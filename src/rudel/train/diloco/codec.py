"""How changes of weights become bytes and back, and what that leaves out.

A codec is a pair of pure functions. The first turns a vector, such as what local steps have changed since weights were
agreed upon, into a message, and says what will be read from it: both sides know the same. What the message leaves out
stays where it is: a replica keeps it in its weights, where its next steps go on from it, and it is part of the next
change (error feedback); a coordinator adds it to what it sends next. So nothing is lost by rounding or by leaving out.

Names, for the command line and for both sides to agree upon:

    float32               as they are
    float16, bfloat16     rounded to half the bytes
    int8, int4            rounded to whole numbers, with a scale for every 256 elements
    top8, top16           the largest element of every 8 or 16, in a byte; of small arrays, all elements

Where the ideas are from: error feedback, F. Seide and others, *1-bit stochastic gradient descent*, Interspeech 2014,
and why it converges, S. P. Karimireddy and others, 1901.09847; the largest entries, Y. Lin and others, *Deep gradient
compression*, 1712.01887; few bits for the deltas of many local steps (A. Douillard and others, *DiLoCo*, 2311.08105),
A. Douillard and others, *Streaming DiLoCo*, 2501.18512, and A. Sarfi and others, *SparseLoCo*, 2508.15706. Unlike
there, what was not sent is not taken back from a replica's weights until it is: that way, with rounds of 32 steps and
a tenth of the elements, four replicas learn drawings in two thirds of the steps (see docs/how-it-works.md).

Limits: vectors are float32 with fewer than 2**31 elements. A message says nothing of shapes: both sides know the model.
"""

import itertools
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rudel.errors import NonFiniteError, OptionError
from rudel.train.diloco.bits import Reader
from rudel.train.diloco.forms import FORMS, Form
from rudel.train.diloco.vector import MOST, Change, Layout

_CHECKSUM = struct.Struct("<I")
_NAMES = "float32, float16, bfloat16, int8, int4, top8 or top16"


@dataclass(frozen=True)
class Codec:
    """How vectors travel.

    Args:
        name: what `make_codec` makes it from; both sides must have the same.
        encode: (float32 vector, layout) -> (message, what is read from it). Raises NonFiniteError.
        decode: (message, layout) -> change. Raises ValueError for what `encode` cannot have written.

    >>> codec, layout = make_codec("int8"), Layout(((2, 2),))
    >>> message, _ = codec.encode(np.array([1, 2, 3, 127], np.float32), layout)
    >>> len(message), codec.decode(message, layout).values.tolist()
    (12, [1.0, 2.0, 3.0, 127.0])
    """

    name: str
    encode: Callable[[np.ndarray, Layout], tuple[bytes, Change]]
    decode: Callable[[bytes, Layout], Change]


def make_codec(name: str) -> Codec:
    """The codec of this name.

    Args:
        name: float32, float16, bfloat16, int8, int4, top8 or top16.

    Raises:
        OptionError: there is none of this name.

    >>> codec, layout = make_codec("top8"), Layout(((100_000,),))
    >>> vector = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    >>> message, sent = codec.encode(vector, layout)
    >>> len(sent.values), round(8 * len(message) / len(sent.values), 1)  # elements, and bits each
    (12500, 8.0)
    >>> bool(np.all(codec.decode(message, layout).values == sent.values))
    True
    """
    form = FORMS.get(name)
    if form is None:
        raise OptionError(f"There is no codec {name!r}: it can be {_NAMES}.")
    return _codec(name, form)


def _codec(name: str, form: Form) -> Codec:
    """A codec that writes a vector in a form, after a checksum that also tells codecs apart."""
    seed = zlib.crc32(name.encode())

    def encode(vector: np.ndarray, layout: Layout) -> tuple[bytes, Change]:
        try:
            body, change = form.write(vector, layout)
        except FloatingPointError:
            raise NonFiniteError(_not_finite(vector, layout)) from None
        return _CHECKSUM.pack(zlib.crc32(body, seed)) + body, change

    def decode(message: bytes, layout: Layout) -> Change:
        reader = Reader(message)
        (checksum,) = reader.fields(_CHECKSUM)
        if checksum != zlib.crc32(memoryview(message)[_CHECKSUM.size :], seed):
            raise ValueError(f"The message is damaged, or was not written by the codec {name!r}.")
        change = form.read(reader, layout)
        reader.end()
        return change

    return Codec(name, encode, decode)


def _not_finite(vector: np.ndarray, layout: Layout) -> str:
    spans = enumerate(itertools.pairwise(layout.bounds))
    number = next(n for n, (first, last) in spans if not (np.abs(vector[first:last]) <= MOST).all())
    return (
        f"The change of weight array {number} in a round is NaN, infinite or above {MOST:g}: lower the learning rate, "
        "clip the gradients (clipnorm=1.0 in the optimizer), or look for outliers in the data."
    )
