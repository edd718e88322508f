"""From a .tflite file to plain C: read, simplify, lower, plan, write."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rudel.errors import CompileError
from rudel.files import expanded, written_atomically
from rudel.micro.arithmetic import ROUNDINGS, Rounding
from rudel.micro.emit import Context, Step
from rudel.micro.graph import Graph
from rudel.micro.kinds import refuse_quantisation, refuse_types
from rudel.micro.lowering import lower
from rudel.micro.memory import Memory, plan_steps
from rudel.micro.names import checked_name, name_of
from rudel.micro.passes.patches import patched
from rudel.micro.passes.pipeline import optimised
from rudel.micro.ports import Port, ports_of
from rudel.micro.reader import read_file, read_model
from rudel.micro.targets import Target, target_named
from rudel.micro.write import header_text, headers_of, source_text


@dataclass(frozen=True)
class Compiled:
    """A model as C.

    Attributes:
        name: what names in C start with, and the files are called.
        header: the text of NAME.h.
        source: the text of NAME.c.
        graph: what was compiled, after all passes.
        arena_bytes: size of the arena, in which inputs and outputs have their places, too.
        weights_bytes: size of all arrays of parameters: weights, biases, multipliers, tables.
        inputs: what the caller gives, in the order of NAME_invoke's parameters.
        outputs: what the caller gets.
        rounding: whose bits they are.
        target: what it was compiled for.
        steps: one for each call in NAME_invoke.
        memory: where tensors lie in the arena.
        remembers: whether the model keeps something from one input to the next, which NAME_reset makes it forget.
        class_names: of the output's numbers, which the header names, too; empty where nobody said.
    """

    name: str
    header: str
    source: str
    graph: Graph = field(repr=False)
    arena_bytes: int
    weights_bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    rounding: Rounding
    target: Target
    steps: tuple[Step, ...] = field(repr=False)
    memory: Memory = field(repr=False)
    remembers: bool
    class_names: tuple[str, ...] = ()

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers of C's library that NAME.c includes."""
        return headers_of(self.steps)

    @property
    def exact(self) -> bool:
        """Whether all outputs are integers, whose bits are the same everywhere; float32 is rounded by each library."""
        return all(port.dtype != "float32" for port in self.outputs)

    @property
    def macs(self) -> int:
        """Multiplications and additions of an inference."""
        return sum(step.macs for step in self.steps)

    def write(self, folder: Path) -> list[Path]:
        """Writes NAME.h and NAME.c, each wholly or not at all; makes the folder if need be.

        Files of these names are replaced if Rudel made them.

        Raises:
            CompileError: the folder cannot be written, or one of them is another's.
        """
        folder = expanded(folder)
        texts = {folder / f"{self.name}.{ending}": text for ending, text in (("h", self.header), ("c", self.source))}
        try:
            for path in texts:
                self._refuse_anothers(path)
            folder.mkdir(parents=True, exist_ok=True)
            for path, text in texts.items():
                with written_atomically(path) as file:
                    file.write(text.encode())
        except OSError as error:
            raise CompileError(f"`{folder}` cannot be written: {error.strerror}.") from error
        return list(texts)

    def _refuse_anothers(self, path: Path) -> None:
        mark = f"/* {_made(self.name)}".encode()
        if path.is_file() and not path.read_bytes().startswith(mark):
            raise CompileError(f"`{path}` exists and was not made by Rudel: give another folder, or another name.")


def compile_model(
    source: Path | bytes,
    *,
    name: str | None = None,
    rounding: Rounding = "litert",
    target: str = "generic",
    ram: int | None = None,
    stateless: bool = False,
    class_names: Sequence[str] = (),
) -> Compiled:
    """Compiles a .tflite model to C.

    Args:
        source: a file, or its bytes.
        name: what names in C start with; by default the file's name, or `model`.
        rounding: whose bits to give: those of LiteRT's reference kernels, of LiteRT as it is by default (XNNPACK), or
            of TensorFlow Lite Micro.
        target: a name in `rudel.micro.targets.TARGETS`.
        ram: the most bytes that the arena may have; layers at the start are then computed patch by patch if need be.
        stateless: let each inference begin with the states of LSTM and SVDF cleared, as in Keras; otherwise they last
            from one inference to the next, until NAME_reset.
        class_names: for the header, in the order of the output's numbers; left out where there is not one for each.

    Raises:
        CompileError: the file cannot be read or compiled, or does not fit the target.
    """
    if rounding not in ROUNDINGS:
        raise CompileError(f"There is no rounding `{rounding}`: choose one of {', '.join(ROUNDINGS)}.")
    context = Context(rounding, target_named(target))
    with np.errstate(all="ignore"):  # Scales of damaged files overflow; what comes of them is refused or clamped.
        return _compiled(source, name, context, ram, stateless, tuple(class_names))


def _compiled(
    source: Path | bytes,
    name: str | None,
    context: Context,
    ram: int | None,
    stateless: bool,
    class_names: tuple[str, ...],
) -> Compiled:
    if isinstance(source, bytes):
        graph, name = read_model(source), checked_name(name or "model")
    else:
        name = checked_name(name) if name else name_of(source)
        graph, _ = read_file(source)
    refuse_quantisation(graph)
    graph = optimised(graph, context)
    refuse_types(graph)
    steps, memory = _lowered(graph, context)
    limit = min((value for value in (ram, context.target.ram) if value is not None), default=None)
    if limit is not None and memory.size > limit:
        graph, steps, memory = _within(limit, graph, memory, context)
    about = f"{_made(name)}; bits of {context.rounding}, for {context.target.name}."
    remembers = any(tensor.variable for tensor in graph.tensors) and not stateless
    text, weights_bytes = source_text(name, graph, steps, memory, about, remembers)
    flash = context.target.flash
    if flash is not None and weights_bytes > flash:
        raise CompileError(
            f"The model's parameters take {weights_bytes:,} bytes, and {context.target.name} has {flash:,} bytes of "
            f"flash: {weights_bytes - flash:,} too few."
        )
    inputs, outputs = ports_of(name, graph, memory, "input"), ports_of(name, graph, memory, "output")
    if [port.size for port in outputs] != [len(class_names)]:
        class_names = ()
    return Compiled(
        name,
        header_text(name, graph, memory, about, remembers, class_names),
        text,
        graph,
        max(-(-memory.size // 4) * 4, 4),
        weights_bytes,
        inputs,
        outputs,
        context.rounding,
        context.target,
        steps,
        memory,
        remembers,
        class_names,
    )


def _made(name: str) -> str:
    """The words that the files of a model begin with."""
    return f"{name}: made by Rudel"


def _lowered(graph: Graph, context: Context) -> tuple[tuple[Step, ...], Memory]:
    steps = tuple(lower(operator, graph, context) for operator in graph.operators)
    return steps, plan_steps(graph, steps, context.target.words)


def _within(limit: int, graph: Graph, memory: Memory, context: Context) -> tuple[Graph, tuple[Step, ...], Memory]:
    """Returns a way to compute the model in `limit` bytes.

    Raises:
        CompileError: there is none.
    """
    smallest = memory.size
    for candidate in patched(graph, limit, context, lower):
        new_steps, new_memory = _lowered(candidate, context)
        smallest = min(smallest, new_memory.size)
        if new_memory.size <= limit:
            return candidate, new_steps, new_memory
    raise CompileError(
        f"The model needs {smallest:,} bytes of RAM for its tensors, and may have {limit:,}: "
        f"{smallest - limit:,} too few."
    )
