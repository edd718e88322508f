"""Keras callbacks around a compiled loop: at epoch ends, with their memory kept in checkpoints.

The steps of a block run as one program. Where a callback wants to act between two of them, blocks of a single step are
taken: on one device of this computer. Elsewhere, such a callback is refused by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.errors import ModelError
from rudel.runs import checkpoint

if TYPE_CHECKING:
    import keras


_TRAIN_HOOKS = tuple(f"on_{kind}batch_{moment}" for kind in ("", "train_") for moment in ("begin", "end"))
BEFORE_STEPS = frozenset({"on_batch_begin", "on_train_batch_begin"})
"""Hooks for the beginning of a training step."""

_TEST_HOOKS = ("on_test_batch_begin", "on_test_batch_end")
_SETTING_FOR_EPOCHS = {"BackupAndRestore": "save_freq", "ModelCheckpoint": "save_freq", "TensorBoard": "update_freq"}
_HARMLESS_WITHOUT_BATCHES = ("TerminateOnNaN", "ProgbarLogger")


def check_callbacks(keras: ModuleType, callbacks: Sequence[Any], *, one_device: bool, has_run: bool) -> None:
    """Refuses callbacks that cannot act.

    Args:
        keras: the module.
        callbacks: what was given.
        one_device: whether the training is on one device of this computer, and can stop between steps.
        has_run: whether there is a run directory, which keeps checkpoints.

    Raises:
        ModelError: names the callback and the hook, and what to use instead.
    """
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ModelError(f"`{callback!r}` is not a Keras callback: give instances of keras.callbacks.Callback.")
        kind = type(callback).__name__
        if isinstance(callback, keras.callbacks.BackupAndRestore) and (has_run or not one_device):
            raise ModelError(
                "BackupAndRestore works on one device of this computer, without a run directory: give run=... and "
                "resume=True instead, which restore every bit."
            )
        hooks = _hooks_between_steps(keras, callback)
        refused = [hook for hook in hooks if hook in _TEST_HOOKS or not one_device]
        if refused and _is_of_keras(callback):
            setting = _SETTING_FOR_EPOCHS[kind]
            raise ModelError(
                f"{kind}({setting}={getattr(callback, setting)!r}) acts between steps, which only one device of this "
                f'computer can: use {setting}="epoch".'
            )
        if refused:
            where = "of the evaluation" if refused[0] in _TEST_HOOKS else "anywhere but on one device of this computer"
            raise ModelError(
                f"The callback {kind} has `{refused[0]}`, and no callback acts between steps {where}: do its work in "
                "`on_epoch_end` or `on_test_end`, or train with model.fit."
            )


def after_each_hook(keras: ModuleType, act: Callable[[], None]) -> "keras.callbacks.Callback":
    """A callback that acts at each hook until the end of a training; the last of several acts after the others."""
    callback = keras.callbacks.Callback()
    for hook in ("on_train_begin", "on_epoch_begin", "on_epoch_end", *_TRAIN_HOOKS, "on_test_begin", "on_test_end"):
        setattr(callback, hook, lambda *_, **__: act())
    return callback


def hooks_between_steps(keras: ModuleType, callbacks: Sequence[Any]) -> set[str]:
    """The hooks by which one of these callbacks acts between training steps."""
    return {hook for callback in callbacks for hook in _hooks_between_steps(keras, callback)}


def _hooks_between_steps(keras: ModuleType, callback: "keras.callbacks.Callback") -> list[str]:
    """The hooks by which a callback acts between steps."""
    kind = type(callback)
    ours = next((base for base in kind.__mro__ if base.__module__.startswith("keras.")), None)
    if ours is kind:
        setting = _SETTING_FOR_EPOCHS.get(kind.__name__)
        if setting:
            return [] if getattr(callback, setting) == "epoch" else ["on_train_batch_end"]
        if kind.__name__ in _HARMLESS_WITHOUT_BATCHES:
            return []
    usual = ours if ours and ours.__name__ in _SETTING_FOR_EPOCHS else keras.callbacks.Callback
    return [
        hook
        for hook in (*_TRAIN_HOOKS, *_TEST_HOOKS)
        if getattr(kind, hook) is not getattr(usual, hook) or hook in vars(callback)
    ]


def _is_of_keras(callback: "keras.callbacks.Callback") -> bool:
    return type(callback).__module__.startswith("keras.") and type(callback).__name__ in _SETTING_FOR_EPOCHS


@dataclass(frozen=True)
class Memory:
    """The state of a callback.

    Args:
        kind: its class' name.
        plain: by attribute, its packed value with the arrays in it, if it is plain data or arrays.
        names: of all attributes.
    """

    kind: str
    plain: dict[str, tuple[Any, dict[str, np.ndarray]]]
    names: frozenset[str]


def remembered(callbacks: Sequence[Any]) -> list[Memory]:
    """The present states of the callbacks."""
    return [
        Memory(type(callback).__name__, _attributes(callback, f"callback/{i}"), frozenset(vars(callback)))
        for i, callback in enumerate(callbacks)
    ]


def forget(callbacks: Sequence[Any], at_begin: Sequence[Memory]) -> None:
    """Puts the callbacks back to what they remembered then; what is neither plain data nor arrays stays."""
    for callback, now, before in zip(callbacks, remembered(callbacks), at_begin, strict=True):
        for name in now.plain.keys() - before.names:
            delattr(callback, name)
        for name, (packed, arrays) in before.plain.items():
            if not _same((packed, arrays), now.plain.get(name)):
                setattr(callback, name, checkpoint.unpack(packed, _copied(arrays)))


def snapshot(callbacks: Sequence[Any], at_begin: Sequence[Memory], arrays: dict[str, np.ndarray]) -> list[Any]:
    """Changes of the callbacks' states since `at_begin` (best value, patience used, best weights), for a checkpoint.

    What has not changed since is configuration, and a resumed training may be given another.
    """
    changed = []
    for now, before in zip(remembered(callbacks), at_begin, strict=True):
        attributes = {name: entry for name, entry in now.plain.items() if not _same(entry, before.plain.get(name))}
        for _, inner in attributes.values():
            arrays.update(inner)
        changed.append([now.kind, [[name, packed] for name, (packed, _) in attributes.items()]])
    return changed


def restore(callbacks: Sequence[Any], packed: Sequence[Any], arrays: dict[str, np.ndarray]) -> None:
    """Gives callbacks of the same classes, in the same order, their memory back."""
    from rudel.internals.keras import restore_direction

    arrays = _copied({name: array for name, array in arrays.items() if name.startswith("callback/")})
    for callback, (kind, attributes) in zip(callbacks, packed, strict=False):
        if kind == type(callback).__name__:
            if "min_delta" in dict(attributes):
                restore_direction(callback)
            for name, value in attributes:
                setattr(callback, name, checkpoint.unpack(value, arrays))


def _attributes(callback: "keras.callbacks.Callback", prefix: str) -> dict[str, tuple[Any, dict[str, np.ndarray]]]:
    attributes = {}
    for name, value in vars(callback).items():
        arrays: dict[str, np.ndarray] = {}
        try:
            packed = checkpoint.pack(value, f"{prefix}/{name}", arrays)
        except TypeError:
            continue
        attributes[name] = (packed, {key: array.copy() for key, array in arrays.items()})
    return attributes


def _copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays that callbacks may change."""
    return {name: array.copy() for name, array in arrays.items()}


def _same(a: tuple[Any, dict[str, np.ndarray]], b: tuple[Any, dict[str, np.ndarray]] | None) -> bool:
    if b is None or a[0] != b[0] or a[1].keys() != b[1].keys():
        return False
    return all(np.array_equal(array, b[1][name]) for name, array in a[1].items())
