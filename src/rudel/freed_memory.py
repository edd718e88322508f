"""What becomes of memory that was freed: whether the operating system gets it back (glibc)."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of glibc's malloc.h


def release_freed_memory() -> None:
    """Gives memory that was freed back to the system, where the C library keeps it.

    Compiling takes and frees tens of megabytes, which small computers can use better.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Lets the C library keep what is freed from now on, up to 100 MB, in pieces of up to 30 MB.

    What is computed with weights round by round takes and frees the same pieces: each that came from the system again
    would cost hundreds of page faults.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_TRIM_THRESHOLD, 100_000_000)
        option(_MMAP_THRESHOLD, 30_000_000)
