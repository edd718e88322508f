"""What is freed stays at hand where that was requested, and goes back to the system where it was not."""

import platform
import subprocess
import sys

import pytest

PAGE_FAULTS = """
import ctypes, resource, sys
from rudel.freed_memory import keep_freed_memory, release_freed_memory

if "keep" in sys.argv:
    keep_freed_memory()
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def take_and_free():
    pieces = [library.malloc(4 << 20) for _ in range(3)]
    for piece in pieces:
        library.memset(piece, 1, 4 << 20)
    for piece in pieces:
        library.free(piece)

take_and_free()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    take_and_free()
    if "release" in sys.argv:
        release_freed_memory()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*how: str) -> int:
    """Page faults of taking and freeing 12 MB ten times."""
    ran = subprocess.run([sys.executable, "-c", PAGE_FAULTS, *how], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides by itself: try it on glibc")
def test_what_is_freed_is_kept_or_released() -> None:
    kept = faults("keep")
    assert 3 * kept < faults()
    assert 3 * kept < faults("keep", "release")
