"""The decoder alone: what it can do with the same photographs in memory, `python records_photographs.py JOB`.

The job's `kind` is `threads` or `processes`; there are as many as cores.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

from rudel.data.photographs import decode

_AT_ONCE = 64


def main() -> None:
    """Decodes what the job says, and prints the seconds a photograph took."""
    import rudel
    from rudel.cores import usable_cores

    job = json.loads(sys.argv[1])
    records = rudel.Records(job["folder"], features=["image/encoded"])
    contents = [records[i]["image/encoded"] for i in range(len(records))]
    parts = [contents[begin : begin + _AT_ONCE] for begin in range(0, len(contents), _AT_ONCE)]
    kind = {"threads": ThreadPoolExecutor, "processes": ProcessPoolExecutor}[job["kind"]]
    with kind(usable_cores()) as workers:
        print(json.dumps(timed(lambda: _decoded(workers, parts), job["seconds"])))


def augmented(picture: np.ndarray) -> np.ndarray:
    """Flipped at random, and cropped after four rows and columns were added all around."""
    if random.random() < 0.5:
        picture = picture[:, ::-1]
    height, width, channels = picture.shape
    top, left = random.randrange(9) - 4, random.randrange(9) - 4
    moved = np.zeros((height, width, channels), picture.dtype)
    to_rows, from_rows = _overlap(height, top)
    to_columns, from_columns = _overlap(width, left)
    moved[to_rows, to_columns] = picture[from_rows, from_columns]
    return moved


def timed(epoch: Callable[[], int], seconds: float) -> dict[str, Any]:
    """Runs an epoch to warm up, and then as many as fit into some seconds; seconds an example took."""
    epoch()
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        count += epoch()
    return {"seconds": passed / count, "examples": count}


def _overlap(size: int, by: int) -> tuple[slice, slice]:
    return slice(max(by, 0), size + min(by, 0)), slice(max(-by, 0), size - max(by, 0))


def _decoded(workers: Executor, parts: Sequence[Sequence[bytes]]) -> int:
    return sum(workers.map(_decode_all, parts))


def _decode_all(contents: Sequence[bytes]) -> int:
    for content in contents:
        augmented(decode(content, 100, 100))
    return len(contents)


if __name__ == "__main__":
    main()
