"""What tests of emulated boards need of the system."""

import shutil

from missing import skip_or_fail

from rudel.micro.bench.boards import core
from rudel.micro.bench.tools import PACKAGES


def needs_board(target: str = "cortex-m4") -> None:
    """Skips a test where the cross compiler or the emulator of a target is missing; fails it in CI."""
    missing = [name for name in core(target).programs if shutil.which(name) is None]
    if missing:
        packages = " ".join(PACKAGES[name] for name in missing)
        skip_or_fail(f"{' and '.join(missing)} needed: apt-get install {packages}")
