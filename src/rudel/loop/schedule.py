"""The schedule of examples: those of every step, as a pure function of the seed and the step's number.

An epoch is a permutation of the examples, cut into batches of equal size, of which the last one is smaller where they
do not divide, as in Keras. Because nothing else is remembered, the position in the data is a single number, the count
of steps done, and a resumed training sees exactly the batches that would have come.
"""

from dataclasses import dataclass

import numpy as np

from rudel.array_types import Int32
from rudel.errors import DataError, OptionError, option

SEEDS = 2**32
"""Seeds are whole numbers below this."""


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
        """Batches in one pass over the examples."""
        return -(-self.examples // self.batch_size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of batches that the training has."""
        rest, epoch = self.examples % self.batch_size, min(self.total_steps, self.steps_per_epoch)
        return tuple(sorted({self.size(0), self.size(epoch - 1) if rest else self.batch_size}, reverse=True))

    def steps_of(self, size: int) -> int:
        """How many steps of the training have batches of this size, one of `sizes`."""
        last = self.total_steps // self.steps_per_epoch  # steps that end an epoch
        return last if size == self.sizes[-1] != self.batch_size else self.total_steps - last * (len(self.sizes) - 1)

    def size(self, step: int) -> int:
        """The number of examples in the batch of a step (from 0)."""
        return min(self.batch_size, self.examples - step % self.steps_per_epoch * self.batch_size)

    def same_size_until(self, step: int) -> int:
        """The number of steps done when the epoch of this step ends, or its batches of the same size."""
        epoch = step // self.steps_per_epoch
        last = self.last_step(epoch)
        return last - 1 if self.size(step) != self.size(last - 1) else last

    def samples(self, steps: int) -> int:
        """The number of examples seen in so many steps."""
        epochs, left = divmod(steps, self.steps_per_epoch)
        return epochs * self.examples + left * self.batch_size

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

    def order(self, epoch: int, width: int | None = None) -> Int32[np.ndarray, "steps width"]:
        """Indices of the examples of an epoch (from 0), int32 (steps_per_epoch, width).

        Of each batch, the first `size` count; what follows is -1.

        Args:
            epoch: its number.
            width: room for each batch, of at least the largest; None for `batch_size`, which may be more.
        """
        width = self.batch_size if width is None else width
        order = np.arange(self.examples, dtype=np.int32)
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        missing = self.steps_per_epoch * width - self.examples
        return np.pad(order, (0, missing), constant_values=-1).reshape(-1, width)

    def order_of_batches(self, epoch: int) -> np.ndarray:
        """Numbers of the batches of an epoch (from 0), (steps_per_epoch,), where a source gives whole ones."""
        order = np.arange(self.steps_per_epoch)
        return np.random.default_rng([self.seed, epoch]).permutation(order) if self.shuffle else order


def plan_schedule(
    examples: int, batch_size: int, epochs: int | None, steps: int | None, seed: int, shuffle: bool = True
) -> Schedule:
    """Checks the user's options and makes a schedule of them.

    Raises:
        OptionError: both or unusable `epochs` and `steps`, a batch size or seed that is no such number.
        DataError: there are no examples.

    >>> plan_schedule(1000, 32, epochs=2, steps=None, seed=0).total_steps
    64
    """
    check_whole_number("batch_size", batch_size)
    check_whole_number("seed", seed, least=0)
    for name, value in (("epochs", epochs), ("steps", steps)):
        if value is not None:
            check_whole_number(name, value)
    if epochs is not None and steps is not None:
        raise OptionError(f"Give either epochs or steps, not both (epochs={epochs}, steps={steps}).")
    if not examples:
        raise DataError("There are no training examples.")
    total = steps if steps is not None else (epochs or 1) * -(-examples // batch_size)
    return Schedule(int(examples), int(batch_size), int(total), int(seed), shuffle)


def check_whole_number(name: str, value: object, least: int = 1) -> None:
    """Refuses what is no whole number, or a smaller one than `least`.

    Raises:
        OptionError: names the argument.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise OptionError(f"{option(name)} must be a whole number of at least {least}, not {value!r}.")


def check_seed(seed: int) -> None:
    """Refuses a seed that random generators do not take.

    Raises:
        OptionError: it is not a whole number from 0 to `SEEDS` - 1.
    """
    check_whole_number("seed", seed, least=0)
    if seed >= SEEDS:
        raise OptionError(f"{option('seed')} must be below 2**32, not {seed}.")
