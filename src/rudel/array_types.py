"""Types of arrays with their dtype and axes, as `Float32[np.ndarray, "steps batch"]`, in the notation of jaxtyping.

Axes of the same name have the same length in a call; `...` is any number of axes, and `*name` any number with a name.
They are documentation that the tests check in every call (`tests/array_checks.py`). Only development needs jaxtyping:
without it, a type is the array's class, so that a host needs no package for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int8, Int16, Int32, Int64, Integer, Num, Shaped, UInt8, UInt16, UInt32
else:
    try:
        from jaxtyping import Float, Float32, Int8, Int16, Int32, Int64, Integer, Num, Shaped, UInt8, UInt16, UInt32
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Float = Float32 = Int8 = Int16 = Int32 = Int64 = Integer = Num = Shaped = UInt8 = UInt16 = UInt32 = _Unchecked

__all__ = [
    "Float", "Float32", "Int8", "Int16", "Int32", "Int64", "Integer", "Num", "Shaped", "UInt8", "UInt16", "UInt32",
]  # fmt: skip
