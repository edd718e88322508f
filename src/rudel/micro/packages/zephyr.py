"""A Zephyr module.

    NAME/zephyr/module.yml, CMakeLists.txt, Kconfig
    NAME/include/NAME.h
    NAME/src/NAME.c

An application takes it by `-DZEPHYR_EXTRA_MODULES=/path/to/NAME`, or by a project in its west manifest, and by
`CONFIG_MODEL_NAME=y`. Source of the layout: "Modules (External projects)" in Zephyr's documentation.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rudel.micro.packages.cmake import check_target, in_folders
from rudel.micro.packages.folder import write_files

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled


def write_zephyr(compiled: "Compiled", folder: Path, more: Mapping[str, str] | None = None) -> list[Path]:
    """Writes a Zephyr module.

    Args:
        compiled: the model.
        folder: the folder of the module, which is made if it is not there.
        more: texts of further C sources and headers by the names of their files.

    Returns:
        The files.

    Raises:
        CompileError: the folder cannot be written, or CMake needs the model's name for itself.
    """
    name = compiled.name
    check_target(name)
    option = f"MODEL_{name.upper()}"
    files = in_folders({f"{name}.h": compiled.header, f"{name}.c": compiled.source} | dict(more or {}))
    listed = " ".join(f"../{path}" for path in files if path.endswith(".c"))
    return write_files(
        folder,
        {
            "zephyr/module.yml": f"name: {name}\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n",
            "zephyr/CMakeLists.txt": f"""if(CONFIG_{option})
  zephyr_include_directories(../include)
  zephyr_library_named({name})
  zephyr_library_sources({listed})
endif()
""",
            "zephyr/Kconfig": f"""config {option}
\tbool "The neural network {name}"
\thelp
\t  A neural network as plain C, without an interpreter. It takes
\t  {compiled.weights_bytes} bytes of flash for its weights and {compiled.arena_bytes} bytes of RAM.
""",
            **files,
        },
    )
