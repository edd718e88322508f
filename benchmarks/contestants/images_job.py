"""What contestants at converting photographs share: the job, and the answer."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JOB: dict[str, Any] = json.loads(sys.argv[1])
CLASSES = sorted(path.name for path in Path(JOB["data"]).iterdir())
VALIDATION = 0.1


def answer(convert: Callable[[Path], int], **more: Any) -> None:
    """Converts a few times, the first of which is reported by itself, and prints what that took.

    Args:
        convert: writes records into an empty folder and returns how many.
        more: what else to tell.
    """
    seconds, cpu, records, out = [], [], 0, Path(JOB["out"])
    for number in range(1 + JOB["conversions"]):
        out = Path(JOB["out"]) / f"{number}"
        out.mkdir(parents=True)
        began, used = time.perf_counter(), time.process_time()
        records = convert(out)
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    first, *later = seconds
    numbers = {
        "seconds": statistics.median(later),
        "first_seconds": first,
        "cpu_seconds": statistics.median(cpu),
        "records": records,
        "files": _sizes(out),
    }
    print(json.dumps(numbers | more))


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.tfrecord"))}
