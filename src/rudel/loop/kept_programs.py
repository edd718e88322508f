"""Programs that were compiled for a model, kept as long as it lives, so that its next training need not compile again.

A program is good for as long as Keras would use its own: until `compile` is called, or until the model's variables,
the shapes and dtypes of the examples, or the changes made to them are others. As with Keras, whoever changes an
attribute of a layer calls `compile` to make it count.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
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
