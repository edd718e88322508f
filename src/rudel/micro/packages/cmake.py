"""A CMake project of one static library, for `add_subdirectory` or `FetchContent`.

    NAME/CMakeLists.txt
    NAME/include/NAME.h
    NAME/src/NAME.c

A program takes it by `add_subdirectory(NAME)` and `target_link_libraries(program PRIVATE NAME::NAME)`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rudel.errors import CompileError
from rudel.micro.packages.folder import write_files

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled


_RESERVED = frozenset(
    """
    all all_build clean depend edit_cache help install list_install_components package package_source preinstall
    rebuild_cache run_tests test zero_check
    """.split()  # noqa: SIM905
)


def check_target(name: str) -> None:
    """Refuses a model whose name CMake gives to a target of its own.

    Raises:
        CompileError: says so.
    """
    if name.lower() in _RESERVED:
        raise CompileError(f"`{name}` is the name of a target of CMake's own: choose another name for the model.")


def in_folders(texts: Mapping[str, str]) -> dict[str, str]:
    """C files by their places in a package: headers in `include`, sources in `src`."""
    return {f"{'include' if name.endswith('.h') else 'src'}/{name}": text for name, text in texts.items()}


def write_cmake(compiled: "Compiled", folder: Path, more: Mapping[str, str] | None = None) -> list[Path]:
    """Writes a CMake project.

    Args:
        compiled: the model.
        folder: the folder of the project, which is made if it is not there.
        more: texts of further C sources and headers by the names of their files.

    Returns:
        The files.

    Raises:
        CompileError: the folder cannot be written, or CMake needs the model's name for itself.
    """
    name = compiled.name
    check_target(name)
    files = in_folders({f"{name}.h": compiled.header, f"{name}.c": compiled.source} | dict(more or {}))
    listed = " ".join(path for path in files if path.endswith(".c"))
    return write_files(
        folder,
        {
            "CMakeLists.txt": f"""cmake_minimum_required(VERSION 3.13)
project({name} LANGUAGES C)

add_library({name} STATIC {listed})
add_library({name}::{name} ALIAS {name})
target_include_directories({name} PUBLIC include)
target_compile_features({name} PUBLIC c_std_99)
""",
            **files,
        },
    )
