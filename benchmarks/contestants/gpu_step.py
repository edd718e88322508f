"""Steps of one of the nets of `gpu.py`, by `rudel.fit`, on one device or on a mesh of several.

The time of a step is the median over stretches of steps, each of which runs as `rudel.fit` runs it: compiled blocks,
with the loss looked at between them. Compilation and the first stretch do not count.
"""

import json
import statistics
import sys
import time
from typing import Any

import gpu_nets
import numpy as np
from gpu_flops import flops

import rudel
from rudel.backend import keras_on_jax

STRETCHES = 5
BATCHES = 2


def main() -> None:
    """Trains, prints."""
    given = json.loads(sys.argv[1])
    keras = keras_on_jax(light=True)
    net, devices = gpu_nets.nets(given["size"])[given["net"]], given["devices"]
    strategy: Any = "single" if devices == 1 else rudel.Mesh(axes={"data": devices}, devices=devices)
    batch = net.batch * devices
    random = np.random.default_rng(0)
    x, y = net.inputs(random, BATCHES * batch), random.integers(0, gpu_nets.CLASSES, BATCHES * batch)

    class Clock(keras.callbacks.Callback):
        """Seconds of each stretch."""

        def on_train_begin(self, logs: Any = None) -> None:
            self.stretches: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.stretches.append(time.perf_counter() - self.began)

    clock = Clock()

    def train(steps: int, stretches: int) -> list[float]:
        """Seconds of each stretch of so many steps."""
        settings: Any = {"steps": steps * stretches, "eval_every": steps, "batch_size": batch, "strategy": strategy}
        rudel.fit(model, x, y, callbacks=[clock], verbose=False, **settings)
        return clock.stretches

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy({"bfloat16": "mixed_bfloat16", "float32": "float32"}[given["precision"]])
    model = net.make()
    model.compile(
        keras.optimizers.SGD(1e-4, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    probe = train(4, 3)[-1] / 4
    steps = max(2, round(given["seconds"] / STRETCHES / probe))
    step_seconds = statistics.median(train(steps, STRETCHES)[1:]) / steps
    operations = flops(model.train_step, _shapes(model), (x[:batch], y[:batch]))
    print(json.dumps({"step_seconds": step_seconds, "steps": steps * STRETCHES, "flops": operations, "batch": batch}))


def _shapes(model: Any) -> Any:
    """The model's state, as shapes and dtypes."""
    import jax

    from rudel.loop import model_state as state

    return jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), tuple(state.variables(model)))


if __name__ == "__main__":
    main()
