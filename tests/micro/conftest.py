import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def gcc(lacking: Callable[[str], NoReturn]) -> str:
    """The C compiler of the tests, which want its warnings and sanitizers."""
    found = shutil.which("gcc")
    if found is None:
        lacking("There is no gcc: apt-get install gcc")
    return found


@pytest.fixture(scope="session")
def interpreters(lacking: Callable[[str], NoReturn]) -> None:
    """LiteRT and TensorFlow Lite Micro, to compare with."""
    for module, package in (("ai_edge_litert", "ai-edge-litert"), ("tflite_micro", "tflite-micro")):
        try:
            __import__(module)
        except ImportError:
            lacking(f"There is no {package}: pip install {package}")
