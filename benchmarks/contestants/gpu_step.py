"""Steps of one of the nets of `gpu.py`: by `rudel.fit` on one device or a mesh, by Keras' `fit`, and by hand in JAX.

They take turns, each with a model of its own. Keras' `fit` and the loop by hand get batches that are on the device
already, as `rudel.fit` puts its arrays there; Keras looks at the loss every sixteen steps. The clock runs from one
known loss to another; compilation and the first stretch of steps do not count.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpu_nets
import numpy as np
from gpu_flops import flops

import rudel
from rudel.backend import keras_on_jax

ROUNDS = 5
KERAS_STEPS_PER_EXECUTION = 16

Train = Callable[[int], float]
"""Takes so many steps, twice, and returns the seconds of the second time."""


@dataclass(frozen=True)
class Job:
    """What everybody trains, in steps of `batch` examples."""

    net: gpu_nets.Net
    precision: str
    devices: int
    x: np.ndarray
    y: np.ndarray
    batch: int


def main() -> None:
    """Trains, prints."""
    given = json.loads(sys.argv[1])
    keras_on_jax(light=True)
    net, devices = gpu_nets.nets(given["size"])[given["net"]], given["devices"]
    batch = net.batch * devices
    random = np.random.default_rng(0)
    count = net.batches * batch
    x, y = net.inputs(random, count), random.integers(0, gpu_nets.CLASSES, count, dtype="int32")
    job = Job(net, given["precision"], devices, x, y, batch)
    trains = {name: CONTESTANTS[name](job) for name in given["contestants"]}
    unit = max(KERAS_STEPS_PER_EXECUTION, net.steps_a_call)
    steps = {name: _enough(train, unit, given["seconds"] / ROUNDS / 2) for name, train in trains.items()}
    rounds = [{name: train(steps[name]) / steps[name] for name, train in trains.items()} for _ in range(ROUNDS)]
    model = _model(job)
    operations = flops(model.train_step, _shapes(model), (x[:batch], y[:batch]))
    print(json.dumps({"rounds": rounds, "flops": operations, "batch": batch}))


def _enough(train: Train, unit: int, seconds: float) -> int:
    """How many steps take about so long; a multiple of `unit`."""
    train(unit)  # compiles
    return unit * max(1, round(seconds / train(unit)))


def _model(job: Job) -> Any:
    import keras

    from rudel.loop import model_state

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy({"bfloat16": "mixed_bfloat16", "float32": "float32"}[job.precision])
    model = job.net.make()
    model.compile(
        keras.optimizers.SGD(1e-4, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model_state.build(model, (job.x[:1], job.y[:1], None))
    return model


def _clock() -> Any:
    """A callback with the seconds of each epoch."""
    import keras

    class Clock(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.seconds: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            float((logs or {})["loss"])
            self.seconds.append(time.perf_counter() - self.began)

    return Clock()


def _by_rudel(job: Job) -> Train:
    return _fitted("single", job)


def _by_mesh(job: Job) -> Train:
    return _fitted(rudel.Mesh(axes={"data": job.devices}, devices=job.devices), job)


def _fitted(strategy: Any, job: Job) -> Train:
    model, clock = _model(job), _clock()

    def train(steps: int) -> float:
        settings: Any = {"steps": 2 * steps, "eval_every": steps, "batch_size": job.batch, "strategy": strategy}
        rudel.fit(model, job.x, job.y, callbacks=[clock], verbose=False, **settings)
        return clock.seconds[-1]

    return train


def _by_keras(job: Job) -> Train:
    model, clock = _model(job), _clock()
    model.steps_per_execution = KERAS_STEPS_PER_EXECUTION
    batches = _on_device(job)

    def train(steps: int) -> float:
        endless: Any = (each for each in itertools.cycle(batches))  # Keras wants a generator
        model.fit(endless, steps_per_epoch=steps, epochs=2, callbacks=[clock], verbose=0)
        return clock.seconds[-1]

    return train


def _by_hand(job: Job) -> Train:
    import jax

    model = _model(job)
    optimizer, loss = model.optimizer, model.loss
    arrays = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state: Any = tuple([jax.numpy.copy(variable.value) for variable in part] for part in arrays)
    batches = _on_device(job)

    def loss_of(weights: Any, others: Any, x: Any, y: Any) -> Any:
        outputs, others = model.stateless_call(weights, others, x, training=True)
        return loss(y, outputs), others

    def step(state: Any, batch: Any) -> Any:
        weights, others, slots = state
        (value, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, others, *batch)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return (weights, others, slots), value

    def several(state: Any, batches: Any) -> Any:
        state, values = jax.lax.scan(step, state, batches)
        return state, values[-1]

    program, together = jax.jit(step, donate_argnums=0), job.net.steps_a_call
    if together > 1:
        program = jax.jit(several, donate_argnums=0)
        parts = [batches[i : i + together] for i in range(0, len(batches), together)]
        batches = [jax.tree.map(lambda *a: jax.numpy.stack(a), *part) for part in parts]

    def train(steps: int) -> float:
        nonlocal state
        began = 0.0
        for _ in range(2):
            began = time.perf_counter()
            value: Any = None
            for each in itertools.islice(itertools.cycle(batches), steps // together):
                state, value = program(state, each)
            float(value)
        return time.perf_counter() - began

    return train


CONTESTANTS = {"rudel": _by_rudel, "mesh": _by_mesh, "keras": _by_keras, "jax": _by_hand}


def _on_device(job: Job) -> list[Any]:
    import jax

    parts = [slice(start, start + job.batch) for start in range(0, len(job.x), job.batch)]
    return [jax.block_until_ready(jax.device_put((job.x[part], job.y[part]))) for part in parts]


def _shapes(model: Any) -> Any:
    """The model's state, as shapes and dtypes."""
    import jax

    from rudel.loop import model_state as state

    return jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), tuple(state.variables(model)))


if __name__ == "__main__":
    main()
