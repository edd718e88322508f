"""Kinds of models that are right as they are, and cannot be compiled: what they are, and what to export instead."""

from collections.abc import Iterable

from rudel.errors import CompileError
from rudel.micro.graph import Graph, Operator, Tensor

_ACCELERATORS = {"ethos-u": ("an Arm Ethos-U", "Vela"), "edgetpu-custom-op": ("a Coral Edge TPU", "edgetpu_compiler")}

_REMEDY = (
    "export all of it in int8 instead, by `rudel export RUN --to litert-int8`, or by TFLiteConverter with a "
    "`representative_dataset` and `target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]`."
)


def refuse_accelerators(operators: Iterable[Operator]) -> None:
    """Refuses what another compiler has made: its operators are instructions of one processor.

    Raises:
        CompileError: says for which processor.
    """
    for operator in operators:
        for name, (processor, compiler) in _ACCELERATORS.items():
            if operator.kind == f"CUSTOM `{name}`":
                raise CompileError(
                    f"The model has been compiled for {processor} already: operator {operator.index} is a program for "
                    f"that processor. Compile the .tflite file that {compiler} was given."
                )


def refuse_quantisation(graph: Graph) -> None:
    """Refuses models whose weights and activations are quantised in a way that has no kernels.

    Raises:
        CompileError: says which way, and how to export the model instead.
    """
    for operator in graph.operators:
        outputs = [graph[index] for index in operator.outputs]
        weights = [graph[index] for index in operator.inputs if index >= 0 and graph[index].data is not None]
        if operator.kind != "DEQUANTIZE" and _any(outputs, "float32") and _quantised(weights, "int8", "uint8", "int4"):
            raise _refused("weights in int8 and computes in float32 (dynamic-range quantisation)", operator)
        if _quantised(outputs, "int16"):
            raise _refused("activations in int16 (as with weights in int8, 16x8)", operator)
        if _quantised(outputs, "uint8") and _quantised(weights, "uint8"):
            raise _refused("weights and activations in uint8, as TensorFlow 1 quantised them", operator)


def _refused(what: str, operator: Operator) -> CompileError:
    return CompileError(f"The model has {what}, which cannot be compiled (see {operator.label}): {_REMEDY}")


def _any(tensors: Iterable[Tensor], dtype: str) -> bool:
    return any(tensor.dtype == dtype for tensor in tensors)


def _quantised(tensors: Iterable[Tensor], *dtypes: str) -> bool:
    return any(tensor.dtype in dtypes and tensor.quantised for tensor in tensors)
