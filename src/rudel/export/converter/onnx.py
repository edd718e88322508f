"""ONNX, by way of tf2onnx, for batches of any size."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tf2onnx
from tf2onnx.handler import tf_op

from rudel.errors import ExportError
from rudel.export.converter.forward import Forward
from rudel.export.converter.model import sentence_of

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
    names = sorted(forward.trace().structured_outputs)  # which is how TensorFlow orders them
    try:
        _count_nodes()
        _add_erfc()
        model, _ = tf2onnx.convert.from_function(forward.function, input_signature=forward.signature, opset=OPSET)
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        if passed := re.search(r"graph input '(\w+)' not exist", str(error)):
            raise ExportError(
                f"The model gives its input `{passed[1]}` as an output, as it is, which tf2onnx cannot convert: leave "
                "that output out, or export to savedmodel or litert."
            ) from error
        raise ExportError(f"The conversion to onnx failed: {sentence_of(error)}") from error
    _order_outputs(model.graph, names, forward.outputs)
    _rename_outputs(model.graph, forward.outputs)
    _number_texts(model, texts)
    made.write_bytes(model.SerializeToString(deterministic=True))
    return {"tf2onnx": tf2onnx.__version__, "onnx": onnx.__version__}


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


def _order_outputs(graph: onnx.GraphProto, names: list[str], wanted: list[str]) -> None:
    """Puts outputs in the order of the model."""
    outputs = dict(zip(names, list(graph.output), strict=True))
    del graph.output[:]
    graph.output.extend(outputs[name] for name in wanted)


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
    """Gives outputs the names that they have in Keras, in the place of the converter's."""
    new = {output.name: name for output, name in zip(graph.output, names, strict=True)}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {i.name for i in graph.input}
    new = {old: name for old, name in new.items() if name not in taken}
    for values in (graph.output, graph.value_info):
        for value in values:
            value.name = new.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
