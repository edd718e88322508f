"""Steps and their memory as the text of NAME.h and NAME.c."""

from collections.abc import Sequence

import numpy as np

from rudel.c_literals import c_string, float_literal
from rudel.micro.emit import C_TYPES, Constant, Kernel, Step
from rudel.micro.graph import Graph, Tensor
from rudel.micro.memory import Memory
from rudel.micro.names import filled
from rudel.micro.ports import Port, ports_of

_ALIGNED = """\
#if defined(__GNUC__)
#define RUDEL_ALIGNED(bytes) __attribute__((aligned(bytes)))
#else
#define RUDEL_ALIGNED(bytes)
#endif
"""


def header_text(
    name: str, graph: Graph, memory: Memory, about: str, remembers: bool, class_names: Sequence[str] = ()
) -> str:
    """Returns the text of NAME.h: sizes, quantisation, the arena, the functions, and NAME_reset if it `remembers`.

    Args:
        name: what names in C begin with.
        graph: what was compiled.
        memory: where its tensors lie.
        about: the first line.
        remembers: whether there is a NAME_reset.
        class_names: one for each number of the one output; empty for none.
    """
    upper = name.upper()
    inputs, outputs = ports_of(name, graph, memory, "input"), ports_of(name, graph, memory, "output")
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
    for port, index in zip((*inputs, *outputs), (*graph.inputs, *graph.outputs), strict=True):
        lines += _port_macros(name, port, memory.offsets.get(index))
    if class_names:
        listed = ", ".join(map(c_string, class_names))
        lines += [
            "/* Names of the classes, in the order of the output's numbers, to initialise an array with. */",
            f"#define {outputs[0].macro}_CLASSES {{{listed}}}",
            "",
        ]
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
        "/* Computes the outputs. Inputs may be anywhere; those in the arena are overwritten.",
        " *",
        *(f" *   {port.variable}: {port.described}" for port in (*inputs, *outputs)),
        " */",
        f"void {name}_invoke({_parameters(inputs, outputs)});",
        "",
    ]
    if remembers:
        lines += ["/* Forgets what the model remembers of earlier inputs. */", f"void {name}_reset(void);", ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def _port_macros(name: str, port: Port, offset: int | None) -> list[str]:
    lines = [f"/* {port.described} */"]
    if offset is not None:
        place = f"({name}_arena.bytes + {offset})"
        if port.type != "int8_t":
            place = f"(({port.type} *)(void *){place})"
        lines.append(f"#define {port.macro} {place}")
    lines.append(f"#define {port.macro}_SIZE {port.size}")
    if port.scale is not None:
        lines.append(f"#define {port.macro}_SCALE {float_literal(port.scale)}")
        lines.append(f"#define {port.macro}_ZERO_POINT ({port.zero_point})")
    return [*lines, ""]


def _parameters(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """Returns the parameters of NAME_invoke."""
    given = [f"const {port.type} *{port.variable}" for port in inputs]
    return ", ".join([*given, *(f"{port.type} *{port.variable}" for port in outputs)])


def _arena_bytes(memory: Memory) -> int:
    return max(-(-memory.size // 4) * 4, 4)


def headers_of(steps: Sequence[Step]) -> tuple[str, ...]:
    """Returns the headers of C's library that steps need, in their order in NAME.c."""
    needed = {header for kernel in kernels_of(steps) for header in kernel.headers}
    needed |= {header for step in steps for constant in step.constants.values() for header in constant.headers}
    return tuple(sorted({"string.h", *needed}, reverse=True))


def source_text(
    name: str, graph: Graph, steps: Sequence[Step], memory: Memory, about: str, remembers: bool
) -> tuple[str, int]:
    """Returns the text of NAME.c, and how many bytes its arrays of parameters take.

    Unless it `remembers`, each invocation sets the states that there are itself, and there is no NAME_reset.
    """
    upper = name.upper()
    inputs, outputs = ports_of(name, graph, memory, "input"), ports_of(name, graph, memory, "output")
    arrays, array_names, weights_bytes = _arrays(name, steps)
    body: list[str] = []
    structures: list[str] = []
    called: list[Step] = []
    for number, step in enumerate(steps):
        names = {key: array_names[number, key] for key in step.constants}
        for key, text in step.tables.items():
            names[key] = f"{name}_{key}_{number}"
            structures.append(filled(text, name, names | {"name": names[key]}))
        names |= _pointers(graph, inputs, outputs, step, memory, number)
        if not (step.alias and names["in0"].replace("const ", "") == names["out0"].replace("const ", "")):
            body.append(filled(step.call, name, names))
            called.append(step)
        body += [f"#ifdef {upper}_PROFILE", f"{name}_profile({number});", "#endif"]
    text = [
        f"/* {about} */",
        f'#include "{name}.h"',
        "",
        *(f"#include <{header}>" for header in headers_of(steps)),
        "",
        *(filled(_ALIGNED, name).splitlines() if _aligned(steps) else []),
        f"union {name}_memory {name}_arena;",
        "",
        *(filled(kernel.text, name) for kernel in kernels_of(called)),
        *arrays,
        *structures,
        "",
        f"#ifdef {upper}_PROFILE",
        f"extern void {name}_profile(int layer);",
        "#endif",
        "",
        f"void {name}_invoke({_parameters(inputs, outputs)})",
        "{",
        "    int8_t *const arena = " + f"{name}_arena.bytes;",
        *(_first_reset(name, graph, memory) if remembers else _reset_states(name, graph, memory)),
        *(line if line.startswith("#") else f"    {line}" for line in body),
        *(f"    (void){unread};" for unread in (*(port.variable for port in inputs), "arena")),
        "}",
        "",
    ]
    if remembers:
        text += [f"void {name}_reset(void)", "{", *_reset_states(name, graph, memory), "}", ""]
    return "\n".join(text), weights_bytes


def _aligned(steps: Sequence[Step]) -> bool:
    """Whether an array is to be aligned beyond its type."""
    return any(_alignment(constant) for step in steps for constant in step.constants.values())


def _alignment(constant: Constant) -> int:
    """Returns what an array is to be aligned to beyond its type, or 0."""
    return constant.alignment if constant.alignment > constant.values.dtype.itemsize else 0


def _first_reset(name: str, graph: Graph, memory: Memory) -> list[str]:
    """Returns what makes the first invocation find its states as after a reset, where zeros are not enough."""
    if not any(_reset_value(tensor) and tensor.index in memory.offsets for tensor in graph.tensors if tensor.variable):
        return []
    return ["    static uint8_t begun;", f"    if (!begun) {name}_reset();", "    begun = 1;"]


def _reset_value(tensor: Tensor) -> int:
    """Returns what each byte of a state is at first: zero, or the zero point of an int8."""
    return tensor.zero_point if tensor.quantised and tensor.dtype == "int8" else 0


def _reset_states(name: str, graph: Graph, memory: Memory) -> list[str]:
    return [
        f"    memset({name}_arena.bytes + {memory.offsets[tensor.index]}, {_reset_value(tensor)}, {tensor.bytes}u);"
        for tensor in graph.tensors
        if tensor.variable and tensor.index in memory.offsets
    ]


def _pointers(
    graph: Graph, inputs: Sequence[Port], outputs: Sequence[Port], step: Step, memory: Memory, number: int
) -> dict[str, str]:
    names = {"scratch": f"arena + {memory.scratch[number]}" if step.scratch else "arena"}
    parameters = [*zip(graph.outputs, outputs, strict=True), *zip(graph.inputs, inputs, strict=True)]
    for letter, indices in (("in", step.operator.inputs), ("out", step.operator.outputs)):
        for position, index in enumerate(indices):
            if index >= 0 and graph[index].data is None:
                names[f"{letter}{position}"] = _pointer(graph, parameters, index, memory)
    return names


def _pointer(graph: Graph, parameters: Sequence[tuple[int, Port]], index: int, memory: Memory) -> str:
    """Returns the expression for where a tensor is: a parameter, or a place in the arena."""
    kind = C_TYPES[graph[index].dtype]
    buffer = memory.buffer_of[index]
    for other, port in parameters:
        if memory.buffer_of.get(other) == buffer:
            assert port.type == kind
            return port.variable
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
                known[constant.key] = f"{name}_{key}_{number}"
                texts.append(_array(name, known[constant.key], constant))
                total += constant.values.nbytes
            names[number, key] = known[constant.key]
    return texts, names, total


def _array(model: str, name: str, constant: Constant) -> str:
    values = constant.values
    kind = C_TYPES[str(values.dtype)]
    if values.dtype == np.float32:
        items = [float_literal(value) for value in values.ravel()]
    else:
        items = [str(int(value)) for value in values.ravel().tolist()]  # of bool, 0 and 1
        if values.dtype == np.int32:
            items = ["-2147483647 - 1" if item == "-2147483648" else item for item in items]
    per_line = {"int8_t": 24, "int16_t": 16}.get(kind, 9)
    lines = [", ".join(items[start : start + per_line]) for start in range(0, len(items), per_line)]
    bytes_ = _alignment(constant)
    alignment = f"{model.upper()}_ALIGNED({bytes_}) " if bytes_ else ""
    return f"static const {alignment}{kind} {name}[{len(items)}] = {{\n    " + ",\n    ".join(lines) + ",\n};\n"


def kernels_of(steps: Sequence[Step]) -> list[Kernel]:
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
