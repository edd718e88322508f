"""Layouts: the axes of a mesh along which each variable is sharded, as given or by the kind of layer.

The choice follows M. Shoeybi and others, *Megatron-LM* (1909.08053): of two dense layers in a row, the first is sharded
by columns and the second by rows, so that the values between them are never gathered; attention is sharded by
heads. Tables of embeddings are sharded by rows, and convolutions by output channels. A layout changes where numbers are
kept and who computes them, and results by rounding only.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rudel.errors import OptionError
from rudel.mesh.mesh_devices import MODEL, written_axes
from rudel.report.formatting import plural

if TYPE_CHECKING:
    import keras


Spec = tuple[str | None, ...]
"""For every dimension of a variable, the axis of the mesh that it is sharded along, or None."""

_PLAIN_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D")
_ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention")
_CHANGES_FEATURES = ("Flatten", "Reshape", "Permute", "Concatenate", "RepeatVector")
_LISTED = 5


@dataclass(frozen=True)
class Layouts:
    """The layout of each variable of a model.

    Args:
        specs: by the identity of the Keras variable; others are whole.
        why: by the variable's path, how and why, for people.
        whole: paths of variables that could not be sharded, because their sizes do not divide.
    """

    specs: dict[int, Spec] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    whole: tuple[str, ...] = ()

    def of(self, variable: "keras.Variable") -> Spec:
        """The layout of a variable; empty where it is replicated."""
        return self.specs.get(id(variable), ())


def read_layouts(layouts: object) -> dict[str, Spec]:
    """Axes by regular expression.

    Raises:
        OptionError: it is no mapping, or one of its entries makes no sense.

    >>> read_layouts(["embedding=model,-"])
    {'embedding': ('model', None)}
    """
    if isinstance(layouts, str):
        layouts = [layouts]
    if isinstance(layouts, Sequence) and all(isinstance(text, str) for text in layouts):
        pairs = [text.rpartition("=") for text in layouts]
        layouts = {regex: [axis.strip() for axis in axes.split(",")] for regex, _, axes in pairs}
    if not isinstance(layouts, Mapping):
        raise _no_layout(layouts)
    read = {}
    for regex, axes in layouts.items():
        listed = isinstance(axes, Iterable) and not isinstance(axes, str)
        if not (regex and isinstance(regex, str) and listed):
            raise _no_layout({regex: axes})
        if not all(axis is None or isinstance(axis, str) for axis in axes):
            raise _no_layout({regex: axes})
        read[regex] = tuple(None if axis in (None, "", "-") else axis for axis in axes)
    return read


def layouts_of(
    model: "keras.Model", axes: Mapping[str, int], rules: Mapping[str, Sequence[str | None]] | None
) -> Layouts:
    """The layouts of a built model.

    Args:
        model: a Keras model.
        axes: the mesh.
        rules: axes by regular expression, or None to have them chosen, if there is an axis `model`.

    Raises:
        OptionError: a rule names no axis of the mesh, matches no variable, or does not fit the one that it matches.
    """
    if rules is not None:
        return _by_rules(model.weights, axes, rules)
    return _by_kind(model, axes[MODEL]) if axes.get(MODEL, 1) > 1 else Layouts()


def _by_rules(variables: Sequence[Any], axes: Mapping[str, int], rules: Mapping[str, Any]) -> Layouts:
    specs: dict[int, Spec] = {}
    why: dict[str, str] = {}
    for regex, spec in rules.items():
        _check_rule(regex, spec, axes)
        matched = [variable for variable in variables if re.search(regex, variable.path)]
        if not matched:
            raise OptionError(
                f"The layout `{regex}` matches no variable: there are {_listed(v.path for v in variables)}."
            )
        for variable in matched:
            if id(variable) not in specs:
                _check_fits(regex, spec, axes, variable)
                specs[id(variable)] = tuple(spec)
                why[variable.path] = f"{_written(spec)}: asked for"
    return Layouts(specs, why)


def _check_rule(regex: str, spec: Spec, axes: Mapping[str, int]) -> None:
    try:
        re.compile(regex)
    except re.error as error:
        raise OptionError(f"The layout `{regex}` is not a regular expression: {error}.") from error
    for axis in filter(None, spec):
        if axis not in axes:
            raise OptionError(
                f"The layout `{regex}` names the axis `{axis}`, which the mesh {written_axes(axes)} does not have: "
                f"use {' or '.join(axes)}."
            )
    if len(set(filter(None, spec))) < len(list(filter(None, spec))):
        raise OptionError(f"The layout `{regex}` shards two dimensions along one axis: {_written(spec)}.")


def _check_fits(regex: str, spec: Spec, axes: Mapping[str, int], variable: "keras.Variable") -> None:
    if len(spec) != len(variable.shape):
        raise OptionError(
            f"The layout `{regex}` has {plural(len(spec), 'dimension')}, and `{variable.path}` has "
            f"{len(variable.shape)}, {tuple(variable.shape)}: give an axis or none for each."
        )
    for size, axis in zip(variable.shape, spec, strict=True):
        if axis and size % axes[axis]:
            raise OptionError(
                f"The layout `{regex}` shards {size} into {axes[axis]} unequal parts in `{variable.path}` "
                f"{tuple(variable.shape)}: replicate that dimension, or take a mesh whose `{axis}` divides it."
            )


def _by_kind(model: "keras.Model", shards: int) -> Layouts:
    """Chooses layouts by the kinds of layers, for so many shards."""
    specs: dict[int, Spec] = {}
    why: dict[str, str] = {}
    whole: list[str] = []
    columns = 0  # features that the last dense layer gave, if it was sharded by columns

    def cut(variable: "keras.Variable | None", spec: Spec, how: str) -> bool:
        if variable is None:
            return False
        if any(axis and size % shards for size, axis in zip(variable.shape, spec, strict=True)):
            whole.append(variable.path)
            return False
        specs[id(variable)] = spec
        why[variable.path] = f"{_written(spec)}: {how}"
        return True

    for layer in _layers(model):
        kind, before = type(layer).__name__, columns
        kernel, bias = _variable(layer, "kernel"), _variable(layer, "bias")
        if kind in _CHANGES_FEATURES:
            columns = 0
        elif kind == "BatchNormalization" and columns:  # and perhaps of another branch, which that layer is not in
            for name in ("gamma", "beta", "moving_mean", "moving_variance"):
                variable: keras.Variable | None = getattr(layer, name, None)
                if variable is not None and variable.shape == (columns,):
                    cut(variable, (MODEL,), "by features")
        elif not layer.weights:
            continue
        elif kind == "Dense" and kernel is not None:
            columns = 0
            if before and before == kernel.shape[0]:
                cut(kernel, (MODEL, None), "by rows")
            elif cut(kernel, (None, MODEL), "by columns"):
                columns = kernel.shape[1]
                cut(bias, (MODEL,), "by columns")
        elif kind == "Embedding":
            columns = 0
            cut(_variable(layer, "embeddings"), (MODEL, None), "by rows")
        elif kind in _PLAIN_CONVOLUTIONS and kernel is not None:
            columns = 0
            if cut(kernel, (*[None] * (len(kernel.shape) - 1), MODEL), "by output channels"):
                cut(bias, (MODEL,), "by output channels")
        elif kind in _ATTENTION:
            columns = 0
            if not _cut_heads(layer, shards, cut):
                whole.append(layer.path)
        elif kind != "EinsumDense":  # those of attention are sharded with it
            columns = 0
    return Layouts(specs, why, tuple(whole))


def _cut_heads(layer: "keras.Layer", shards: int, cut: Callable[["keras.Variable | None", Spec, str], bool]) -> bool:
    """Cuts attention by heads, if there are as many, or a multiple."""
    from rudel.internals.keras import attention_projections

    *inner, outer = attention_projections(layer)
    kernels = [kernel for dense in (*inner, outer) if (kernel := _variable(dense, "kernel")) is not None]
    if len(kernels) < 4 or any(len(kernel.shape) != 3 for kernel in kernels):
        return False
    *kernels, last = kernels
    if any(kernel.shape[1] % shards for kernel in kernels) or last.shape[0] % shards:
        return False
    for dense, kernel in zip(inner, kernels, strict=True):
        cut(kernel, (None, MODEL, None), "by heads")
        cut(_variable(dense, "bias"), (MODEL, None), "by heads")
    cut(last, (MODEL, None, None), "by heads")
    return True


def _variable(layer: "keras.Layer | None", name: str) -> "keras.Variable | None":
    """The variable of a layer of this name; with LoRA, the attribute `kernel` is a sum that is computed from it."""
    return next((variable for variable in getattr(layer, "variables", ()) if variable.name == name), None)


def _layers(model: "keras.Model") -> Iterator[Any]:
    """The layers of a model, those inside of others after them, in the order in which they were made."""
    from rudel.internals.keras import layers_of

    for layer in layers_of(model, include_self=False, recursive=False):
        yield layer
        yield from _layers(layer)


def _written(spec: Iterable[str | None]) -> str:
    return ",".join(axis or "-" for axis in spec)


def _listed(paths: Iterable[str]) -> str:
    paths = list(paths)
    more = f" and {len(paths) - _LISTED:,} more" if len(paths) > _LISTED else ""
    return ", ".join(f"`{path}`" for path in paths[:_LISTED]) + more


def _no_layout(given: object) -> OptionError:
    return OptionError(
        "A layout is an axis or none for each dimension, as in `dense.*kernel=-,model` or "
        f"{{'dense.*kernel': (None, 'model')}}, not {given!r}."
    )
