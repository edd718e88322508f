import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def _missing(message: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def gcc() -> str:
    """The C compiler of the tests, which want its warnings and sanitizers."""
    found = shutil.which("gcc")
    if found is None:
        _missing("There is no gcc: apt-get install gcc")
    return str(found)


@pytest.fixture(scope="session")
def interpreters() -> None:
    """LiteRT and TensorFlow Lite Micro, to compare with."""
    for module, package in (("ai_edge_litert", "ai-edge-litert"), ("tflite_micro", "tflite-micro")):
        try:
            __import__(module)
        except ImportError:
            _missing(f"There is no {package}: pip install {package}")
