"""A `.tflite` file, computed by LiteRT, or by TensorFlow's copy of it.

Clients send and get real numbers. Where the file takes integers that stand for reals (scale and zero point), they are
converted here, as the file says. Examples are computed one batch of the file's own size after another.

The file is read at once: LiteRT would map it into memory, where whoever copies another one over it changes the weights
of the model that answers, or ends the process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rudel.aliases import Json
from rudel.errors import ServeError
from rudel.export.runner import quantised
from rudel.loop.classification import of_both
from rudel.runs.model_as_run import fits
from rudel.serve.image_inputs import reader
from rudel.serve.model_signature import Signature, Tensor, may_be_missing
from rudel.serve.refusal import Refusal, bad
from rudel.serve.runtimes.runtime import Loaded, padded


def load_litert(path: Path, class_names: Sequence[str] = ()) -> Loaded:
    """Loads a `.tflite` file.

    Args:
        path: of it.
        class_names: in the order of its outputs; none where they are not known. A file without an output for each of
            them has none.

    Raises:
        ServeError: LiteRT is missing, or cannot read or compute the file.
    """
    interpreter = _interpreter(path)
    names_in, names_out = _names(interpreter)
    file = _File(interpreter, interpreter.get_input_details(), interpreter.get_output_details())
    signature = Signature(
        tuple(_tensor(name, detail, path) for name, detail in zip(names_in, file.inputs, strict=True)),
        tuple(_tensor(name, detail, path) for name, detail in zip(names_out, file.outputs, strict=True)),
    )
    if len({int(detail["shape"][0]) for detail in (*file.inputs, *file.outputs)}) != 1:
        raise ServeError(f"The inputs and outputs of {path} do not all begin with the number of examples.")
    try:
        file.compute([np.zeros((1, *tensor.shape), tensor.dtype) for tensor in signature.inputs])
    except Refusal as error:
        raise ServeError(f"{path} cannot be computed: {error}") from error
    loaded = Loaded(signature, file.compute, "litert", decode=reader(signature, None))
    (shape, *others) = [output.shape for output in signature.outputs]
    if others or len(shape) != 1 or not fits(class_names, shape[0]):
        return loaded
    return replace(loaded, labels=tuple(class_names), scores=_scores)


def _scores(outputs: np.ndarray) -> np.ndarray | None:
    """A score for each class, of one output where there are two."""
    return of_both(outputs.astype(np.float32)) if outputs.ndim == 2 else None


class _File:
    """An interpreter with its tensors."""

    def __init__(self, interpreter: Any, inputs: list[Json], outputs: list[Json]) -> None:
        self._interpreter = interpreter
        self.inputs = inputs
        self.outputs = outputs

    def compute(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs (N, ...) of inputs (N, ...).

        Raises:
            Refusal: an operator does not take these, as one that looks up an index that is in no table.
        """
        rows, size = len(columns[0]), int(self.inputs[0]["shape"][0])
        feeds = [_as_integers(c, detail) for c, detail in zip(columns, self.inputs, strict=True)]
        parts: list[list[np.ndarray]] = [[] for _ in self.outputs]
        for start in range(0, rows, size):
            self._interpreter.reset_all_variables()
            batch = padded([feed[start : start + size] for feed in feeds], size)
            for detail, values in zip(self.inputs, batch, strict=True):
                self._interpreter.set_tensor(detail["index"], values)
            try:
                self._interpreter.invoke()
            except RuntimeError as error:
                raise bad(f"The model cannot take this input ({_first_line(error)}).") from error
            for part, detail in zip(parts, self.outputs, strict=True):
                part.append(self._interpreter.get_tensor(detail["index"]))
        outputs = [np.concatenate(part)[:rows] for part in parts]
        return [_as_reals(values, detail) for values, detail in zip(outputs, self.outputs, strict=True)]


def _interpreter(path: Path) -> Any:
    try:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            import tensorflow as tf

            Interpreter = tf.lite.Interpreter  # type: ignore[attr-defined]  # noqa: N806
    except ImportError:
        raise ServeError(f"{path} needs LiteRT: install it by `pip install ai-edge-litert`.") from None
    try:
        interpreter = Interpreter(model_content=path.read_bytes(), num_threads=1)
        interpreter.allocate_tensors()
    except OSError as error:
        raise ServeError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RuntimeError) as error:
        raise ServeError(f"{path} cannot be read by LiteRT ({_first_line(error)}).") from error
    return interpreter


def _names(interpreter: Any) -> tuple[list[str], list[str]]:
    """Names of inputs and outputs in the order of the file: those of its signature, or of its tensors."""
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    signatures = interpreter.get_signature_list()
    plain_in, plain_out = (_words([detail["name"] for detail in details]) for details in (inputs, outputs))
    if not signatures:
        return plain_in, plain_out
    runner = interpreter.get_signature_runner(next(iter(signatures)))
    return (
        _named(inputs, runner.get_input_details(), plain_in),
        _named(outputs, runner.get_output_details(), plain_out),
    )


def _named(details: Sequence[Json], signature: Mapping[str, Json], plain: Sequence[str]) -> list[str]:
    """Names of tensors in a signature; a tensor that is listed twice has two there. Without one, it is `plain`."""
    names: dict[int, list[str]] = {}
    for name, detail in signature.items():
        names.setdefault(detail["index"], []).append(name)
    return [
        names[detail["index"]].pop(0) if names.get(detail["index"]) else other
        for detail, other in zip(details, plain, strict=True)
    ]


def _words(names: Sequence[str]) -> list[str]:
    """Names of tensors without the number of an output of TensorFlow's, except where it tells them apart.

    >>> _words(["x:0"]), _words(["boxes", "boxes:1", "count:3"])
    (['x'], ['boxes', 'boxes:1', 'count'])
    """
    plain = [name.partition(":")[0] for name in names]
    often = Counter(plain)
    return [name if often[word] > 1 else word for name, word in zip(names, plain, strict=True)]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["it does not say why"]
    return lines[0].rstrip(".")


def _tensor(name: str, detail: Json, path: Path) -> Tensor:
    dtype = np.dtype(detail["dtype"])
    if dtype.kind not in "biuf":
        raise ServeError(f"The tensor `{name}` of {path} holds {dtype}, which cannot be served.")
    if len(detail["shape"]) < 1:
        raise ServeError(f"The tensor `{name}` of {path} is a single number, and none for each example.")
    shape = tuple(int(size) for size in detail["shape"][1:])
    stands_for_reals = detail["quantization"][0]
    return Tensor(name, shape, "float32" if stands_for_reals else dtype.name, may_be_missing(shape, dtype.name))


def _as_integers(column: np.ndarray, detail: Json) -> np.ndarray:
    scale, zero_point = detail["quantization"]
    return quantised(column, detail["dtype"], scale, zero_point) if scale else column


def _as_reals(values: np.ndarray, detail: Json) -> np.ndarray:
    scale, zero_point = detail["quantization"]
    return (values.astype(np.float32) - zero_point) * np.float32(scale) if scale else values
