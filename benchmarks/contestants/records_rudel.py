"""Reads records as `rudel.Records` does: `python records_rudel.py JOB`, see records.py."""

import json
import resource
import sys
import time
from typing import Any

import numpy as np
from records_photographs import augmented, timed

import rudel
from rudel.data.photographs import decode


def main() -> None:
    """Reads what the job says, and prints the seconds a record took."""
    job = json.loads(sys.argv[1])
    task = {"bytes": small, "photographs": photographs, "memory": memory}[job["task"]]
    print(json.dumps(task(job)))


def small(job: dict[str, Any]) -> dict[str, Any]:
    """Records of 784 bytes and a label."""
    began = time.perf_counter()
    records = rudel.Records(job["folder"])
    opened = time.perf_counter() - began
    mapped = records.map(lambda f: (f["image"].reshape(-1, 28, 28), f["label"]), batched=True)
    batches = mapped.shuffle(0).batch(job["batch_size"]).prefetch(16)
    return timed(lambda: sum(len(batch) for batch in batches), job["seconds"]) | {"open_seconds": opened}


def photographs(job: dict[str, Any]) -> dict[str, Any]:
    """Photographs, decoded and augmented."""

    def example(features: dict[str, Any]) -> tuple[np.ndarray, int]:
        return augmented(decode(features["image/encoded"], 100, 100)), features["image/class/label"]

    # at once, as a training that takes longer than this has them after two seconds
    records = rudel.Records(job["folder"], features=["image/encoded", "image/class/label"], processes=True).map(example)
    batches = records.shuffle(0).batch(job["batch_size"]).prefetch(4)
    return timed(lambda: sum(len(batch) for batch in batches), job["seconds"])


def memory(job: dict[str, Any]) -> dict[str, Any]:
    """Many gigabytes in random order; `resident` is the memory in use at each tenth of the way."""
    records = rudel.Records(job["folder"])
    batches = records.shuffle(0).batch(job["batch_size"]).prefetch(2)
    began, resident = time.perf_counter(), []
    for number, _ in enumerate(batches):
        if number % (len(batches) // 10) == 0:
            resident.append(_resident())
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds / len(records), "peak_bytes": peak, "resident": resident}


def _resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
