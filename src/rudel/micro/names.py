"""Prefixes of the names in a model's C, and how they come into texts of kernels and calls.

Kernels and steps are templates (see `rudel.micro.emit`): `rudel_` and `RUDEL_` in them stand for what all names of the
model begin with, `$key` for the name of an array or a pointer. Both are filled in at once, so what a user calls a model
is never searched for either.
"""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from rudel.errors import CompileError

_PLACE = re.compile(r"\$(\w+)|\b(rudel|RUDEL)_")

_REFUSED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    """.split()  # noqa: SIM905
)

_HEADERS = frozenset(
    """
    alloca assert complex ctype endian errno features fenv float ieeefp inttypes iso646 limits locale math memory
    newlib picolibc pthread sched setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib
    stdnoreturn string strings tgmath threads time uchar unistd wchar wctype
    arduino eeprom pdm spi wire
    """.split()  # noqa: SIM905
)
"""Headers of the C library, and of Arduino's core and its libraries, in lower case."""


def filled(template: str, name: str, values: Mapping[str, str] | None = None) -> str:
    """Returns the C of a template.

    Args:
        template: the text of a kernel, a call or a table.
        name: what the model's names begin with.
        values: what each `$key` stands for.

    >>> filled("rudel_dense($in0, $weights, RUDEL_SIZE);", "my_rudel_net", {"in0": "x", "weights": "my_rudel_net_w0"})
    'my_rudel_net_dense(x, my_rudel_net_w0, MY_RUDEL_NET_SIZE);'
    """
    prefixes = {"rudel": f"{name}_", "RUDEL": f"{name.upper()}_"}
    return _PLACE.sub(lambda found: (values or {})[found[1]] if found[1] else prefixes[found[2]], template)


def name_of(path: Path) -> str:
    """Returns a name for C made of a file's name.

    >>> name_of(Path("models/2-layer net.tflite")), name_of(Path("sine.int8.tflite"))
    ('model_2_layer_net', 'sine_int8')
    """
    return checked_name(identifier(path.stem).lower())


def checked_name(name: str) -> str:
    """Returns a name if names in C can start with it, and files have it.

    Raises:
        CompileError: they cannot.
    """
    if (
        not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
        or name in _REFUSED
        or keyword.iskeyword(name)
        or len(name) > 60
    ):
        raise CompileError(f"`{name[:60]}` cannot be a name in C: use letters, digits and underscores, a letter first.")
    if name.lower() in _HEADERS:
        raise CompileError(
            f"`{name}` cannot be the name of a model in C, as its header {name}.h would hide that of the C library or "
            "of Arduino: choose another name."
        )
    return name


def identifier(text: str) -> str:
    """Returns a text as a name in C.

    >>> identifier("wake word 2"), identifier("2nd"), identifier("")
    ('wake_word_2', 'model_2nd', 'model')
    """
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return name if name and not name[0].isdigit() else f"model_{name}".rstrip("_")
