"""A library for Arduino and PlatformIO: the model, and a sketch that uses it.

    NAME/library.properties
    NAME/library.json
    NAME/src/NAME.h, NAME.c
    NAME/examples/NAME/NAME.ino

The folder belongs into `libraries` of the sketchbook, or goes as a ZIP file through "Add .ZIP Library". The sketch then
is found under File, Examples. Nothing in it is special to a board; the model is plain C99, so any Arduino does whose
compiler has 32-bit integers and whose flash and RAM are large enough. In PlatformIO, the folder belongs into `lib` of a
project.

Sources of the layout: Arduino's library specification, revision 2.2, and PlatformIO's `library.json`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rudel.errors import CompileError
from rudel.micro.packages.folder import write_files
from rudel.micro.packages.sketches import sine_sketch, timing_sketch

if TYPE_CHECKING:
    from rudel.micro.compiler import Compiled

Example = Literal["timing", "sine"]
"""Which sketch: one that times the model and prints its outputs, or one whose LED follows a sine."""


def write_arduino(
    compiled: "Compiled",
    folder: Path,
    more: Mapping[str, str] | None = None,
    *,
    example: Example = "timing",
    sketch: str = "",
) -> list[Path]:
    """Writes an Arduino library.

    Args:
        compiled: the model.
        folder: the folder of the library, which is made if it is not there.
        more: texts of further C sources and headers by the names of their files.
        example: "sine" for a model of one number in and one out that has learned sin x on [0, 2 pi]; "timing" for any.
        sketch: the text of a sketch that takes the place of the example.

    Returns:
        The files.

    Raises:
        CompileError: the folder cannot be written, or the example does not fit the model.
    """
    name = compiled.name
    if example not in ("timing", "sine"):
        raise CompileError(f"There is no example {example!r} for Arduino: it can be timing or sine.")
    sketch = sketch or (sine_sketch(compiled) if example == "sine" else timing_sketch(compiled))
    return write_files(
        folder,
        {
            "library.properties": _properties(compiled),
            "library.json": _manifest(compiled),
            f"src/{name}.h": compiled.header,
            f"src/{name}.c": compiled.source,
            **{f"src/{file}": text for file, text in (more or {}).items()},
            f"examples/{name}/{name}.ino": sketch,
        },
    )


_VERSION = "1.0.0"


def _sentence(compiled: "Compiled") -> str:
    return f"The neural network {compiled.name} as plain C, without an interpreter."


def _needs(compiled: "Compiled") -> str:
    return f"Needs {compiled.weights_bytes:,} bytes of flash for its weights and {compiled.arena_bytes:,} bytes of RAM."


def _manifest(compiled: "Compiled") -> str:
    """Makes the `library.json` of PlatformIO."""
    name = compiled.name
    manifest = {
        "name": name,
        "version": _VERSION,
        "description": f"{_sentence(compiled)} {_needs(compiled)}",
        "keywords": ["neural network", "tinyml"],
        "authors": [{"name": "Rudel"}],
        "headers": f"{name}.h",
        "frameworks": "*",
        "platforms": "*",
        "examples": [{"name": name, "base": f"examples/{name}", "files": [f"{name}.ino"]}],
    }
    return json.dumps(manifest, indent=2) + "\n"


def _properties(compiled: "Compiled") -> str:
    name = compiled.name
    return f"""name={name}
version={_VERSION}
author=Rudel
maintainer=Rudel
sentence={_sentence(compiled)}
paragraph={_needs(compiled)}
category=Data Processing
url=
architectures=*
includes={name}.h
"""
