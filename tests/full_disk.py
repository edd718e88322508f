"""A disk that is full, for tests of what is left then."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def full_disk(most: int) -> Iterator[None]:
    """Lets no file of this process grow beyond so many bytes, as on a full disk, for as long as the block lasts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
