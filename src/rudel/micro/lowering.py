"""From operators to steps, by the entries of the registry."""

from dataclasses import replace

from rudel.errors import CompileError
from rudel.micro.emit import Constant, Context, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.patches import KIND, lower_patches
from rudel.micro.registry import OPERATORS, Entry


def lower(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes the step of an operator: with the target's own kernel where there is one, else with plain C.

    Raises:
        CompileError: nobody knows the operator, or what its tensors are.
    """
    if operator.kind == KIND:
        return _with_constant_inputs(lower_patches(operator, graph, context, lower), graph)
    if entry := OPERATORS.get(operator.kind):
        own = entry.floats if _is_float(entry, operator, graph) else entry.dsp if context.target.dsp else None
        for lowering in filter(None, (own, entry.lower)):
            if step := lowering(operator, graph, context):
                return _with_constant_inputs(step, graph)
    raise CompileError(
        f"Operator {operator.index}{_layer(operator, graph)} is {operator.kind}, version {operator.version}, which is "
        f"not supported: {_ALTERNATIVES.get(operator.kind, 'the documentation of `rudel micro` lists those that are')}."
    )


_ALTERNATIVES = {
    "BATCH_MATMUL": "use convolutions or an LSTM in the place of attention",
    "GATHER": "look embeddings up before the model, and give it the vectors",
    "REDUCE_MAX": "use MaxPooling with a window of the whole input, or GlobalAveragePooling",
    "RESIZE_BILINEAR": 'use UpSampling2D with interpolation="nearest"',
    "WHILE": "give the recurrent layer an input of fixed length",
}
"""What to build a model of in the place of an operator that is not supported."""


def _layer(operator: Operator, graph: Graph) -> str:
    """Where the operator comes from, by the path that converters write into the names of tensors."""
    names = (graph[index].name.partition(";")[0].rpartition("/")[0] for index in operator.outputs)
    return next((f" of the layer `{name}`" for name in names if name), "")


def _is_float(entry: Entry, operator: Operator, graph: Graph) -> bool:
    inputs = operator.inputs[entry.main : entry.main + 1]
    return bool(inputs) and inputs[0] >= 0 and graph[inputs[0]].dtype == "float32"


def _with_constant_inputs(step: Step, graph: Graph) -> Step:
    """Returns a step that has an array for each input that it reads and that is constant."""
    values = {f"in{position}": graph.constant(step.operator.inputs[position]) for position in step.reads}
    arrays = {
        name: Constant(value) for name, value in values.items() if value is not None and name not in step.constants
    }
    return replace(step, constants={**arrays, **step.constants}) if arrays else step
