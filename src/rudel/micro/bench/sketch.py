"""An Arduino sketch that runs a model on inputs from the serial line, for `rudel.micro.bench.on_board`.

    DIR/DIR.ino
    DIR/NAME.h, NAME.c
    DIR/bench_model.c, bench_line.c, bench_line.h, board.h

All but the sketch itself is plain C. What it needs of a board are the four functions of
`bench_line.h`.
"""

import hashlib
from importlib import resources
from pathlib import Path

from rudel.files import expanded
from rudel.micro.bench.measure import glue, model_sources
from rudel.micro.compiler import Compiled
from rudel.micro.packages.folder import write_files

_OWN = ("bench_line.h", "bench_line.c", "board.h")


def write_sketch(compiled: Compiled, folder: Path) -> list[Path]:
    """Writes the sketch of a model.

    Args:
        compiled: the model.
        folder: the sketch's folder, which gives it its name; it is made if it is not there.

    Returns:
        The files, the sketch first.

    Raises:
        BenchError: the model has a name of the sketch's own.
        CompileError: the folder cannot be written.
    """
    folder = expanded(folder).resolve()
    return write_files(folder, {f"{folder.name}.ino": _sketch(compiled), **line_sources(compiled)})


def line_sources(compiled: Compiled) -> dict[str, str]:
    """Returns the C that answers requests to run a model, texts by file name.

    Raises:
        BenchError: the model has a name of their own.
    """
    own = {name: (resources.files("rudel.micro.bench") / name).read_text() for name in _OWN}
    hash_ = ", ".join(map(str, model_hash(compiled)))
    own["bench_model.c"] = f"{glue(compiled)}\nconst uint8_t bench_hash[8] = {{{hash_}}};\n"
    return model_sources(compiled, own) | own


def model_hash(compiled: Compiled) -> bytes:
    """Returns eight bytes that tell the C of models apart."""
    return hashlib.sha256((compiled.header + compiled.source).encode()).digest()[:8]


def _sketch(compiled: Compiled) -> str:
    return f"""// Runs the model {compiled.name} on inputs from the serial line, for `rudel micro bench --port`.

#include "bench_line.h"

void setup() {{
  Serial.begin(115200);
}}

void loop() {{
  bench_poll();
}}

int bench_read() {{
  return Serial.read();
}}

void bench_write(const uint8_t *bytes, uint32_t count) {{
  Serial.write(bytes, count);
}}

uint32_t bench_micros() {{
  return micros();
}}

uint32_t bench_hertz() {{
#ifdef F_CPU
  return F_CPU;
#else
  return 0;
#endif
}}
"""
