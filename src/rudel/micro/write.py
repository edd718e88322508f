"""Steps and their memory as the text of NAME.h and NAME.c."""

import string
from collections.abc import Sequence

import numpy as np

from rudel.micro.emit import C_TYPES, Constant, Kernel, Step
from rudel.micro.graph import Graph, Tensor
from rudel.micro.memory import Memory

_ALIGNED = """\
#if defined(__GNUC__)
#define RUDEL_ALIGNED(bytes) __attribute__((aligned(bytes)))
#else
#define RUDEL_ALIGNED(bytes)
#endif
"""


def header_text(name: str, graph: Graph, memory: Memory, about: str) -> str:
    """Returns the text of NAME.h: sizes, quantisation, the arena and the function."""
    upper = name.upper()
    lines = [
        f"/* {about} */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define {upper}_ARENA_SIZE {_arena_bytes(memory)}",
        "",
    ]
    for role, indices in (("INPUT", graph.inputs), ("OUTPUT", graph.outputs)):
        for number, index in enumerate(indices):
            lines += _tensor_macros(upper, role if len(indices) == 1 else f"{role}{number}", graph[index], memory)
    lines += [
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* All memory that the model works in. An input may be written to, and an output read from, the place in it",
        " * that the macros above name; then nothing is copied, and nothing beside the arena is needed. */",
        f"extern union {name}_memory {{",
        f"    int8_t bytes[{upper}_ARENA_SIZE];",
        f"    int32_t words[{upper}_ARENA_SIZE / 4];",
        f"}} {name}_arena;",
        "",
        "/* Computes the outputs. Inputs may be anywhere; those in the arena are overwritten. */",
        f"void {name}_invoke({parameters(graph)});",
        "",
    ]
    if any(tensor.variable for tensor in graph.tensors):
        lines += ["/* Forgets what the model remembers of earlier inputs. */", f"void {name}_reset(void);", ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def _tensor_macros(upper: str, role: str, tensor: Tensor, memory: Memory) -> list[str]:
    lines = []
    if tensor.index in memory.offsets:
        place = f"({upper.lower()}_arena.bytes + {memory.offsets[tensor.index]})"
        if C_TYPES[tensor.dtype] != "int8_t":
            place = f"(({C_TYPES[tensor.dtype]} *)(void *){place})"
        lines.append(f"#define {upper}_{role} {place}")
    lines.append(f"#define {upper}_{role}_SIZE {tensor.size}")
    if tensor.quantisation is not None and len(tensor.quantisation.scale) == 1 and tensor.dtype != "float32":
        lines.append(f"#define {upper}_{role}_SCALE {_float(tensor.quantisation.scale[0])}")
        lines.append(f"#define {upper}_{role}_ZERO_POINT ({tensor.zero_point})")
    return [*lines, ""]


def parameters(graph: Graph) -> str:
    """Returns the parameters of NAME_invoke."""
    parts = []
    for role, indices in (("input", graph.inputs), ("output", graph.outputs)):
        for number, index in enumerate(indices):
            const = "const " if role == "input" else ""
            parts.append(f"{const}{C_TYPES[graph[index].dtype]} *{_parameter(role, number, len(indices))}")
    return ", ".join(parts)


def _parameter(role: str, number: int, count: int) -> str:
    return role if count == 1 else f"{role}{number}"


def _arena_bytes(memory: Memory) -> int:
    return max(-(-memory.size // 4) * 4, 4)


def source_text(name: str, graph: Graph, steps: Sequence[Step], memory: Memory, about: str) -> tuple[str, int]:
    """Returns the text of NAME.c, and how many bytes its arrays of parameters take."""
    upper = name.upper()
    arrays, array_names, weights_bytes = _arrays(name, steps)
    body: list[str] = []
    structures: list[str] = []
    called: list[Step] = []
    for number, step in enumerate(steps):
        names = {key: array_names[number, key] for key in step.constants}
        for key, text in step.tables.items():
            names[key] = f"{name}_{key}{number}"
            structures.append(string.Template(text).substitute(names, name=names[key]))
        names |= _pointers(graph, step, memory, number)
        call = string.Template(step.call).substitute(names)
        if not (step.alias and names["in0"].replace("const ", "") == names["out0"].replace("const ", "")):
            body.append(call)
            called.append(step)
        body += [f"#ifdef {upper}_PROFILE", f"{name}_profile({number});", "#endif"]
    kernels = [kernel.text for kernel in _ordered(called)]
    text = [
        f"/* {about} */",
        f'#include "{name}.h"',
        "",
        "#include <string.h>",
        *(["#include <math.h>", ""] if any("expf" in kernel or "tanhf" in kernel for kernel in kernels) else [""]),
        *(_ALIGNED.splitlines() if any("RUDEL_ALIGNED" in array for array in arrays) else []),
        f"union {name}_memory {name}_arena;",
        "",
        *kernels,
        *arrays,
        *structures,
        "",
        f"#ifdef {upper}_PROFILE",
        f"extern void {name}_profile(int layer);",
        "#endif",
        "",
        f"void {name}_invoke({parameters(graph)})",
        "{",
        "    int8_t *const arena = " + f"{name}_arena.bytes;",
        *_first_reset(name, graph, memory),
        *(line if line.startswith("#") else f"    {line}" for line in body),
        "    (void)arena;",
        "}",
        "",
    ]
    if any(tensor.variable for tensor in graph.tensors):
        text += _reset(name, graph, memory)
    return "\n".join(text).replace("rudel_", f"{name}_").replace("RUDEL_", f"{upper}_"), weights_bytes


def _first_reset(name: str, graph: Graph, memory: Memory) -> list[str]:
    """Returns what makes the first invocation find its states as after a reset, where zeros are not enough."""
    if not any(_reset_value(tensor) and tensor.index in memory.offsets for tensor in graph.tensors if tensor.variable):
        return []
    return ["    static uint8_t begun;", f"    if (!begun) {name}_reset();", "    begun = 1;"]


def _reset_value(tensor: Tensor) -> int:
    """Returns what each byte of a state is at first: zero, or the zero point of an int8."""
    return tensor.zero_point if tensor.quantised and tensor.dtype == "int8" else 0


def _reset(name: str, graph: Graph, memory: Memory) -> list[str]:
    lines = [f"void {name}_reset(void)", "{"]
    for tensor in graph.tensors:
        if tensor.variable and tensor.index in memory.offsets:
            place = f"{name}_arena.bytes + {memory.offsets[tensor.index]}"
            lines.append(f"    memset({place}, {_reset_value(tensor)}, {tensor.bytes}u);")
    return [*lines, "}", ""]


def _pointers(graph: Graph, step: Step, memory: Memory, number: int) -> dict[str, str]:
    names = {"scratch": f"arena + {memory.scratch[number]}" if step.scratch else "arena"}
    for letter, indices in (("in", step.operator.inputs), ("out", step.operator.outputs)):
        for position, index in enumerate(indices):
            if index >= 0 and graph[index].data is None:
                names[f"{letter}{position}"] = _pointer(graph, index, memory)
    return names


def _pointer(graph: Graph, index: int, memory: Memory) -> str:
    """Returns the expression for where a tensor is: a parameter, or a place in the arena."""
    kind = C_TYPES[graph[index].dtype]
    buffer = memory.buffer_of[index]
    for role, indices in (("output", graph.outputs), ("input", graph.inputs)):
        for number, other in enumerate(indices):
            if memory.buffer_of.get(other) == buffer:
                name = _parameter(role, number, len(indices))
                other_kind = C_TYPES[graph[other].dtype]
                assert other_kind == kind
                return name
    place = f"arena + {memory.offsets[index]}"
    return place if kind == "int8_t" else f"({kind} *)(void *)({place})"


def _arrays(name: str, steps: Sequence[Step]) -> tuple[list[str], dict[tuple[int, str], str], int]:
    """Returns the arrays' definitions, the name of each, and their bytes; equal ones are written once."""
    known: dict[tuple[str, bytes, int], str] = {}
    names: dict[tuple[int, str], str] = {}
    texts: list[str] = []
    total = 0
    for number, step in enumerate(steps):
        for key, constant in step.constants.items():
            if constant.key not in known:
                known[constant.key] = f"{name}_{key}{number}"
                texts.append(_array(known[constant.key], constant))
                total += constant.values.nbytes
            names[number, key] = known[constant.key]
    return texts, names, total


def _array(name: str, constant: Constant) -> str:
    values = constant.values
    kind = C_TYPES[str(values.dtype)]
    if values.dtype == np.float32:
        items = [_float(value) for value in values.ravel()]
    else:
        items = [str(value) for value in values.ravel().tolist()]
        if values.dtype == np.int32:
            items = ["-2147483647 - 1" if item == "-2147483648" else item for item in items]
    per_line = {"int8_t": 24, "int16_t": 16}.get(kind, 9)
    lines = [", ".join(items[start : start + per_line]) for start in range(0, len(items), per_line)]
    alignment = "" if constant.alignment <= values.dtype.itemsize else f"RUDEL_ALIGNED({constant.alignment}) "
    return f"static const {alignment}{kind} {name}[{len(items)}] = {{\n    " + ",\n    ".join(lines) + ",\n};\n"


def _float(value: float) -> str:
    """Returns a float32 in C, exactly."""
    text = f"{np.float32(value)!s}"
    if text in ("inf", "-inf", "nan"):
        return {"inf": "HUGE_VALF", "-inf": "-HUGE_VALF", "nan": "NAN"}[text]
    return (text if any(letter in text for letter in ".en") else text + ".0") + "f"


def _ordered(steps: Sequence[Step]) -> list[Kernel]:
    """Returns all kernels, each once and after those that it needs."""
    known: dict[str, Kernel] = {}

    def add(kernel: Kernel) -> None:
        for need in kernel.needs:
            add(need)
        if kernel.name in known:
            if known[kernel.name].text != kernel.text:
                raise AssertionError(f"two kernels are named {kernel.name}")
            return
        known[kernel.name] = kernel

    for step in steps:
        for kernel in step.kernels:
            add(kernel)
    return list(known.values())
