"""Every output of the model gets memory of its own: those that are an input, a constant, or another output are
copied."""

from dataclasses import replace

from rudel.micro.graph import Graph, Operator


def own_outputs(graph: Graph) -> Graph:
    """Returns a graph whose outputs are computed, each once."""
    tensors, operators, outputs = list(graph.tensors), list(graph.operators), []
    for index in graph.outputs:
        tensor = graph[index]
        if tensor.data is not None or tensor.variable or index in graph.inputs or index in outputs:
            copied = len(tensors)
            tensors.append(replace(tensor, index=copied, data=None, variable=False))
            number = 1 + max((operator.index for operator in operators), default=-1)
            operators.append(Operator(number, "RESHAPE", 1, (index,), (copied,), {"new_shape": ()}))
            index = copied
        outputs.append(index)
    return graph.replace(operators=operators, tensors=tensors, outputs=outputs)
