"""From .tflite to plain C: the compiler for microcontrollers, and what checks and measures its work."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled, compile_model

__all__ = ["Compiled", "compile_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rudel.micro' has no attribute {name!r}")
    from rudel.micro import compiler

    return getattr(compiler, name)
