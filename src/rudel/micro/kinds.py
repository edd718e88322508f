"""Kinds of models that are right as they are, and cannot be compiled: what they are, and what to export instead."""

from collections.abc import Iterable

from rudel.errors import CompileError
from rudel.micro.emit import C_TYPES
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
        inputs = [graph[index] for index in operator.inputs if index >= 0]
        outputs = [graph[index] for index in operator.outputs]
        weights = [tensor for tensor in inputs if tensor.data is not None]
        small = _quantised(weights, "int8", "uint8", "int4")
        if small and operator.kind != "DEQUANTIZE" and any(tensor.dtype == "float32" for tensor in outputs):
            raise _refused("weights in int8 and computes in float32 (dynamic-range quantisation)", small, operator)
        if _quantised(weights, "uint8") and (old := _quantised(outputs, "uint8")):
            raise _refused("weights and activations in uint8, as TensorFlow 1 quantised them", old, operator)


def refuse_types(graph: Graph) -> None:
    """Refuses models that compute in a type for which there is no C, such as float16.

    Raises:
        CompileError: says which tensor has it, and how to export the model instead.
    """
    for index in (*graph.inputs, *(index for operator in graph.operators for index in operator.outputs)):
        tensor = graph[index]
        if tensor.dtype not in C_TYPES:
            raise CompileError(
                f"Tensor {index} (`{tensor.name[:60]}`) has type {tensor.dtype}, which is not supported: "
                "export the model with inputs and activations in int8 or float32 instead."
            )


def _refused(what: str, tensor: Tensor, operator: Operator) -> CompileError:
    return CompileError(
        f"The model has {what}, which cannot be compiled (`{tensor.name[:60]}` at {operator.label}): {_REMEDY}"
    )


def _quantised(tensors: Iterable[Tensor], *dtypes: str) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor.dtype in dtypes and tensor.quantised), None)
