"""Returns freed memory to the operating system."""

import ctypes


def release_freed_memory() -> None:
    """Gives memory that was freed back to the system, where the C library keeps it (glibc).

    Compiling takes and frees tens of megabytes, which small computers can use better.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
