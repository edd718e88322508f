"""What a test does that lacks something of the machine; in fixtures and tests, `lacking` of conftest.py is the same."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(message: str) -> NoReturn:
    """Skips the test and says what it lacks; in CI, where nothing may be missing, fails it."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(message)
    pytest.skip(message)
