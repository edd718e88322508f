"""ONNX, by way of tf2onnx, for batches of any size."""

import itertools
from collections.abc import Callable, Mapping, Sequence
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
    forward.trace()
    try:
        _count_nodes()
        _add_erfc()
        function = tf.function(_numbering(forward), input_signature=forward.signature, autograph=False)
        model, _ = tf2onnx.convert.from_function(function, input_signature=forward.signature, opset=OPSET)
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise ExportError(f"The conversion to onnx failed: {sentence_of(error)}") from error
    _rename_outputs(model.graph, forward.outputs)
    _number_texts(model, texts)
    made.write_bytes(model.SerializeToString(deterministic=True))
    return {"tf2onnx": tf2onnx.__version__, "onnx": onnx.__version__}


def _numbering(forward: Forward) -> Callable[..., dict[str, tf.Tensor]]:
    """The function of a model with numbers for the names of its outputs, as ONNX cannot have one for an input, too."""

    def numbered(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = forward.function(*tensors)
        return {f"{number:05}": outputs[name] for number, name in enumerate(forward.outputs)}

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
