"""A library for Arduino and PlatformIO: the model, and a sketch that uses it.

    NAME/library.properties
    NAME/library.json
    NAME/src/NAME.h, NAME.c; with kernels for DSP instructions also NAME_portable.h, NAME_dsp.h, NAME_dsp.c
    NAME/examples/NAME/NAME.ino

The folder belongs into `libraries` of the sketchbook, or goes as a ZIP file through "Add .ZIP Library". The sketch then
is found under File, Examples. The model is plain C99, so any Arduino does whose compiler has 32-bit integers and whose
flash and RAM are large enough. The compiler chooses the kernels: those for DSP instructions where the core has them
(Nano 33 BLE, RP2350), else those for any core (RP2040, ESP32-C3). In PlatformIO, the folder belongs into `lib` of a
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
"""The kind of sketch: one that times the model and prints its outputs, or one whose LED follows a sine."""


def write_arduino(
    compiled: "Compiled",
    folder: Path,
    more: Mapping[str, str] | None = None,
    *,
    dsp: "Compiled | None" = None,
    example: Example = "timing",
    sketch: str = "",
) -> list[Path]:
    """Writes an Arduino library.

    Args:
        compiled: the model.
        folder: the folder of the library, which is made if it is not there.
        more: texts of further C sources and headers by the names of their files.
        dsp: the same model for cores with DSP instructions, which take this one; None: all take the first.
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
            "library.properties": _properties(compiled, _needs(compiled, dsp, alone=not more)),
            "library.json": _manifest(compiled, _needs(compiled, dsp, alone=not more)),
            **_sources(compiled, dsp),
            **{f"src/{file}": text for file, text in (more or {}).items()},
            f"examples/{name}/{name}.ino": sketch,
        },
    )


_VERSION = "1.0.0"
_HAS_DSP = "defined(__ARM_FEATURE_DSP)"


def _sources(compiled: "Compiled", dsp: "Compiled | None") -> dict[str, str]:
    name = compiled.name
    if dsp is None:
        return {f"src/{name}.h": compiled.header, f"src/{name}.c": compiled.source}
    choice = f'#if {_HAS_DSP}\n#include "{name}_dsp.h"\n#else\n#include "{name}_portable.h"\n#endif\n'
    return {
        f"src/{name}.h": f"/* {name}, with the kernels that suit the core. */\n{choice}",
        f"src/{name}_portable.h": compiled.header,
        f"src/{name}_dsp.h": dsp.header,
        f"src/{name}.c": f'#include "{name}.h"\n#if !{_HAS_DSP}\n{compiled.source}#endif\n',
        f"src/{name}_dsp.c": f'#include "{name}.h"\n#if {_HAS_DSP}\n{dsp.source}#endif\n',
    }


def _sentence(compiled: "Compiled") -> str:
    return f"The neural network {compiled.name} as plain C, without an interpreter."


def _needs(compiled: "Compiled", dsp: "Compiled | None", alone: bool) -> str:
    """The memory of the network, and whether there are further sources, which take some, too."""
    forms = (compiled, dsp or compiled)
    flash, ram = max(form.weights_bytes for form in forms), max(form.arena_bytes for form in forms)
    needs = f"{flash:,} bytes of flash for its weights and {ram:,} bytes of RAM"
    return f"Needs {needs}." if alone else f"The network alone needs {needs}; features and their buffers need more."


def _manifest(compiled: "Compiled", needs: str) -> str:
    """Makes the `library.json` of PlatformIO."""
    name = compiled.name
    manifest = {
        "name": name,
        "version": _VERSION,
        "description": f"{_sentence(compiled)} {needs}",
        "keywords": ["neural network", "tinyml"],
        "authors": [{"name": "Rudel"}],
        "headers": f"{name}.h",
        "frameworks": "*",
        "platforms": "*",
        "examples": [{"name": name, "base": f"examples/{name}", "files": [f"{name}.ino"]}],
    }
    return json.dumps(manifest, indent=2) + "\n"


def _properties(compiled: "Compiled", needs: str) -> str:
    name = compiled.name
    return f"""name={name}
version={_VERSION}
author=Rudel
maintainer=Rudel
sentence={_sentence(compiled)}
paragraph={needs}
category=Data Processing
url=
architectures=*
includes={name}.h
"""
