"""Comparison of an exported model with the model that it was made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.backend import keras_on_jax, without_tensorflow
from rudel.data.dataset import Arrays, Examples
from rudel.errors import ExportError
from rudel.export.inputs import BESIDE_INPUT, output_names
from rudel.loop.classification import as_probabilities, class_labels, of_both
from rudel.loop.metric_values import as_floats
from rudel.report.formatting import better, metric_name, metric_value, number

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class Comparison:
    """The difference of an export from its model.

    Attributes:
        metrics: of the exported model, by Keras' names; empty without targets.
        model_metrics: the same of the Keras model, on the same examples.
        largest_difference: between an output of the one and of the other.
        agreement: share of the examples for which both name the same class; None for no classifiers.
    """

    metrics: dict[str, float]
    model_metrics: dict[str, float]
    largest_difference: float
    agreement: float | None


def compare(model: "keras.Model", examples: Examples, outputs: Arrays, exported: dict[str, np.ndarray]) -> Comparison:
    """Compares two sets of outputs.

    Args:
        model: the Keras model.
        examples: the inputs of both.
        outputs: the model's outputs, in its own form.
        exported: the exported model's, by name, or in any order where there is one.

    Raises:
        ExportError: outputs are missing, or not finite where the model's are.
    """
    keras = keras_on_jax()
    flat, names = keras.tree.flatten(outputs), output_names(keras, model, outputs)
    if len(names) == len(exported) == 1:
        names = list(exported)
    called = [name if name in exported else name + BESIDE_INPUT for name in names]
    if set(called) != set(exported):
        raise ExportError(f"The exported model gives {', '.join(exported)}, and the model {', '.join(names)}.")
    others = [
        np.asarray(exported[name], np.float32).reshape(part.shape) for name, part in zip(called, flat, strict=True)
    ]
    differences = []
    for name, mine, other in zip(names, flat, others, strict=True):
        if np.isfinite(mine).all() and not np.isfinite(other).all():
            raise ExportError(
                f"The exported model gives NaN or infinities as `{name}`, where the Keras model does not."
            )
        differences.append(float(np.abs(np.asarray(mine, np.float64) - other).max(initial=0)))
    answers = keras.tree.pack_sequence_as(outputs, others)
    return Comparison(
        metrics_of(model, examples, answers),
        metrics_of(model, examples, outputs),
        max(differences),
        _agreement(model, outputs, answers),
    )


def notes_on_quantisation(comparison: Comparison, inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note where quantisation makes a metric clearly worse: a tenth of it is lost, or an error doubles.

    Args:
        comparison: of the exported model.
        inputs: of the exported model; see `rudel.export.Exported`.
    """
    for name, before in comparison.model_metrics.items():
        after, sign = comparison.metrics[name], better(name)
        if not sign * (before - after) > abs(before) * (0.1 if sign > 0 else 1):  # also where one is NaN
            continue
        coarse = [port for port in inputs if port.get("scale", 1) != 1]  # at 1, pixels and spectrograms are exact
        wide = max(coarse, key=lambda port: port["scale"], default=None)
        remedy = "Export to litert-dynamic, which has float32 activations."
        if wide is not None:
            limits = np.iinfo(wide["dtype"])
            least, most = (wide["scale"] * (limit - wide["zero_point"]) for limit in (limits.min, limits.max))
            remedy = (
                f"The widest input, `{wide['name']}`, spans {number(least, 3)} to {number(most, 3)} in "
                f"{int(limits.max) - int(limits.min):,} steps: if that is too coarse, scale it before the model, "
                "or export to litert-dynamic."
            )
        was, now = metric_value(name, before), metric_value(name, after)
        return [f"Quantisation changes {metric_name(name)} from {was} to {now}. {remedy}"]
    return []


def notes_on_calibration(names: Sequence[str], columns: Sequence[np.ndarray]) -> list[str]:
    """A note on each input of which calibration saw a single value.

    Args:
        names: of the inputs.
        columns: (N, ...), the examples of each that ranges were found on.
    """
    return [
        f"All values of `{name}` in the calibration examples are {number(float(column.flat[0]), 3)}, which gives no "
        "ranges for others: calibrate on examples in which it varies."
        for name, column in zip(names, columns, strict=True)
        if column.min() == column.max()
    ]


def metrics_of(model: "keras.Model", examples: Examples, outputs: Arrays) -> dict[str, float]:
    """The model's own metrics for outputs that are given, and accuracy or mean absolute error if it has none of these.

    Args:
        model: a Keras model.
        examples: with targets; without any there are no metrics.
        outputs: (N, ...) in the model's form.
    """
    if examples.y is None:
        return {}
    values: dict[str, float] = {}
    if model.compiled:
        with without_tensorflow():
            model.reset_metrics()
            logs = as_floats(model.compute_metrics(examples.x, examples.y, outputs, examples.sample_weight))
            model.reset_metrics()
        values = {name: value for name, value in logs.items() if not name.endswith("loss")}
    if not isinstance(outputs, np.ndarray) or not isinstance(examples.y, np.ndarray):
        return values
    probabilities, labels = as_probabilities(model, outputs), class_labels(examples)
    if probabilities is not None and labels is not None:
        if not any("acc" in name for name in values):
            values = {"accuracy": float((of_both(probabilities).argmax(1) == labels).mean())} | values
    elif probabilities is None and examples.y.size == outputs.size and not {"mae", "mean_absolute_error"} & set(values):
        errors = np.abs(outputs.reshape(len(outputs), -1) - examples.y.reshape(len(outputs), -1).astype(np.float64))
        values = {"mae": float(errors.mean())} | values
    return values


def _agreement(model: "keras.Model", outputs: Arrays, answers: Arrays) -> float | None:
    if not isinstance(outputs, np.ndarray):
        return None
    mine, other = as_probabilities(model, outputs), as_probabilities(model, answers)
    if mine is None or other is None:
        return None
    return float((of_both(mine).argmax(1) == of_both(other).argmax(1)).mean())
