"""What the tests of `mesh` look at, done in one process with eight virtual devices.

`python mesh_jobs.py FOLDER` does the jobs and writes FOLDER/results.json; Keras has to be on JAX. A UserWarning is an
error.
"""

import contextlib
import functools
import gc
import json
import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.data.augmentation import random_flip
from rudel.errors import RudelError
from rudel.loop import blocks
from rudel.loop import compiled_loop as loop
from rudel.loop.convolution import convolve
from rudel.loop.depthwise import convolve_depthwise
from rudel.loop.windows import sharded_over
from rudel.mesh import optimizer_slots as slots
from rudel.mesh.mesh_feed import Held
from rudel.mesh.mesh_loop import OnMesh
from rudel.session.compiled_engine import CompiledEngine

warnings.simplefilter("error", UserWarning)
jax.config.update("jax_platforms", "cpu")
keras = keras_on_jax(light=True)
layers = keras.layers
EIGHT = rudel.Mesh(devices=8)

random = np.random.default_rng(5)
PICTURES = random.integers(0, 256, (100, 12, 12)).astype("uint8")
KINDS = random.integers(0, 4, 100)
HELD_OUT = rudel.Examples(PICTURES[:51], KINDS[:51])
ALL = rudel.Dataset(rudel.Examples(PICTURES, KINDS), HELD_OUT)
"""With last batches of 4 and of 11, where others are of 16 and of 20; eight devices divide only those of 16."""
WHOLE = rudel.Dataset(rudel.Examples(PICTURES[:96], KINDS[:96]), rudel.Examples(PICTURES[:40], KINDS[:40]))
"""Batches of 16 and of 20 alone: others would be programs to compile."""
MOVING = rudel.Dataset(WHOLE.train, augment=random_flip)
WORDS = random.integers(0, 32, (64, 6)).astype("int32")


def convolutional() -> Any:
    body = [layers.Rescaling(1 / 255), layers.Reshape((12, 12, 1))]
    for filters, size, strides in ((8, 5, 2), (16, 3, 1)):
        penalty = keras.regularizers.L2(0.01)
        body += [layers.Conv2D(filters, size, strides, "same", use_bias=False, kernel_regularizer=penalty)]
        body += [layers.BatchNormalization(), layers.ReLU()]
    body += [layers.GlobalAveragePooling2D(), layers.Dropout(0.3), layers.Dense(4, activation="softmax")]
    model = keras.Sequential([keras.Input((12, 12)), *body], name="convolutional")
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def dense(optimizer: Any = "adam") -> Any:
    body = [layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(32), layers.BatchNormalization(), layers.ReLU()]
    body += [layers.Dropout(0.3), layers.Dense(4, activation="softmax")]
    model = keras.Sequential([keras.Input((12, 12)), *body], name="dense")
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def attentive() -> Any:
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(32, 8)(words)
    x = layers.MultiHeadAttention(4, 4)(x, x)
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    model = keras.Model(words, layers.Dense(3)(x), name="attentive")
    model.compile("adam", "mse")
    return model


def fit(make: Any, strategy: Any, data: Any = WHOLE, **settings: Any) -> tuple[Any, dict[str, Any]]:
    gc.freeze()  # `clear_session` looks through all else
    keras.backend.clear_session()  # names of variables are counted from the beginning again
    set_seed(4)
    model = make()
    settings = {"batch_size": 16, "epochs": 2, "validation_batch_size": 20} | settings
    return model, rudel.fit(model, data, strategy=strategy, **settings).history


def same_losses() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for devices in ("single", 1, 2, 4, 8):
        strategy = devices if devices == "single" else rudel.Mesh(devices=devices)
        found[f"dense {devices}"] = fit(dense, strategy)[1]
    texts: list[str] = []
    compiled = loop._compile

    def kept(*arguments: Any) -> Any:
        program, extra = compiled(*arguments)
        texts.append(program.run.as_text())  # type: ignore[attr-defined]  # a jax.stages.Compiled
        return program, extra

    train_step, traced = OnMesh.train_step, []

    def counted(self: OnMesh, *arguments: Any) -> Any:
        traced.append(self)
        return train_step(self, *arguments)

    loop._compile, OnMesh.train_step = kept, counted  # type: ignore[method-assign]
    for devices, strategy in (("single", "single"), (2, rudel.Mesh(devices=2)), (8, EIGHT)):
        found[f"convolutional {devices}"] = fit(convolutional, strategy, MOVING)[1]
    loop._compile, OnMesh.train_step = compiled, train_step  # type: ignore[method-assign]
    return found | {"moved": [_moving(text) for text in texts], "traced": len(traced)}


class Logging(keras.Sequential):
    """Logs, of a batch of validation, the sum of its targets."""

    def test_step(self, state: Any, data: Any) -> Any:
        return {"loss": keras.ops.sum(data[1]), "own": keras.ops.ones(())}, state


