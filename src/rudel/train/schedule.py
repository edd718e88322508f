"""Which examples every step sees: a pure function of the seed and the step's number.

An epoch is a permutation of the examples, cut into batches of equal size; what does not fill a batch is left out of
that epoch, another part each time. Because nothing else is remembered, the position in the data is a single number,
the count of steps done, and a resumed training sees exactly the batches that would have come.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.errors import DataError, OptionError


@dataclass(frozen=True)
class Schedule:
    """The order of examples over a whole training.

    Args:
        examples: number of training examples.
        batch_size: examples a step, over all replicas.
        total_steps: optimizer steps until the end.
        seed: of the permutations.
        shuffle: False to see the examples in the order in which they are given.
    """

    examples: int
    batch_size: int
    total_steps: int
    seed: int = 0
    shuffle: bool = True

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in one pass over the examples."""
        return self.examples // self.batch_size

    @property
    def epochs(self) -> int:
        """Passes over the examples, of which the last may be cut short."""
        return -(-self.total_steps // self.steps_per_epoch)

    def first_step(self, epoch: int) -> int:
        """The number of steps done when this epoch (from 0) begins."""
        return epoch * self.steps_per_epoch

    def last_step(self, epoch: int) -> int:
        """The number of steps done when this epoch (from 0) ends."""
        return min((epoch + 1) * self.steps_per_epoch, self.total_steps)

    def order(self, epoch: int) -> np.ndarray:
        """Indices of the examples of an epoch (from 0), int32 (steps_per_epoch, batch_size)."""
        count = self.steps_per_epoch * self.batch_size
        if not self.shuffle:
            return np.arange(count, dtype=np.int32).reshape(-1, self.batch_size)
        order = np.random.default_rng([self.seed, epoch]).permutation(np.arange(self.examples, dtype=np.int32))
        return order[:count].reshape(-1, self.batch_size)


def plan_schedule(
    examples: int, batch_size: int, epochs: int | None, steps: int | None, seed: int, shuffle: bool = True
) -> Schedule:
    """Checks what the user asked for and makes a schedule of it.

    Raises:
        OptionError: both or unusable `epochs` and `steps`, a batch size or seed that is no such number.
        DataError: a batch larger than the data.

    >>> plan_schedule(1000, 32, epochs=2, steps=None, seed=0).total_steps
    62
    """
    check_whole_number("batch_size", batch_size)
    check_whole_number("seed", seed, least=0)
    for name, value in (("epochs", epochs), ("steps", steps)):
        if value is not None:
            check_whole_number(name, value)
    if epochs is not None and steps is not None:
        raise OptionError(f"Give either epochs or steps, not both (epochs={epochs}, steps={steps}).")
    if batch_size > examples:
        raise DataError(
            f"A batch of {batch_size:,} is larger than the data, which has {examples:,} training examples: "
            f"give a batch_size of at most {examples:,}."
        )
    total = steps if steps is not None else (epochs or 1) * (examples // batch_size)
    return Schedule(int(examples), int(batch_size), int(total), int(seed), shuffle)


def check_whole_number(name: str, value: Any, least: int = 1) -> None:
    """Refuses what is no whole number, or a smaller one than `least`.

    Raises:
        OptionError: names the argument.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise OptionError(f"`{name}` must be a whole number of at least {least}, not {value!r}.")
