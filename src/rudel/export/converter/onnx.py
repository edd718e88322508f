"""ONNX, by way of tf2onnx, for batches of any size."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from tf2onnx.handler import tf_op

from rudel.errors import ExportError
from rudel.export.converter.forward import Forward
from rudel.export.converter.model import sentence_of
from rudel.export.inputs import BESIDE_INPUT

OPSET = 18
_ML = "ai.onnx.ml"


def write(forward: Forward, texts: Mapping[str, Sequence[str]], made: Path) -> dict[str, str]:
    """Converts a model; returns the versions of the tools.

    Args:
        forward: the model.
        texts: by input that takes a number for a text, the texts that are numbered from 1; others are 0.
        made: the file to write.

    Raises:
        ExportError: ONNX has no operator for something.
    """
    with _without_xla():
        concrete = forward.trace()
    try:
        _count_nodes()
        _add_erfc()
        _add_bucketize()
        function = tf.function(_numbering(concrete, forward.outputs), forward.signature, autograph=False)
        model, _ = tf2onnx.convert.from_function(function, input_signature=forward.signature, opset=OPSET)
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        if lacking := re.search(r"No Op registered for (\w+)", str(error)):
            raise ExportError(
                f"ONNX has no operator for {lacking[1]}: build the model without it, or export to savedmodel."
            ) from error
        raise ExportError(f"The conversion to onnx failed: {sentence_of(error)}") from error
    _rename_outputs(model.graph, forward.outputs)
    _number_texts(model, texts)
    made.write_bytes(model.SerializeToString(deterministic=True))
    return {"tf2onnx": tf2onnx.__version__, "onnx": onnx.__version__}


@contextlib.contextmanager
def _without_xla() -> Iterator[None]:
    """Inside the block, `tf.function` compiles nothing by XLA, whose calls tf2onnx keeps as operators of their own.

    Keras does so with grouped convolutions, which TensorFlow itself does not compute on every CPU.
    """
    module: Any = tf
    original = module.function
    module.function = lambda *arguments, **options: original(*arguments, **options | {"jit_compile": None})
    try:
        yield
    finally:
        module.function = original


def _numbering(concrete: Any, names: Sequence[str]) -> Callable[..., dict[str, tf.Tensor]]:
    """The function of a model with numbers for the names of its outputs, as ONNX cannot have one for an input, too.

    Tensors that the model holds beside its weights, such as the mean of a `Normalization`, become constants.
    """
    held = [tensor if tensor.dtype == tf.resource else tensor.numpy() for tensor in concrete.captured_inputs]

    def numbered(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        concrete.set_external_captures([tf.convert_to_tensor(values) for values in held])
        outputs = concrete(*tensors)
        return {f"{number:05}": outputs[name] for number, name in enumerate(names)}

    return numbered


def _count_nodes() -> None:
    """Lets tf2onnx go through sets of nodes in the order in which these were made, not in that of their addresses."""
    made = itertools.count()
    node: Any = tf2onnx.graph.Node
    original = node.__init__

    def made_with_a_number(self: Any, *arguments: Any, **options: Any) -> None:
        self.number = next(made)
        original(self, *arguments, **options)

    node.__init__ = made_with_a_number
    node.__hash__ = lambda self: self.number


def _add_erfc() -> None:
    """Teaches tf2onnx the complementary error function of `gelu`, for which ONNX has no operator: 1 - Erf."""

    class Erfc:
        @classmethod
        def version_9(cls, graph: Any, node: Any, **_: Any) -> None:
            shapes, kinds = node.output_shapes, node.output_dtypes
            graph.remove_node(node.name)
            erf = graph.make_node("Erf", [node.input[0]], shapes=shapes, dtypes=kinds)
            one = graph.make_const(f"{node.name}__one", np.ones((), tf2onnx.utils.map_onnx_to_numpy_type(kinds[0])))
            ends = [one.output[0], erf.output[0]]
            graph.make_node("Sub", ends, name=node.name, outputs=node.output, shapes=shapes, dtypes=kinds)

    tf_op("Erfc")(Erfc)


def _add_bucketize() -> None:
    """Teaches tf2onnx the buckets of `Discretization`: how many boundaries are not above a number."""

    class Bucketize:
        @classmethod
        def version_13(cls, graph: Any, node: Any, **_: Any) -> None:
            shapes, kinds = node.output_shapes, node.output_dtypes
            given, boundaries = node.input[0], node.get_attr_value("boundaries")
            graph.remove_node(node.name)
            make = tf2onnx.graph_builder.GraphBuilder(graph)
            real = graph.make_node("Cast", [given], attr={"to": onnx.TensorProto.FLOAT}).output[0]
            column = make.make_unsqueeze({"data": real, "axes": [-1]})
            limits = graph.make_const(f"{node.name}__boundaries", np.float32(boundaries)).output[0]
            below = graph.make_node("Less", [column, limits]).output[0]  # NaN is below none
            counted = graph.make_node("Cast", [graph.make_node("Not", [below]).output[0]], attr={"to": kinds[0]})
            summed = {"data": counted.output[0], "axes": [-1], "keepdims": 0, "outputs": node.output}
            make.make_reduce_sum(summed, name=node.name, shapes=shapes, dtypes=kinds)

    tf_op("Bucketize")(Bucketize)


def _number_texts(model: onnx.ModelProto, texts: Mapping[str, Sequence[str]]) -> None:
    """Lets inputs take texts, which a node in front numbers."""
    for value in model.graph.input:
        if (known := texts.get(value.name)) is None:
            continue
        number, kind = f"{value.name}__number", value.type.tensor_type.elem_type
        for node in model.graph.node:
            node.input[:] = [number if name == value.name else name for name in node.input]
        table = {"keys_strings": known, "values_int64s": list(range(1, len(known) + 1)), "default_int64": 0}
        looked_up = onnx.helper.make_node("LabelEncoder", [value.name], [f"{number}_wide"], domain=_ML, **table)
        model.graph.node.insert(0, onnx.helper.make_node("Cast", [f"{number}_wide"], [number], to=kind))
        model.graph.node.insert(0, looked_up)
        value.type.tensor_type.elem_type = onnx.TensorProto.STRING
    if texts:
        model.opset_import.append(onnx.helper.make_opsetid(_ML, 2))
        onnx.checker.check_model(model, full_check=True)


def _rename_outputs(graph: onnx.GraphProto, names: list[str]) -> None:
    """Gives outputs the names that they have in Keras, in the place of the converter's numbers."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {i.name for i in graph.input}
    new = {
        output.name: name + BESIDE_INPUT if name in taken else name
        for output, name in zip(graph.output, names, strict=True)
    }
    for values in (graph.output, graph.value_info):
        for value in values:
            value.name = new.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
