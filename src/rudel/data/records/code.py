"""A fingerprint of a function: of its code, of the values that it was made with, and of the functions that it calls."""

import copyreg
import functools
import hashlib
import random
import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from rudel.data.stream import Stream

_PLAIN = (str, bytes, int, float, complex, bool, type(None), types.EllipsisType, range, slice)
_RANDOM = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def code_fingerprint(function: Callable[..., Any]) -> str:
    """A short text that is another one if the function does something else.

    Looked at are its bytecode and constants, default arguments, values it closes over, and the functions and plain
    values of its own module that it names. What lies in other modules counts by name alone, objects by their type and
    what a copy of them would be made of: those that cannot be copied, and random generators, by their type alone. So a
    change in a library is not noticed, and another version of Python may give another fingerprint.

    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 1)
    True
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 2)
    False
    """
    digest = hashlib.sha256()
    _Visit(digest.update).value(function)
    return digest.hexdigest()[:32]


class _Visit:
    """Gives `add` all that a function depends on, each thing once."""

    def __init__(self, add: Callable[[bytes], object], seen: dict[int, Any] | None = None) -> None:
        self._add = add
        self._seen = seen or {}

    def value(self, value: object) -> None:
        if isinstance(value, _PLAIN):
            self._add_texts(type(value).__name__, repr(value))
        elif id(value) in self._seen:
            self._add_texts("again")
        else:
            self._seen[id(value)] = value
            self._compound(value)

    def _compound(self, value: object) -> None:
        self._add_texts(type(value).__module__, type(value).__qualname__)
        if isinstance(value, np.ndarray | np.generic):
            array = np.ascontiguousarray(value)
            self._add_texts(str(array.dtype), str(array.shape))
            self.value(array.tolist()) if array.dtype.hasobject else self._add(array.tobytes())
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self.value(value.__func__)
            self.value(value.__self__)
        elif isinstance(value, functools.partial):
            self.value((value.func, value.args, value.keywords))
        elif isinstance(value, dict):
            for key, part in value.items():
                self.value(key)
                self.value(part)
        elif isinstance(value, set | frozenset):
            self._add_texts(*sorted(map(self._text, value)))
        elif isinstance(value, list | tuple):
            self._add_texts(str(len(value)))
            for part in value:
                self.value(part)
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            self._add_texts(getattr(value, "__module__", None) or "", getattr(value, "__qualname__", value.__name__))
        else:
            self.value(_parts(value))
            self.value(next((vars(kind)["__call__"] for kind in type(value).__mro__ if "__call__" in vars(kind)), None))

    def _function(self, function: types.FunctionType) -> None:
        self._code(function.__code__)
        self.value((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                self.value(cell.cell_contents)
            except ValueError:
                self._add_texts("not yet bound")
        for name in _names(function.__code__):
            named = function.__globals__.get(name)
            is_own = getattr(named, "__module__", None) == function.__module__
            if isinstance(named, str | bytes | int | float | tuple | np.ndarray) or (
                isinstance(named, types.FunctionType) and is_own
            ):
                self._add_texts(name)
                self.value(named)

    def _code(self, code: types.CodeType) -> None:
        self._add(code.co_code)
        self._add_texts(*code.co_names, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        for constant in code.co_consts:
            self.value(constant)

    def _text(self, value: object) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        digest = hashlib.sha256()
        _Visit(digest.update, dict(self._seen)).value(value)
        return digest.hexdigest()

    def _add_texts(self, *texts: str) -> None:
        self._add("\0".join((*texts, "")).encode("utf-8", "surrogateescape"))


def without_numbers(text: str) -> str:
    """A text without what changes from call to call: Keras' numbers at the ends of names, and addresses in memory.

    >>> without_numbers("{'name': 'dense_1', 'activation': <function relu at 0x7f00>}")
    "{'name': 'dense', 'activation': <function relu>}"
    """
    return re.sub(r"(_\d+(?=['\"])| at 0x[0-9a-f]+)", "", text)


def _parts(value: Any) -> Any:
    """The values that tell an object from others of its type, as far as they are known."""
    if isinstance(value, Stream):
        return value.fingerprint()
    if (wrapped := getattr(value, "__dict__", {}).get("__wrapped__")) is not None:  # by a cache, or by `jax.jit`
        return wrapped
    if isinstance(value, _RANDOM):  # their state changes with every number
        return ()
    try:
        if any(kind.__module__.startswith("keras.") for kind in type(value).__mro__):  # whose copies have a date
            weights = [np.asarray(weight) for weight in getattr(value, "weights", ())]
            return without_numbers(repr(value.get_config())), weights
        reduce: Any = copyreg.dispatch_table.get(type(value))
        made: Any = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception:  # whatever an object raises that cannot be copied
        return ()
    if isinstance(made, str):
        return made
    maker, arguments, state, items, pairs = (*made, None, None, None)[:5]
    name = getattr(maker, "__module__", None), getattr(maker, "__qualname__", type(maker).__qualname__)
    return name, arguments, state, [*(items or ())], [*(pairs or ())]


def _names(code: types.CodeType) -> list[str]:
    """The global names that some code may look up, also in functions inside it, sorted."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_names(constant))
    return sorted(names)
