"""Numbers and texts as C reads them again, bit for bit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def float_literal(value: "float | np.floating") -> str:
    """Returns a float32 in C, exactly; those of infinities and NaN need `math.h`.

    >>> float_literal(0.1), float_literal(2), float_literal(float("-inf"))
    ('0.1f', '2.0f', '-HUGE_VALF')
    """
    import numpy as np

    text = str(np.float32(value))
    if text in ("inf", "-inf", "nan"):
        return {"inf": "HUGE_VALF", "-inf": "-HUGE_VALF", "nan": "NAN"}[text]
    return (text if any(letter in text for letter in ".en") else text + ".0") + "f"


def c_string(text: str) -> str:
    """A literal of C with the bytes of a text in UTF-8."""
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '"\\?'}
    return '"' + "".join(plain.get(byte) or f"\\{byte:03o}" for byte in text.encode()) + '"'
