"""Buffers that a sequence of steps needs, and their lifetimes."""

from collections.abc import Sequence
from dataclasses import dataclass

from rudel.micro.emit import Overlap, Step
from rudel.micro.graph import Graph
from rudel.micro.planner import Buffer, Plan, plan_memory


@dataclass(frozen=True)
class Memory:
    """Places of all buffers in the arena.

    Attributes:
        offsets: of the tensors that have memory, by index; tensors that are each other's aliases have one offset.
        scratch: offset of each step's scratch memory, 0 where it has none.
        size: of the arena, bytes.
        buffer_of: which buffer a tensor is in.
        buffers: all buffers; `first` and `last` are numbers of steps.
        places: the offset of each buffer.
    """

    offsets: dict[int, int]
    scratch: tuple[int, ...]
    size: int
    buffer_of: dict[int, int]
    buffers: tuple[Buffer, ...]
    places: tuple[int, ...]


def plan_steps(graph: Graph, steps: Sequence[Step], alignment: int) -> Memory:
    """Plans the arena for steps in their order."""
    roots = _aliases(graph, steps)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    size: dict[int, int] = {}

    def used(tensor: int, step: int) -> None:
        root = roots.get(tensor, tensor)
        first[root] = min(first.get(root, step), step)
        last[root] = max(last.get(root, step), step)
        size[root] = max(size.get(root, 0), graph[tensor].bytes)

    for tensor in graph.inputs:
        used(tensor, -1)
    for number, step in enumerate(steps):
        for tensor in (*step.operator.inputs, *step.operator.outputs):
            if tensor >= 0 and graph[tensor].data is None:
                used(tensor, number)
                if graph[tensor].variable:
                    used(tensor, -1)
                    used(tensor, len(steps))
    for tensor in graph.outputs:
        if graph[tensor].data is None:
            used(tensor, len(steps))
    order = sorted(first)
    number_of = {root: number for number, root in enumerate(order)}
    buffers = [Buffer(size[root], first[root], last[root]) for root in order]
    overlaps = _overlaps(graph, steps, roots, number_of)
    scratch_number: dict[int, int] = {}
    for number, step in enumerate(steps):
        if step.scratch:
            scratch_number[number] = len(buffers)
            buffers.append(Buffer(step.scratch, number, number))
    plan: Plan = plan_memory(buffers, overlaps, alignment)
    tensors = {root: root for root in order} | roots
    buffer_of = {tensor: number_of[root] for tensor, root in tensors.items() if root in number_of}
    offsets = {tensor: plan.offsets[number] for tensor, number in buffer_of.items()}
    scratch = tuple(
        plan.offsets[scratch_number[number]] if number in scratch_number else 0 for number in range(len(steps))
    )
    return Memory(offsets, scratch, plan.size, buffer_of, tuple(buffers), plan.offsets)


def _aliases(graph: Graph, steps: Sequence[Step]) -> dict[int, int]:
    """Returns, for each tensor that has the bytes of another one, that one.

    The caller's inputs and outputs are memory of its own, so each of them is the only one of its kind in a buffer,
    and none is both.
    """
    roots: dict[int, int] = {}
    kinds = dict.fromkeys((*graph.inputs, *graph.outputs), "fixed")
    for step in steps:
        if not step.alias:
            continue
        source, output = step.operator.inputs[0], step.operator.outputs[0]
        root = roots.get(source, source)
        if graph[root].data is not None or graph[root].variable or (root in kinds and output in kinds):
            continue
        roots[output] = root
        if output in kinds:
            kinds[root] = kinds[output]
    return roots


def _overlaps(
    graph: Graph, steps: Sequence[Step], roots: dict[int, int], number_of: dict[int, int]
) -> dict[tuple[int, int], Overlap]:
    """Returns how buffers that are an input and an output of a step may overlap.

    A buffer that a step reads in several ways may overlap only as all of them allow, and not at all where one has
    nothing to say.
    """
    result: dict[tuple[int, int], Overlap] = {}
    for step in steps:
        outputs = [(o, roots.get(t, t)) for o, t in enumerate(step.operator.outputs)]
        inputs = [
            (i, roots.get(t, t)) for i, t in enumerate(step.operator.inputs) if t >= 0 and roots.get(t, t) in number_of
        ]
        for o, output in outputs:
            for root in {root for _, root in inputs}:
                if root == output or graph[root].variable:
                    continue
                ways = [step.overlap.get((i, o), Overlap()) for i, other in inputs if other == root]
                leads = [way.lead for way in ways]
                result[number_of[root], number_of[output]] = Overlap(
                    None if None in leads else max(lead for lead in leads if lead is not None),
                    all(way.together or (way.lead is not None and way.lead <= 0) for way in ways),
                )
    return result
