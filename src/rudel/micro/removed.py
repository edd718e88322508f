"""Counts of what passes remove from a model: operators, channels, multiplications, parameters."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rudel.errors import CompileError
from rudel.micro.arithmetic import Rounding
from rudel.micro.emit import Context
from rudel.micro.graph import Graph
from rudel.micro.lowering import lower
from rudel.micro.passes.pipeline import stages
from rudel.micro.reader import read_file, read_model
from rudel.micro.targets import target_named


@dataclass(frozen=True)
class Totals:
    """Size of a graph.

    Attributes:
        operators: how many.
        macs: multiplications and additions; None where an operator cannot be written as C yet.
        parameters: bytes of the constants that operators read.
    """

    operators: int
    macs: int | None
    parameters: int


@dataclass(frozen=True)
class Removal:
    """The removals of a pass.

    Attributes:
        does: what the pass is for.
        before: the graph that it was given.
        after: the graph that it gave.
        changes: in words, such as `2 PAD less` and `CONV_2D 3: 64 to 12 channels`.
    """

    does: str
    before: Totals
    after: Totals
    changes: tuple[str, ...]


def removals(source: Path | bytes, *, rounding: Rounding = "litert", target: str = "generic") -> list[Removal]:
    """Returns what each pass takes out, in the order of the passes; those that change nothing are left out.

    Args:
        source: a .tflite file, or its bytes, that can be compiled.
        rounding: whose bits the model gives.
        target: what it is compiled for.

    Raises:
        CompileError: the file cannot be read or compiled.
    """
    context = Context(rounding, target_named(target))
    before = read_model(source) if isinstance(source, bytes) else read_file(source)[0]
    totals, result = _totals(before, context), []
    for each, after in stages(before, context):
        changes = tuple(_changes(before, after))
        if changes or _parameters(after) != totals.parameters:
            new = _totals(after, context)
            result.append(Removal(each.does, totals, new, changes))
            totals = new
        before = after
    return result


def _totals(graph: Graph, context: Context) -> Totals:
    try:
        macs = sum(lower(operator, graph, context).macs for operator in graph.operators)
    except CompileError:
        macs = None
    return Totals(len(graph.operators), macs, _parameters(graph))


def _parameters(graph: Graph) -> int:
    used = {index for operator in graph.operators for index in operator.inputs if index >= 0}
    return sum(graph[index].bytes for index in used if graph[index].data is not None)


def _changes(before: Graph, after: Graph) -> Iterator[str]:
    kinds = [Counter(operator.kind for operator in graph.operators) for graph in (before, after)]
    yield from (f"{number} {kind} less" for kind, number in sorted((kinds[0] - kinds[1]).items()))
    yield from (f"{number} {kind} more" for kind, number in sorted((kinds[1] - kinds[0]).items()))
    channels = [{(o.index, o.kind): graph[o.outputs[0]].shape for o in graph.operators} for graph in (before, after)]
    for (number, kind), now in channels[1].items():
        was = channels[0].get((number, kind), now)
        if was[-1:] != now[-1:]:
            yield f"{kind} {number}: {was[-1]:,} to {now[-1]:,} channels"
