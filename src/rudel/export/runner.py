"""The process that runs a converted model: `python -m rudel.export.runner`, started by `rudel.export.process`.

A job has:

    kind         litert, savedmodel or onnx
    path         of the model
    inputs       names of its inputs
    examples     path of an .npz file with arrays "0", "1", ... of examples for each input; for onnx, texts are texts
    outputs      path of the .npz file to write: the outputs by name, as float32 where they were quantised
    files        how many images there are in the folder, as N.image, to be given to the signature of a savedmodel
                 that takes files; its answers go to answers.npz there
    raw          path of another for litert, or none: `input0`, ..., `output0`, ... in the order of the file and as the
                 integers that they are; LiteRT's reference kernels are then used

The answer has the `inputs` and `outputs` of the model, in its own order: name, shape, dtype and, where numbers stand
for reals, scale and zero point. That of litert says if any tensor is int8, too: `has_int8`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.errors import ExportError
from rudel.export.process import import_tensorflow, reason_of, serve

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_BATCH = 256

Outputs = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Outputs by name, and what the model says of its inputs and outputs."""


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Does a job.

    Raises:
        ExportError: the model cannot be loaded or run.
    """
    with np.load(job["examples"]) as stored:
        columns = [stored[str(i)] for i in range(len(job["inputs"]))]
    path, names = Path(job["path"]), job["inputs"]
    try:
        if job["kind"] == "litert":
            outputs, about = _litert(path, names, columns, job.get("raw"))
        else:
            outputs, about = (_savedmodel if job["kind"] == "savedmodel" else _onnx)(path, names, columns)
        if job["files"]:
            _give_files(path, Path(job["folder"]), job["files"])
    except Exception as error:
        if lacking := re.search("Didn't find op for builtin opcode '(.+?)'", str(error)):
            raise ExportError(
                f"The model has the operator {lacking[1]}, which LiteRT's reference kernels do not have, so that the "
                f"export cannot be verified bit for bit: {_instead_of(lacking[1])}."
            ) from error
        raise ExportError(f"The exported model does not run: {reason_of(str(error)) or repr(error)}.") from error
    arrays: dict[str, Any] = outputs
    np.savez(job["outputs"], **arrays)
    return about


def _instead_of(kind: str) -> str:
    """What to do about an operator that cannot be verified: it can be compiled, or has to be replaced."""
    from rudel.micro.lowering import instead_of
    from rudel.micro.registry import OPERATORS

    if kind not in OPERATORS:
        return instead_of(kind)
    return (
        "use another layer or activation (GELU for ELU), or export to litert-int8 and use `rudel micro compile "
        "--rounding tflm`"
    )


def quantised(values: np.ndarray, dtype: "DTypeLike", scale: float, zero_point: int) -> np.ndarray:
    """Reals as integers: the nearest, within the range of the dtype."""
    limits = np.iinfo(dtype)
    return np.clip(np.round(values / scale) + zero_point, limits.min, limits.max).astype(dtype)


def _litert(path: Path, names: Sequence[str], columns: Sequence[np.ndarray], raw: str | None) -> Outputs:
    interpreter = _interpreter(path, reference=raw is not None)
    interpreter.allocate_tensors()
    inputs, outputs = _details(interpreter)
    feeds = [(inputs[name]["index"], _as_input(c, inputs[name])) for name, c in zip(names, columns, strict=True)]
    collected: dict[str, list[np.ndarray]] = {name: [] for name in outputs}
    for row in range(len(columns[0])):
        interpreter.reset_all_variables()  # an LSTM would remember the example before
        for index, values in feeds:
            interpreter.set_tensor(index, values[row])
        interpreter.invoke()
        for name, detail in outputs.items():
            collected[name].append(interpreter.get_tensor(detail["index"]))
    values = {name: np.concatenate(parts) for name, parts in collected.items()}
    if raw is not None:
        given = dict(zip(names, (column for _, column in feeds), strict=True))
        arrays: dict[str, Any] = {f"input{i}": given[name] for i, name in enumerate(inputs)}
        arrays |= {f"output{i}": values[name] for i, name in enumerate(outputs)}
        np.savez(raw, **arrays)
    results = {name: _as_reals(values[name], detail) for name, detail in outputs.items()}
    return results, {
        "inputs": [_described(name, detail) for name, detail in inputs.items()],
        "outputs": [_described(name, detail) for name, detail in outputs.items()],
        "has_int8": any(detail["dtype"] == np.int8 for detail in interpreter.get_tensor_details()),
    }


def _details(interpreter: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The interpreter's details of inputs and outputs by their names in the signature, in the order of the file."""
    runner = interpreter.get_signature_runner()  # while it is there, the interpreter does not run
    return (
        _in_order(runner.get_input_details(), interpreter.get_input_details()),
        _in_order(runner.get_output_details(), interpreter.get_output_details()),
    )


