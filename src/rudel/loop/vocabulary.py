"""Integers that a model looks up in an `Embedding`, checked against the length of its table.

JAX makes NaN of an index beyond the table, and takes negative ones from its end. An index is only called wrong where it
is certain to be looked up: where an input of the model reaches an `Embedding` as it is, or reshaped, cast or sliced.
What a slice takes is found by sending the positions of an example through the same operations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.data.dataset import Arrays, Examples, Split

if TYPE_CHECKING:
    import keras

_MOVING = frozenset(
    {"Cast", "Cropping1D", "ExpandDims", "Flatten", "GetItem", "Identity", "Permute", "Ravel", "Reshape", "Split"}
    | {"Squeeze", "Swapaxes", "Moveaxis", "Transpose", "Unstack"}
)
"""Layers and operations of Keras that move values, leave some out, or change their dtype."""

_EXACT = 1 << 23
"""Positions below this are exact in float32."""


@dataclass(frozen=True, eq=False)
class Lookup:
    """The indices of one input that an `Embedding` looks up.

    Args:
        place: of the input, in `model.inputs`.
        input: its name.
        layer: name of the `Embedding`.
        size: of its table; indices go from 0 to `size - 1`.
        positions: in a flat example; None for all.
    """

    place: int
    input: str
    layer: str
    size: int
    positions: np.ndarray | None


@dataclass(frozen=True)
class Outside:
    """An index that is not in the table.

    Args:
        lookup: which one it is meant for.
        row: of the example.
        value: that it holds.
    """

    lookup: Lookup
    row: int
    value: float

    def described(self, number: int) -> str:
        """Describes the fault in a sentence without its end; `number` is how to call the example."""
        lookup = self.lookup
        return (
            f"The input `{lookup.input}` holds {self.value:g} at example {number:,}, and the layer `{lookup.layer}` "
            f"takes 0 to {lookup.size - 1:,} (its `input_dim` is {lookup.size:,})"
        )


def lookups_of(model: "keras.Model") -> tuple[Lookup, ...]:
    """Lookups that the `Embedding` layers of a functional or sequential model certainly make in its inputs."""
    tensors = _inputs(model)
    if not tensors:
        return tuple(_of_unbuilt(model))
    known = {}
    for place, tensor in enumerate(tensors):
        sizes = tensor.shape[1:]
        whole = all(isinstance(size, int) for size in sizes) and int(np.prod(sizes)) < _EXACT
        positions = np.arange(int(np.prod(sizes))).reshape(1, *sizes) if whole else None
        known[id(tensor)] = (place, str(tensor.name), positions)
    return tuple(_followed(model, known))


def first_outside(model: "keras.Model", lookups: Sequence[Lookup], x: Arrays) -> Outside | None:
    """The first index that is not in its table.

    Args:
        model: whose lookups they are.
        lookups: of `lookups_of`.
        x: inputs (N, ...), in the form that the model takes.
    """
    arrays = _by_place(model, x) if lookups else {}
    for lookup in lookups:
        array = arrays.get(lookup.place)
        if array is None or array.dtype.kind not in "iuf":
            continue
        flat = array.reshape(len(array), -1)
        if lookup.positions is not None:
            if int(lookup.positions.max(initial=0)) >= flat.shape[1]:
                continue
            flat = flat if len(lookup.positions) == flat.shape[1] else flat[:, lookup.positions]
        if not flat.size or (flat.min() > -1 and flat.max() < lookup.size):
            continue
        row, column = np.argwhere(~((flat > -1) & (flat < lookup.size)))[0]
        return Outside(lookup, int(row), float(flat[row, column]))
    return None


def why_not_finite(model: "keras.Model", train: Split) -> str:
    """Suggests a cause of a NaN or infinite loss, or a remedy, in a sentence without its end.

    Args:
        model: built.
        train: `Examples` or a stream that it was trained on.
    """
    reason = suspect(model, train.x) if isinstance(train, Examples) else None
    return reason or (
        "lower the learning rate, clip the gradients (clipnorm=1.0 in the optimizer), or look for outliers in the data"
    )


def suspect(model: "keras.Model", x: Arrays) -> str | None:
    """Why an index may have made NaN in a model that cannot be followed, in a sentence without its end.

    Args:
        model: built.
        x: inputs (N, ...) that it was trained on.
    """
    from rudel.backend import keras_here
    from rudel.internals.keras import layers_of

    tables = [layer for layer in layers_of(model) if _looks_up(layer)]
    if not tables:
        return None
    longest = max(tables, key=lambda layer: layer.input_dim)
    for array in map(np.asarray, keras_here().tree.flatten(x)):
        if array.dtype.kind in "iu" and array.size and array.max() >= longest.input_dim:
            return (
                f"an input holds {array.max():,}, and the longest table of the model, `{longest.name}`, takes 0 to "
                f"{longest.input_dim - 1:,}, which makes NaN of other indices"
            )
    return None


def _inputs(model: "keras.Model") -> list[Any]:
    try:
        return list(model.inputs or ())
    except (AttributeError, ValueError):  # subclassed, or not built
        return []


def _followed(model: "keras.Model", known: dict[int, tuple[int, str, np.ndarray | None]]) -> Iterator[Lookup]:
    """Lookups of the tensors in `known`, which is filled up with those that hold nothing else."""
    from rudel.internals.keras import calls_of

    nodes = [
        (operation, node)
        for operation in getattr(model, "operations", None) or model.layers
        for node in calls_of(operation)
    ]
    done: set[int] = set()
    found = True
    while found:
        found = False
        for operation, node in nodes:
            given = node.input_tensors
            if id(node) in done or len(given) != 1 or id(given[0]) not in known:
                continue
            done.add(id(node))
            found = True
            place, name, positions = known[id(given[0])]
            if _looks_up(operation):
                flat = None if positions is None else np.unique(positions)
                yield Lookup(place, name, operation.name, operation.input_dim, flat)
            elif inner := _inputs(operation):
                yield from _followed(operation, {id(inner[0]): known[id(given[0])]})
            elif positions is not None and _moves(operation):
                for tensor, moved in zip(node.output_tensors, _moved(operation, node, positions), strict=True):
                    if moved is not None:
                        known[id(tensor)] = (place, name, moved)


def _moved(operation: "keras.Operation", node: Any, positions: np.ndarray) -> list[np.ndarray | None]:
    """Positions of an example after an operation; None where it does more than move them."""
    arguments = node.arguments
    nothing: list[np.ndarray | None] = [None] * len(node.output_tensors)
    if not arguments.args or arguments.args[0] is not node.input_tensors[0]:
        return nothing
    apart = _EXACT  # two examples, to see that neither takes anything from the other
    pair = np.concatenate([positions, positions + apart]).astype(np.int32)
    try:
        made = operation(pair, *arguments.args[1:], **arguments.kwargs)
    except Exception:  # whatever it does to values that it was not made for
        return nothing
    outputs = [np.asarray(output).astype(np.int64) for output in (made if isinstance(made, list | tuple) else [made])]
    if len(outputs) != len(nothing):
        return nothing
    return [
        output[:1]
        if output.ndim and len(output) == 2 and np.array_equal(output[1], output[0] + apart) and output[0].max() < apart
        else None
        for output in outputs
    ]


def _of_unbuilt(model: "keras.Model") -> Iterator[Lookup]:
    """The lookup of a sequential model that does not know its inputs yet, if it begins with one."""
    from rudel.backend import keras_here

    first = model.layers[0] if isinstance(model, keras_here().Sequential) and model.layers else None
    if first is not None and _looks_up(first):
        yield Lookup(0, "x", first.name, first.input_dim, None)


def _by_place(model: "keras.Model", x: Arrays) -> dict[int, np.ndarray]:
    """The arrays of the inputs, by place; without those of which it is not clear which input they are."""
    tensors = _inputs(model)
    if not isinstance(x, Mapping | list | tuple):
        return {0: np.asarray(x)} if len(tensors) < 2 else {}
    if not isinstance(x, Mapping):
        return dict(enumerate(map(np.asarray, x))) if len(x) == len(tensors) else {}
    structure = getattr(model, "input", None)
    named = structure if isinstance(structure, Mapping) else {tensor.name: tensor for tensor in tensors}
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    return {places[id(named[key])]: np.asarray(x[key]) for key in x if key in named and id(named[key]) in places}


def _looks_up(operation: "keras.Operation") -> bool:
    from rudel.backend import keras_here

    embedding = keras_here().layers.Embedding
    return isinstance(operation, embedding) and type(operation).call is embedding.call


def _moves(operation: "keras.Operation") -> bool:
    kind = type(operation)
    return kind.__name__ in _MOVING and kind.__module__.startswith("keras.")
