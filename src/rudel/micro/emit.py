"""The form of operators before they are C: steps, kernels and constants.

A *step* is one call in `NAME_invoke`. It names the *kernels* (static functions, written once however many steps call
them) and the *constants* (arrays) that it needs, the scratch memory that it wants from the arena, and how far its
input and output may overlap there. Texts of kernels, calls and tables are templates: every name in them that others
could clash with starts with `rudel_` or `RUDEL_`, for which `rudel.micro.names.filled` puts the model's own name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rudel.micro.arithmetic import Rounding
from rudel.micro.graph import Graph, Operator
from rudel.micro.targets import Target

C_TYPES = {
    "float32": "float",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "bool": "uint8_t",
}


@dataclass(frozen=True)
class Kernel:
    """C that is written once: a static function, a type, a macro.

    Attributes:
        name: tells kernels apart.
        text: the C.
        needs: what has to stand before it.
        headers: of C's library, beside `stdint.h` and `string.h`, which are always there.
    """

    name: str
    text: str
    needs: tuple["Kernel", ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Constant:
    """An array in flash.

    Attributes:
        values: its dtype decides the type in C; written flat.
        alignment: bytes; beyond that of the type it is requested from the compiler where that is possible.
    """

    values: np.ndarray
    alignment: int = 1

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers of C's library that the values need: infinities and NaN have names that `math.h` defines."""
        finite = self.values.dtype.kind != "f" or bool(np.isfinite(self.values).all())
        return () if finite else ("math.h",)

    @property
    def key(self) -> tuple[str, bytes, int]:
        """Equal for equal arrays, which are written once."""
        return str(self.values.dtype), self.values.tobytes(), self.alignment


@dataclass(frozen=True)
class Overlap:
    """The memory that an input and an output of a step may share.

    Attributes:
        lead: they may when the input starts at least so many bytes after the output starts (it may be negative: then
            they may start together); None: never so.
        together: they may when they start at the very same place.
    """

    lead: int | None = None
    together: bool = False


FORWARD = Overlap(lead=0)
"""For kernels that go through input and output alike from the start, and read each element before they write it."""


@dataclass(frozen=True)
class Bands:
    """A call of a step for some rows of its output alone: by other values in its structure `layer`.

    Attributes:
        structure: its type in C, with `height`, `top` and the number of rows of the output; or with `pixels` in their
            place, for a kernel that takes pixels one by one.
        rows: name of the field with the number of rows; None where there is `pixels`.
        top: type of the field `top`.
        in_place: what the step says of its first input and output holds for bands, too.
    """

    structure: str
    rows: str | None = "rows"
    top: str = "int16_t"
    in_place: bool = False


@dataclass(frozen=True)
class Step:
    """One call in the invocation.

    Attributes:
        operator: what it computes.
        call: C statements; `$in0`, `$out0` are pointers to tensors, `$scratch` one to the scratch memory (int8_t *),
            and every key of `constants` and `tables` after a `$` stands for the name of that array.
        kernels: functions that the call needs.
        constants: arrays that the call needs.
        tables: texts of C that define constants of other types (structures), by placeholder; `$name` in them is the
            name they get, the keys of `constants` are as in `call`.
        scratch: bytes of scratch memory.
        overlap: by (position of the input, position of the output).
        macs: multiplications and additions.
        alias: the output has the bytes of the input: nothing is to be done where they can lie at one place.
        reads: positions of the inputs that the call has pointers to; constant ones among them become arrays.
        bands: how it computes some rows alone; None where it cannot.
    """

    operator: Operator
    call: str
    kernels: tuple[Kernel, ...] = ()
    constants: Mapping[str, Constant] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    scratch: int = 0
    overlap: Mapping[tuple[int, int], Overlap] = field(default_factory=dict)
    macs: int = 0
    alias: bool = False
    reads: tuple[int, ...] = (0,)
    bands: Bands | None = None


@dataclass(frozen=True)
class Context:
    """The context of lowering, beyond the operator and its graph.

    Attributes:
        rounding: whose bits to give.
        target: what C is compiled for.
        in_bands: whether the step is to compute some rows of its output alone: its kernel goes through rows then.
    """

    rounding: Rounding = "litert"
    target: Target = field(default_factory=lambda: Target("generic"))
    in_bands: bool = False


def lead_of_rows(reads: np.ndarray, written: np.ndarray) -> int:
    """Returns the least lead of a kernel that works through its output from the start.

    Args:
        reads: int64, for each unit of work in order, the offset in the input of the first byte that it reads.
        written: int64, for each unit of work, the offset in the output after the last byte that it writes.

    Whatever unit p writes must not be needed by p or later units: out + written[p] <= in + min(reads[p:]).
    """
    ahead = np.minimum.accumulate(reads[::-1])[::-1]
    return int((written - ahead).max(initial=0))


Lowering = Callable[[Operator, Graph, Context], Step | None]
"""Makes a step of an operator; None where this way of doing it does not apply."""
