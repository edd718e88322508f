"""The CMake project and the Zephyr module: built by CMake, and as far as that is possible without Zephyr's own tree."""

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from micro_support.oracles import runner
from package_models import dense, missing, run, tool

from rudel.errors import CompileError
from rudel.micro import Compiled, compile_model
from rudel.micro.packages import write_cmake, write_zephyr

CMAKE = "pip install cmake, or apt-get install cmake"

# A program that reads the model's input as numbers, and prints its output.
PROGRAM = """
#include <stdio.h>
#include "layer.h"

int main(void)
{
    int8_t input[LAYER_INPUT_SIZE], output[LAYER_OUTPUT_SIZE];
    int value;
    for (int i = 0; i < LAYER_INPUT_SIZE; i++) {
        if (scanf("%d", &value) != 1) return 1;
        input[i] = (int8_t)value;
    }
    layer_invoke(input, output);
    for (int i = 0; i < LAYER_OUTPUT_SIZE; i++) printf("%d\\n", output[i]);
    return 0;
}
"""

# What Zephyr's documentation says of the functions that a module calls, without a kernel around them.
ZEPHYR = """
cmake_minimum_required(VERSION 3.20)
project(application LANGUAGES C)
macro(zephyr_include_directories)
  foreach(folder ${ARGN})
    get_filename_component(absolute ${folder} ABSOLUTE)
    include_directories(${absolute})
    set_property(GLOBAL APPEND PROPERTY ZEPHYR_INCLUDES ${absolute})
  endforeach()
endmacro()
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC "")
  set_property(GLOBAL APPEND PROPERTY ZEPHYR_LIBS ${name})
endmacro()
macro(zephyr_library_sources)
  foreach(source ${ARGN})
    get_filename_component(absolute ${source} ABSOLUTE)
    target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${absolute})
  endforeach()
endmacro()
add_subdirectory(${MODULE}/zephyr module)
get_property(libraries GLOBAL PROPERTY ZEPHYR_LIBS)
get_property(includes GLOBAL PROPERTY ZEPHYR_INCLUDES)
message(STATUS "libraries: ${libraries}")
if(libraries)
  add_executable(program main.c)
  target_include_directories(program PRIVATE ${includes})
  target_link_libraries(program PRIVATE ${libraries})
endif()
"""


@pytest.fixture
def layer() -> Compiled:
    """One fully connected layer."""
    return compile_model(dense(5, 3), name="layer")


def outputs_of(program: Path, numbers: np.ndarray) -> list[int]:
    """What the program prints for an input."""
    given = "\n".join(map(str, numbers.ravel().tolist()))
    return [
        int(line)
        for line in subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.split()
    ]


def assert_right(program: Path) -> None:
    numbers = np.random.default_rng(0).integers(-128, 128, (1, 5)).astype(np.int8)
    (right,) = runner(dense(5, 3), "litert")([numbers])
    assert outputs_of(program, numbers) == right.ravel().tolist()


def test_a_program_links_the_cmake_project(layer: Compiled, tmp_path: Path) -> None:
    files = write_cmake(layer, tmp_path / "layer")
    assert [path.relative_to(tmp_path / "layer").as_posix() for path in files] == [
        "CMakeLists.txt", "include/layer.h", "src/layer.c",
    ]  # fmt: skip
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(application LANGUAGES C)\nadd_subdirectory(layer)\n"
        "add_executable(program main.c)\ntarget_link_libraries(program PRIVATE layer::layer)\n"
    )
    cmake = tool("cmake", CMAKE)
    run(cmake, "-S", tmp_path, "-B", tmp_path / "build")
    run(cmake, "--build", tmp_path / "build")
    assert_right(tmp_path / "build/program")


def test_the_cmake_project_builds_for_a_microcontroller(layer: Compiled, tmp_path: Path) -> None:
    write_cmake(layer, tmp_path / "layer")
    compiler = tool("arm-none-eabi-gcc", "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    cmake = tool("cmake", CMAKE)
    chosen = {
        "CMAKE_SYSTEM_NAME": "Generic",
        "CMAKE_C_COMPILER": compiler,
        "CMAKE_C_FLAGS": "-mcpu=cortex-m0plus -mthumb",
        "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
    }
    run(cmake, "-S", tmp_path / "layer", "-B", tmp_path / "build", *(f"-D{k}={v}" for k, v in chosen.items()))
    run(cmake, "--build", tmp_path / "build")
    assert (tmp_path / "build/liblayer.a").is_file()


def test_the_zephyr_module_says_where_its_parts_are(layer: Compiled, tmp_path: Path) -> None:
    write_zephyr(layer, tmp_path)
    module = yaml.safe_load((tmp_path / "zephyr/module.yml").read_text())
    assert module["name"] == "layer"
    assert (tmp_path / module["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (tmp_path / module["build"]["kconfig"]).is_file()


def test_kconfig_has_an_option_that_is_off_until_it_is_chosen(layer: Compiled, tmp_path: Path) -> None:
    if importlib.util.find_spec("kconfiglib") is None:
        missing("kconfiglib", "pip install kconfiglib")
    kconfiglib: Any = importlib.import_module("kconfiglib")
    write_zephyr(layer, tmp_path)
    (tmp_path / "Kconfig").write_text('mainmenu "Application"\nrsource "zephyr/Kconfig"\n')
    options = kconfiglib.Kconfig(str(tmp_path / "Kconfig"), warn_to_stderr=False)
    assert not options.warnings
    option = options.syms["MODEL_LAYER"]
    assert (option.str_value, option.orig_type) == ("n", kconfiglib.BOOL)
    assert option.nodes[0].prompt[0] == "The neural network layer"
    assert f"{layer.arena_bytes} bytes of RAM" in option.nodes[0].help
    option.set_value("y")
    assert option.str_value == "y"


@pytest.mark.parametrize("chosen", [True, False])
def test_the_zephyr_module_is_a_library_where_it_is_chosen(layer: Compiled, tmp_path: Path, chosen: bool) -> None:
    write_zephyr(layer, tmp_path / "layer")
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(ZEPHYR)
    cmake = tool("cmake", CMAKE)
    option = ["-DCONFIG_MODEL_LAYER=y"] if chosen else []
    output = run(cmake, "-S", tmp_path, "-B", tmp_path / "build", f"-DMODULE={tmp_path / 'layer'}", *option)
    assert f"libraries: {'layer' if chosen else ''}\n" in output
    if chosen:
        run(cmake, "--build", tmp_path / "build")
        assert_right(tmp_path / "build/program")


@pytest.mark.parametrize("write", [write_cmake, write_zephyr])
@pytest.mark.parametrize("name", ["all", "install", "test", "Clean"])
def test_names_of_targets_that_cmake_has_itself_are_refused(write: Any, name: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=f"`{name}` is the name of a target of CMake's own"):
        write(compile_model(dense(5, 3), name=name), tmp_path / "out")
    assert not (tmp_path / "out").exists()
