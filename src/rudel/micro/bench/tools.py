"""The programs that the bench needs, and what to do where one is missing."""

import shutil

from rudel.errors import RudelError


class BenchError(RudelError):
    """A measurement that could not be taken."""


PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-nm": "binutils-arm-none-eabi",
    "arm-none-eabi-objdump": "binutils-arm-none-eabi",
    "arm-none-eabi-size": "gcc-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-riscv32": "qemu-system-misc",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
    "riscv64-unknown-elf-size": "gcc-riscv64-unknown-elf",
}
"""Programs, and the packages of Debian that bring them."""


def program(name: str) -> str:
    """The path of one of these programs.

    Raises:
        BenchError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"`{name}` is needed and is not installed: apt-get install {PACKAGES[name]}.")
    return path
