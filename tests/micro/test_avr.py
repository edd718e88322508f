"""The C on a simulated ATmega2560, whose `int` has 16 bits: no warning, and the bits of this computer."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from micro_support import host
from micro_support.models import Op, T, build
from package_models import run, tool
from processes import LONG

from rudel.features import LogMel
from rudel.features.c import sources as sources_of_features
from rudel.micro.arithmetic import Rounding
from rudel.micro.check import uniform_array
from rudel.micro.compiler import compile_model

_MAIN = """\
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
{includes}
static void put(char letter)
{{
    while (!(UCSR0A & (1 << UDRE0))) {{}}
    UDR0 = letter;
}}

static void show(const void *bytes, uint16_t count)
{{
    for (const uint8_t *b = bytes; count > 0; count--, b++) {{
        put("0123456789abcdef"[*b >> 4]);
        put("0123456789abcdef"[*b & 15]);
    }}
    put(',');
    put('\\n');
}}

int main(void)
{{
    UCSR0B = 1 << TXEN0;
    put('<');
{calls}    put('>');
    show("what is sent last is lost", 8);
    cli();
    sleep_mode();
    return 0;
}}
"""


def shown_by_avr(sources: dict[str, str], calls: str, folder: Path) -> list[bytes]:
    """What each `show(bytes, count)` among these calls shows, with these headers and C files."""
    install = "apt-get install gcc-avr avr-libc simavr"
    includes = "".join(f'#include "{name}"\n' for name in sources if name.endswith(".h"))
    for name, text in (sources | {"main.c": _MAIN.format(includes=includes, calls=calls)}).items():
        (folder / name).write_text(text)
    files = ["main.c", *(name for name in sources if name.endswith(".c"))]
    flags = ("-mmcu=atmega2560", "-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
    run(tool("avr-gcc", install), *flags, *files, "-lm", "-o", "avr.elf", folder=folder)
    command = [tool("simavr", install), "-m", "atmega2560", "-f", "16000000", "avr.elf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LONG, check=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", (done.stdout + done.stderr).decode(errors="replace"))
    digits = re.sub("[^0-9a-f,]", "", text.partition("<")[2].partition(">")[0])
    return [bytes.fromhex(one) for one in digits.split(",")[:-1]]


def _of_one(kind: str, given: list[T], output: T, **options: object) -> bytes:
    """A model of one operator; `given`: its inputs."""
    count = len(given)
    computed = [place for place, tensor in enumerate(given) if tensor.data is None]
    return build([*given, output], [Op(kind, tuple(range(count)), (count,), options)], computed, [count])


def _of_wide_numbers() -> list[tuple[bytes, Rounding]]:
    """Models of one operator whose numbers need more than 16 bits on the way, and their roundings."""
    row = (1, 24)
    byte, short, result = T(row, scale=0.1, zero_point=3), T(row, "int16", 0.0003), T(row, "int16", 2.0**-15)
    weights = np.random.default_rng(0).integers(-127, 128, (1, 2, 1, 4))
    depthwise = [
        T((1, 2, 6, 4), "int16", 0.0003),
        T(weights.shape, scale=np.full(4, 0.01), data=weights, axis=3),
        T((4,), "int64", np.full(4, 0.000003), data=np.arange(4)),
    ]
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "depth_multiplier": 1}
    return [
        (_of_one("SOFTMAX", [byte], T(row, scale=1 / 256, zero_point=-128), beta=1.0), "litert"),
        (_of_one("ADD", [byte, T(row, scale=0.013)], T(row, scale=0.06)), "tflm"),
        (_of_one("SOFTMAX", [short], result, beta=1.0), "litert"),
        (_of_one("LOGISTIC", [short], result), "litert"),
        (_of_one("TANH", [short], result), "litert"),
        (_of_one("TANH", [T(row, "int16", 2.0**-11)], result), "xnnpack"),
        (_of_one("MUL", [short, short], result), "tflm"),
        (_of_one("DEPTHWISE_CONV_2D", depthwise, T((1, 2, 6, 4), "int16", 0.002), **window), "tflm"),
    ]


@pytest.mark.usefixtures("gcc")
def test_models_give_the_same_bits(tmp_path: Path) -> None:
    compiled = [compile_model(model, name=f"m{n}", rounding=way) for n, (model, way) in enumerate(_of_wide_numbers())]
    library = host.build(compiled, tmp_path)
    sources: dict[str, str] = {}
    calls, expected = "", []
    for one in compiled:
        inputs, (output,) = [uniform_array(np.random.default_rng(1), port) for port in one.inputs], one.outputs
        values = [", ".join(map(str, array.ravel())) for array in inputs]
        given = [f"({port.type}[]){{{some}}}" for port, some in zip(one.inputs, values, strict=True)]
        (result,) = host.invoke(library, one, inputs)
        sources |= {f"{one.name}.h": one.header, f"{one.name}.c": one.source}
        calls += f"    {one.name}_invoke({', '.join(given)}, {output.macro});\n"
        calls += f"    show({output.macro}, {result.nbytes});\n"
        expected.append(result.tobytes())
    assert shown_by_avr(sources, calls, tmp_path) == expected


def test_features_give_the_same_bits(tmp_path: Path) -> None:
    features = LogMel(8000, window_ms=15, hop_ms=8, bands=10)
    random = np.random.default_rng(0)
    hops = [random.integers(-level, level, features.hop, np.int16, endpoint=True) for level in (1, 30, 1000, 32767)]
    sounds = [f"(int16_t[]){{{', '.join(map(str, hop))}}}" for hop in hops]
    calls = "".join(f"    {{ int8_t bands[10]; ears_push({sound}, bands); show(bands, 10); }}\n" for sound in sounds)
    stream = features.stream()
    expected = [stream.push(hop).tobytes() for hop in hops]
    assert shown_by_avr(sources_of_features(features, "ears"), calls, tmp_path) == expected