def validations() -> dict[str, Any]:
    """Sums over batches of validation; those of 51 and of 20 do not divide, nor does the default of 256 for three."""
    x = random.normal(0, 1, (400, 4)).astype("float32")
    kinds = random.integers(0, 2, 400)
    train = rudel.Examples(x[:96], kinds[:96])

    def summing(kind: Any = keras.Sequential) -> Any:
        model = kind([keras.Input((4,)), layers.Dense(2)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"))
        return model

    def normed() -> Any:
        model = keras.Sequential([keras.Input((4,)), layers.Dense(2), layers.UnitNormalization(axis=0)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model  # of a layer that nobody expects to compare examples, so that it gets the default size

    def measured(strategy: Any, count: int, size: int | None, make: Any = summing) -> list[float]:
        data = rudel.Dataset(train, rudel.Examples(x[:count], kinds[:count]))
        return fit(make, strategy, data, batch_size=24, epochs=1, validation_batch_size=size)[1]["val_loss"]

    three = rudel.Mesh(devices=3)
    return {
        "all at once": [measured(strategy, 51, None) for strategy in ("single", EIGHT)],
        "given size": [measured(strategy, 51, 20) for strategy in ("single", EIGHT)],
        "own logs": [measured(strategy, 56, 16, lambda: summing(Logging)) for strategy in ("single", EIGHT)],
        "default size": [measured("single", 400, 255, normed), measured(three, 400, None, normed)],
        "default size, all at once": [measured(strategy, 256, None, normed) for strategy in ("single", three)],
    }


def precisions() -> dict[str, Any]:
    found = {}
    for precision in ("mixed_bfloat16", "mixed_float16"):
        keras.config.set_dtype_policy(precision)
        for name, strategy in (("single", "single"), ("mesh", EIGHT)):
            found[f"{precision} {name}"] = fit(dense, strategy, rudel.Examples(PICTURES, KINDS))[1]["loss"]
    keras.config.set_dtype_policy("float32")
    return found


def layouts(run: Path) -> dict[str, Any]:
    """Losses with variables cut, what is said of it, and how much of each a device held while it trained."""
    targets = random.normal(0, 1, (64, 3)).astype("float32")
    data = rudel.Dataset(rudel.Examples(WORDS, targets))
    held: dict[str, list[int]] = {}
    train_until = CompiledEngine._train_until

    def looked_at(self: Any, end: int) -> Any:
        for variable, value in zip(self._session.model.trainable_variables, self._state.trainable, strict=True):
            held[variable.path] = [value.addressable_data(0).size, value.size]
        slot_sizes = [[a.addressable_data(0).size, a.size] for a in self._state.optimizer if a.size > 1]
        held["slots"] = [sum(column) for column in zip(*slot_sizes, strict=True)]
        return train_until(self, end)

    CompiledEngine._train_until = looked_at  # type: ignore[method-assign]
    chosen = rudel.Mesh(axes={"data": 2, "model": 4})
    found: dict[str, Any] = {
        "single": fit(attentive, "single", data)[1],
        "chosen": fit(attentive, chosen, data, run=run)[1],
    }
    found["chosen held"], found["summary"] = dict(held), json.loads((run / "summary.json").read_text())
    found["config"], found["report"] = json.loads((run / "config.json").read_text()), (run / "report.html").read_text()
    pictures = WHOLE.train
    held.clear()
    own = rudel.Mesh(axes="data=4,model=2", layouts=["dense/dense.*kernel=model,-"])
    found["asked"], found["asked held"] = fit(dense, own, pictures)[1], dict(held)
    slots.LEAST_BYTES = slots.LEAST_SAVED = 0
    held.clear()
    found["zero"], found["zero held"] = fit(dense, EIGHT, pictures)[1], dict(held)
    slots.LEAST_SAVED = 64e6
    CompiledEngine._train_until = train_until  # type: ignore[method-assign]
    return found


def resumed(run: Path) -> dict[str, Any]:
    """A training on 8 devices that is killed, and goes on with 2; with the best weights, and callbacks."""

    class Crash(keras.callbacks.Callback):
        model: Any

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen = self.model.get_weights()
            if epoch == 0:
                raise InterruptedError

    class Look(keras.callbacks.Callback):
        model: Any

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen = float(np.sum(self.model.weights[0].numpy()))
            self.model.optimizer.learning_rate = 0.01

    settings = {"run": run, "checkpoint_every": 4, "monitor": "val_loss"}
    with contextlib.suppress(InterruptedError):
        fit(dense, EIGHT, callbacks=[Crash()], epochs=3, **settings)
    look = Look()
    model, history = fit(dense, rudel.Mesh(devices=2), resume=True, epochs=3, **settings, callbacks=[look])
    _, expected = fit(dense, "single", epochs=3, callbacks=[Look()])
    last = float(np.sum(model.weights[0].numpy()))
    best: Any = keras.saving.load_model(run / "best.keras")
    return {"history": history, "expected": expected, "seen": look.seen, "last": last, "best": best.count_params()}


class Counted(Held):
    """Examples as a stream."""

    def fingerprint(self) -> str:
        return "counted"


def streams() -> dict[str, Any]:
    """Losses that are compared bit by bit, so these programs are optimised; nothing may be compiled after them."""
    blocks.BLOCK_BYTES = 4000
    jax.config.update("jax_disable_most_optimizations", False)
    size = {"validation_batch_size": 16}
    found = {"single": fit(dense, "single", ALL, **size)[1], "in memory": fit(dense, EIGHT, ALL, **size)[1]}
    data = rudel.Dataset(Counted(ALL.train), Counted(HELD_OUT))
    return found | {"streamed": fit(dense, EIGHT, data, **size)[1]}


def gradients() -> dict[str, list[list[float]]]:
    """The gradients of one step on 1, 2, 4 and 8 devices: what plain SGD at rate 1 subtracts from the weights."""
    targets = random.normal(0, 1, (64, 3)).astype("float32")
    cases = {
        "convolutional": (convolutional, rudel.Examples(PICTURES, KINDS)),
        "dense": (dense, rudel.Examples(PICTURES, KINDS)),
        "attentive": (attentive, rudel.Examples(WORDS, targets)),
    }
    found = {}
    for name, (make, examples) in cases.items():
        for devices in (1, 2, 4, 8):
            before: list[np.ndarray] = []
            descending = functools.partial(_descending, make, before)
            model, _ = fit(descending, rudel.Mesh(devices=devices), examples, epochs=None, steps=1)
            changes = zip(before, model.trainable_variables, strict=True)
            found[f"{name} {devices}"] = [(old - new.numpy()).ravel().tolist() for old, new in changes]
    return found


def _descending(make: Any, weights: list[np.ndarray]) -> Any:
    """A model with plain SGD at rate 1; its weights are added to the list."""
    model = make()
    model.compile(keras.optimizers.SGD(1.0), model.loss)
    weights.extend(variable.numpy() for variable in model.trainable_variables)
    return model


def collectives() -> dict[str, Any]:
    """What a convolution whose windows are gathered piece by piece moves between devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    cut, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    x = jax.ShapeDtypeStruct((32, 32, 32, 32), "float32", sharding=cut)

    def moved(parts: int, convolve: Any = convolve, shape: tuple[int, ...] = (3, 3, 32, 8)) -> dict[str, int]:
        kernel = jax.ShapeDtypeStruct(shape, "float32", sharding=whole)

        def loss(x: Any, kernel: Any) -> Any:
            with sharded_over(parts):
                return (convolve(x, kernel, (1, 1), [(1, 1), (1, 1)]) ** 2).sum()

        step = jax.jit(jax.grad(loss, argnums=(0, 1)), out_shardings=(cut, whole))
        return _moving(step.lower(x, kernel).compile().as_text() or "")

    depthwise = moved(8, convolve_depthwise, (3, 3, 1, 32))
    return {"kept in place": moved(8), "not kept in place": moved(1), "depthwise": depthwise}


def _moving(text: str) -> dict[str, int]:
    """What is moved between devices: the largest arrays of every kind, by their number of elements."""
    found: dict[str, int] = {}
    kinds = r"= (.*?) (all-gather|all-to-all|collective-permute|all-reduce|reduce-scatter)(?:-start)?\("
    for line in text.splitlines():
        for shapes, kind in re.findall(kinds, line):
            dimensions = [re.findall(r"\d+", shape) for shape in re.findall(r"\[[\d,]*\]", shapes)]
            found[kind] = max(found.get(kind, 0), *(math.prod(map(int, sizes)) for sizes in dimensions))
    return found


def errors() -> dict[str, str]:
    cases: dict[str, dict[str, Any]] = {
        "devices": {"devices": 9},
        "shape": {"axes": "data=3"},
        "shape and devices": {"axes": "data=3", "devices": 4},
        "no variable": {"axes": "data=4,model=2", "layouts": {"lstm": (None, "model")}},
        "no axis": {"layouts": {"dense": (None, "model")}},
        "dimensions": {"axes": "data=4,model=2", "layouts": {"kernel": ("model",)}},
        "size": {"axes": "data=1,model=8", "layouts": {"dense_?.*/kernel": (None, "model")}},
        "regex": {"axes": "data=4,model=2", "layouts": {"(": (None, "model")}},
        "batch": {"devices": 8},
    }
    messages = {}
    for name, options in cases.items():
        try:
            fit(dense, rudel.Mesh(**options), batch_size=30 if name == "batch" else 24)
        except RudelError as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    results = {
        "same_losses": same_losses(),
        "validations": validations(),
        "precisions": precisions(),
        "layouts": layouts(folder / "layouts"),
        "resumed": resumed(folder / "resumed"),
        "gradients": gradients(),
        "collectives": collectives(),
        "errors": errors(),
        "streams": streams(),
    }
    (folder / "results.json").write_text(json.dumps(results))
