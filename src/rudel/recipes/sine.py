"""A sine from noisy samples: the first model of a TinyML course, small enough for any microcontroller.

1,000 samples of sin x on [0, 2 pi] with noise, split 60/20/20 into training, validation and test. By default a net with
two hidden layers of 16 units; `net=small` has only one of them, and underfits.
"""

from typing import Any, Literal

import numpy as np

import rudel

training = {"epochs": 600, "batch_size": 16}


def data(samples: int = 1000, noise: float = 0.1, seed: int = 0) -> rudel.Dataset:
    """Makes the samples.

    Args:
        samples: number of samples in all sets together.
        noise: standard deviation of the noise added to sin x.
        seed: seed of samples, noise and split.
    """
    random = np.random.default_rng(seed)
    x = random.uniform(0, 2 * np.pi, (samples, 1))
    y = np.sin(x) + random.normal(0, noise, x.shape)
    rest, test = rudel.split(rudel.Examples(x.astype(np.float32), y.astype(np.float32)), 0.2, seed)
    train, validation = rudel.split(rest, 0.25, seed)
    return rudel.Dataset(train, validation, test)


def model(
    dataset: rudel.Dataset, steps: int = 1, net: Literal["small", "full"] = "full", learning_rate: float = 4e-3
) -> Any:
    """A net from a number to a number.

    Args:
        dataset: says nothing that the net needs.
        steps: of the whole training, over which the learning rate falls to 0.
        net: full has two hidden layers of 16 units; small has one, and misses half of the curve.
        learning_rate: initial learning rate of Adam.
    """
    import keras
    from keras import layers

    hidden = [layers.Dense(16, activation="relu") for _ in range(1 if net == "small" else 2)]
    made = keras.Sequential([keras.Input((1,)), *hidden, layers.Dense(1)], name="sine")
    schedule: Any = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    made.compile(keras.optimizers.Adam(schedule), "mse", metrics=["mae"])
    return made
