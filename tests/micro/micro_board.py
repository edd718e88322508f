"""What tests of emulated boards need of the system."""

import shutil

from missing import skip_or_fail

COMMAND = "apt-get install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi"


def needs_board() -> None:
    """Skips a test where the cross compiler or the emulator is missing; fails it in CI."""
    missing = [name for name in ("arm-none-eabi-gcc", "qemu-system-arm") if shutil.which(name) is None]
    if missing:
        skip_or_fail(f"{' and '.join(missing)} needed: {COMMAND}")
