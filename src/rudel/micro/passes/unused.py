"""Operators whose outputs nobody reads are left out."""

from rudel.micro.graph import Graph, Operator


def drop_unused(graph: Graph) -> Graph:
    """Returns a graph in which every operator matters to an output."""
    needed = set(graph.outputs)
    kept: list[Operator] = []
    for operator in reversed(graph.operators):
        if needed & set(operator.outputs) or any(index >= 0 and graph[index].variable for index in operator.inputs):
            kept.append(operator)
            needed |= {index for index in operator.inputs if index >= 0}
    return graph.replace(operators=reversed(kept))
