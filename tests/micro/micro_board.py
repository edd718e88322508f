"""What tests of emulated boards need of the system."""

import os
import shutil

import pytest

COMMAND = "apt-get install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi"


def needs_board() -> None:
    """Skips a test where the cross compiler or the emulator is missing; fails it in CI."""
    missing = [name for name in ("arm-none-eabi-gcc", "qemu-system-arm") if shutil.which(name) is None]
    if missing:
        message = f"{' and '.join(missing)} needed: {COMMAND}"
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(message)
        pytest.skip(message)
