"""From operators to steps, by the entries of the registry."""

from dataclasses import replace

from rudel.errors import CompileError
from rudel.micro.emit import Constant, Context, Lowering, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import scales_checked
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
        for lowering in _ways(entry, operator, graph, context):
            with scales_checked(operator):
                step = lowering(operator, graph, context)
            if step:
                return _with_constant_inputs(step, graph)
    raise CompileError(
        f"Operator {operator.index}{_layer(operator, graph)} is {operator.kind}, version {operator.version}, which is "
        f"not supported: {instead_of(operator.kind)}."
    )


_NEAREST = 'use Resizing(height, width, interpolation="nearest") in the place of upsampling'
_OTHER_ACTIVATION = 'use another activation, such as "relu", "gelu" or "silu"'
_ANY_OTHER = "use another layer, or export to litert-int8 and run it by an interpreter"
_ALTERNATIVES = {
    "BATCH_MATMUL": "use convolutions or an LSTM in the place of attention",
    "GREATER": _OTHER_ACTIVATION,
    "EXP": _OTHER_ACTIVATION,
    "LOG": _OTHER_ACTIVATION,
    "SQUARE": "use BatchNormalization or LayerNormalization in the place of other normalisations",
    "GATHER": "look embeddings up before the model, and give it the vectors",
    "REDUCE_MAX": "use MaxPooling with a window of the whole input, or GlobalAveragePooling",
    "RESIZE_BILINEAR": _NEAREST,
    "TILE": f"{_NEAREST}, Concatenate(1)([Reshape((1, size))(x)] * n) in that of RepeatVector(n), or Conv1DTranspose "
    "where it is of sequences",
    "WHILE": "give the recurrent layer an input of fixed length",
}
"""Substitutes for operators that are not supported."""


def instead_of(kind: str) -> str:
    """Says what to use in the place of an operator that is not supported."""
    return _ALTERNATIVES.get(kind, _ANY_OTHER)


def _layer(operator: Operator, graph: Graph) -> str:
    """The operator's origin, by the path that converters write into the names of tensors."""
    names = (graph[index].name.partition(";")[0].rpartition("/")[0] for index in operator.outputs)
    return next((f" of the layer `{name}`" for name in names if name), "")


def _ways(entry: Entry, operator: Operator, graph: Graph, context: Context) -> list[Lowering]:
    """Returns what can make the step of an operator, the best first.

    Raises:
        CompileError: it computes in int16, for which there is no kernel.
    """
    given = [graph[index].dtype for index in operator.inputs[entry.main : entry.main + 1] if index >= 0]
    made = [graph[index].dtype for index in operator.outputs[:1]]
    if given == ["float32"]:
        ways = [entry.floats, entry.lower]
    elif "int16" in (*given, *made):
        if entry.int16 is None:
            raise CompileError(
                f"{operator.title} cannot be compiled: LiteRT has no kernel of it for int16 activations. Use another "
                "layer instead, or export the model by `rudel export RUN --to litert-int8`."
            )
        ways = [entry.dsp_int16 if context.target.dsp else None, entry.int16]
    else:
        target = context.target
        ways = [entry.helium if target.helium else None, entry.dsp if target.dsp else None, entry.lower]
    return [way for way in ways if way is not None]


def _with_constant_inputs(step: Step, graph: Graph) -> Step:
    """Returns a step that has an array for each input that it reads and that is constant."""
    values = {f"in{position}": graph.constant(step.operator.inputs[position]) for position in step.reads}
    arrays = {
        name: Constant(value) for name, value in values.items() if value is not None and name not in step.constants
    }
    return replace(step, constants={**arrays, **step.constants}) if arrays else step
