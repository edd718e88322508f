"""Programs that were compiled for a model, kept as long as it lives, so that its next training need not compile again.

A program is good for as long as Keras would use its own: until `compile` is called, or until the model's variables,
the shapes and dtypes of the examples, or the function that changes them is another. As with Keras, whoever changes an
attribute of a layer, or of such a function, calls `compile` to make it count.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any

import jax

from rudel.aliases import Tree
from rudel.internals.keras import compile_stamp
from rudel.loop import model_state

if TYPE_CHECKING:
    import keras

_MOST = 64
"""Programs a model."""


@dataclass
class _Kept:
    stamp: weakref.ref[Any]
    programs: dict[Any, Any] = field(default_factory=dict)


class ById:
    """An object that is equal to itself alone, whatever it says of that, so that what was made of it can be kept."""

    def __init__(self, value: Any) -> None:
        self.value = value
        # each access to a method creates another object
        parts = (value.__self__, value.__func__) if isinstance(value, MethodType) else (value,)
        self._ids = tuple(map(id, parts))

    def __hash__(self) -> int:
        return hash(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other._ids == self._ids


_of_models: weakref.WeakKeyDictionary[Any, _Kept] = weakref.WeakKeyDictionary()


def kept(model: "keras.Model", key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Returns the value that `make` made for this model and key, and makes it where there is none.

    Args:
        model: a built Keras model, compiled or not.
        key: what the program depends on besides the model; hashable.
        make: makes it.
    """
    stamp = compile_stamp(model) or model
    mine = _of_models.get(model)
    if mine is None or mine.stamp() is not stamp:
        mine = _of_models[model] = _Kept(weakref.ref(stamp))
    key = (*key, _identities(model))
    if key not in mine.programs:
        made = make()
        while len(mine.programs) >= _MOST:
            del mine.programs[next(iter(mine.programs))]
        mine.programs[key] = made
    return mine.programs[key]


def form(tree: Tree) -> tuple[Any, ...]:
    """The structure, shapes and dtypes of arrays, as a part of a key."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(
        (jax.numpy.shape(leaf), str(leaf.dtype), getattr(leaf, "weak_type", False)) for leaf in leaves
    )


def _identities(model: "keras.Model") -> tuple[Any, ...]:
    optimizer = getattr(model, "optimizer", None)
    return id(optimizer), tuple(tuple(map(id, part)) for part in model_state.variables(model))
