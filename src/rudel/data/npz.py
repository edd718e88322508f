"""Arrays in `.npz` and `.npy` files, which may be damaged in any way."""

from collections.abc import Collection
from pathlib import Path

import numpy as np


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Reads arrays by name; that of an .npy file has the name "".

    Args:
        path: of the file.
        names: of those to read, as far as they are there; None for all.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no such file, or is damaged.
    """
    with path.open("rb") as file:
        try:
            stored = np.load(file, allow_pickle=False)
            found = {"": stored} if isinstance(stored, np.ndarray) else stored
            return {name: found[name] for name in found if names is None or name in names}
        except MemoryError:
            raise
        except Exception as error:  # of NumPy, zipfile, zlib or the system, by where the damage is
            raise ValueError(str(error) or type(error).__name__) from error
