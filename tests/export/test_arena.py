"""The arena for TensorFlow Lite Micro: what is estimated is enough, and not far too much."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rudel.export import arena
from rudel.micro.reader import read_model


@pytest.mark.parametrize("name", ["hello_world", "micro_speech", "person_detect"])
def test_the_estimate_is_enough_and_not_far_too_much(
    name: str, shared_data: Path, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("tflite_micro", install="pip install tflite-micro (on x86-64)")
    path = shared_data / f"tflite/{name}_int8.tflite"
    model = path.read_bytes()
    measured = arena.arena_for(model, path, tmp_path)
    estimate = arena.estimated(read_model(model))
    assert measured.measured
    assert measured.bytes % 16 == estimate % 16 == 0
    assert measured.bytes <= estimate <= 1.15 * measured.bytes + 1024
    look = "import sys; from pathlib import Path; from rudel.export.tflm import _run; "
    look += "_run(Path(sys.argv[1]).read_bytes(), int(sys.argv[2]))"
    assert subprocess.run([sys.executable, "-c", look, path, str(estimate)], check=False).returncode == 0


def test_buffers_share_memory_only_when_they_are_not_needed_together() -> None:
    assert arena._greedy([(100, 0, 1), (50, 1, 2), (100, 2, 3)]) == 112 + 64
    assert arena._greedy([(100, 0, 0), (100, 1, 1)]) == 112
    assert arena._greedy([]) == 0
