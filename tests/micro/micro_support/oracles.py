"""The three interpreters whose bits the compiled C has to give."""

from collections.abc import Callable

import numpy as np


def runner(model: bytes, rounding: str) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """Returns a function from the inputs of a model to its outputs, as the interpreter of `rounding` computes them."""
    if rounding == "tflm":
        from tflite_micro.python.tflite_micro import runtime

        micro = runtime.Interpreter.from_bytes(model, arena_size=4 << 20)

        def invoke_micro(inputs: list[np.ndarray]) -> list[np.ndarray]:
            for index, array in enumerate(inputs):
                micro.set_input(array, index)
            micro.invoke()
            return [np.array(micro.get_output(index)) for index in range(_outputs(model))]

        return invoke_micro
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from rudel.micro.reader import with_valid_axes

    kind = OpResolverType.BUILTIN_REF if rounding == "litert" else OpResolverType.AUTO
    if rounding == "builtin":
        kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=with_valid_axes(model), experimental_op_resolver_type=kind, num_threads=1)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    results = [detail["index"] for detail in interpreter.get_output_details()]

    def invoke(inputs: list[np.ndarray]) -> list[np.ndarray]:
        for place, array in zip(places, inputs, strict=True):
            interpreter.set_tensor(place, array)
        interpreter.invoke()
        return [interpreter.get_tensor(place).copy() for place in results]

    return invoke


def _outputs(model: bytes) -> int:
    from rudel.micro.reader import read_model

    return len(read_model(model).outputs)