def _in_order(named: dict[str, Any], listed: list[dict[str, Any]]) -> dict[str, Any]:
    places = [detail["index"] for detail in listed]
    return dict(sorted(named.items(), key=lambda pair: places.index(pair[1]["index"])))


def _interpreter(path: Path, reference: bool) -> Any:
    """LiteRT's interpreter, or TensorFlow's own copy of it where the package is not installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError:
        tf = import_tensorflow()
        Interpreter, OpResolverType = tf.lite.Interpreter, tf.lite.experimental.OpResolverType  # type: ignore[attr-defined]  # noqa: N806
    resolver = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    return Interpreter(model_path=str(path), experimental_op_resolver_type=resolver)


def _as_input(column: np.ndarray, detail: dict[str, Any]) -> np.ndarray:
    scale, zero_point = detail["quantization"]
    values = column.reshape(len(column), *detail["shape"])
    return quantised(values, detail["dtype"], scale, zero_point) if scale else values.astype(detail["dtype"])


def _as_reals(values: np.ndarray, detail: dict[str, Any]) -> np.ndarray:
    scale, zero_point = detail["quantization"]
    return ((values.astype(np.float32) - zero_point) * np.float32(scale)) if scale else values


def _described(name: str, detail: dict[str, Any]) -> dict[str, Any]:
    scale, zero_point = detail["quantization"]
    about = {"name": name, "shape": [int(n) for n in detail["shape"]], "dtype": np.dtype(detail["dtype"]).name}
    return about | ({"scale": float(scale), "zero_point": int(zero_point)} if scale else {})


def _savedmodel(path: Path, names: Sequence[str], columns: Sequence[np.ndarray]) -> Outputs:
    tf = import_tensorflow()
    function: Any = tf.saved_model.load(str(path)).signatures["serving_arrays"]  # type: ignore[attr-defined]
    specs = function.structured_input_signature[1]
    parts = []
    for start in range(0, len(columns[0]), _BATCH):
        feeds = {
            name: tf.constant(column[start : start + _BATCH].astype(specs[name].dtype.as_numpy_dtype))
            for name, column in zip(names, columns, strict=True)
        }
        parts.append({name: tensor.numpy() for name, tensor in function(**feeds).items()})
    results = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    about = {
        "inputs": [_specified(name, specs[name]) for name in names],
        "outputs": [_specified(name, spec) for name, spec in function.structured_outputs.items()],
    }
    return results, about


def _give_files(path: Path, folder: Path, count: int) -> None:
    tf = import_tensorflow()
    model: Any = tf.saved_model.load(str(path))
    files = tf.constant([(folder / f"{number}.image").read_bytes() for number in range(count)])
    answers = {name: tensor.numpy() for name, tensor in model.signatures["serving_default"](image_bytes=files).items()}
    arrays: dict[str, Any] = answers | {"class": np.array([name.decode() for name in answers["class"]])}
    np.savez(folder / "answers.npz", **arrays)


def _specified(name: str, spec: Any) -> dict[str, Any]:
    return {"name": name, "shape": spec.shape.as_list(), "dtype": spec.dtype.name}


def _onnx(path: Path, names: Sequence[str], columns: Sequence[np.ndarray]) -> Outputs:
    import onnxruntime

    session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(string)": "str"}
    inputs, outputs = (
        {
            value.name: {
                "name": value.name,
                "shape": [None, *value.shape[1:]],
                "dtype": kinds.get(value.type, value.type.removeprefix("tensor(").removesuffix(")")),
            }
            for value in values
        }
        for values in (session.get_inputs(), session.get_outputs())
    )
    feeds = {name: column.astype(inputs[name]["dtype"]) for name, column in zip(names, columns, strict=True)}
    parts = [
        session.run(list(outputs), {name: values[start : start + _BATCH] for name, values in feeds.items()})
        for start in range(0, len(columns[0]), _BATCH)
    ]
    results = {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(outputs)}
    return results, {"inputs": list(inputs.values()), "outputs": list(outputs.values())}


if __name__ == "__main__":
    serve(run)
