"""A compiled model in the forms that other build systems take: each function writes a folder that is ready to use."""

from rudel.micro.packages.arduino import write_arduino
from rudel.micro.packages.cmake import write_cmake
from rudel.micro.packages.wasm import write_wasm
from rudel.micro.packages.zephyr import write_zephyr

__all__ = ["write_arduino", "write_cmake", "write_wasm", "write_zephyr"]
