"""Batches of a stream, in an order that a seed decides, from a position that is two numbers.

The order of an epoch is a function of the seed and the epoch's number alone, the one that trainings use
(`rudel.loop.schedule`). So whoever goes on from a saved position gets exactly the batches that would have come.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.errors import DataError, OptionError

_AT_ONCE = 2


class Position(TypedDict):
    """The position of an iteration: the epoch, from 0, and how many of its batches were given."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class _Plan:
    size: int | None = None
    drop_last: bool = True
    seed: int | None = None
    replica: int = 0
    replicas: int = 1
    ahead: int = 0


class Batches:
    """Batches of a stream, all of one size. Iterating gives an epoch; iterating again, the next one.

    A loop that is left early stays where it is: the next one gives the rest of that epoch first. The methods that say
    how to batch give new batches, at the beginning, and may be called in any order.

    Args:
        stream: the examples.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._plan = _Plan()
        self._position: Position = {"epoch": 0, "batch": 0}

    def shuffle(self, seed: int = 0) -> "Batches":
        """These in another order in every epoch, over all examples.

        Args:
            seed: of the orders.
        """
        _check("seed", seed, 0)
        return self._with(replace(self._plan, seed=int(seed)))

    def batch(self, size: int, drop_last: bool = True) -> "Batches":
        """These with batches of a size.

        Args:
            size: examples a batch, for one replica.
            drop_last: leave examples out that do not fill a last batch, as for training. False fills the last batch up
                with copies of examples that have the weight 0, and gives the weight 1 to all others that have none, so
                that every example counts once and all batches have one shape, as for validation.
        """
        _check("size", size, 1)
        return self._with(replace(self._plan, size=int(size), drop_last=drop_last))

    def shard(self, replica: int, replicas: int) -> "Batches":
        """The part of one replica: of what batch number i is for all together, every replica gets as many examples.

        Args:
            replica: from 0.
            replicas: how many there are.
        """
        _check("replicas", replicas, 1)
        _check("replica", replica, 0)
        if replica >= replicas:
            raise OptionError(f"There is no replica {replica} of {replicas}: they are numbered from 0.")
        return self._with(replace(self._plan, replica=int(replica), replicas=int(replicas)))

    def prefetch(self, count: int = 2) -> "Batches":
        """These, read ahead in threads while the loop does other things.

        Args:
            count: how many batches to have ready, about; they are read in two groups. Where a batch is read in less
                than a millisecond, have many.
        """
        _check("count", count, 0)
        return self._with(replace(self._plan, ahead=int(count)))

    def __len__(self) -> int:
        """Batches of an epoch."""
        together = self._size() * self._plan.replicas
        return len(self.stream) // together if self._plan.drop_last else -(-len(self.stream) // together)

    def __iter__(self) -> Iterator[Examples]:
        if not len(self):
            raise DataError(
                f"{len(self.stream):,} examples do not fill one batch of {self._size() * self._plan.replicas:,}: "
                "give a smaller one, or drop_last=False."
            )
        epoch = self._position["epoch"]
        order = self._order(epoch)
        for number, batch in self._read(order, self._position["batch"]):
            is_last = number + 1 == len(self)
            self._position = {"epoch": epoch + 1, "batch": 0} if is_last else {"epoch": epoch, "batch": number + 1}
            yield batch

    def state(self) -> Position:
        """The position behind the batch that was given last, to be kept as JSON."""
        return self._position.copy()

    def restore(self, state: Position) -> None:
        """Goes to a position, so that the batches that would have come there come next.

        Raises:
            DataError: there is no such position.
        """
        epoch, batch = state["epoch"], state["batch"]
        if epoch < 0 or not 0 <= batch < len(self):
            raise DataError(f"There is no batch {batch} of epoch {epoch}: an epoch has {len(self):,}.")
        self._position = {"epoch": epoch, "batch": batch}

    def _with(self, plan: _Plan) -> "Batches":
        batches = Batches(self.stream)
        batches._plan = plan
        return batches

    def _size(self) -> int:
        if self._plan.size is None:
            raise OptionError("The size of batches is not known: say .batch(size) before iterating.")
        return self._plan.size

    def _order(self, epoch: int) -> np.ndarray:
        """Indices of all examples in the order of an epoch."""
        numbers = np.arange(len(self.stream), dtype=np.int32)
        return (
            numbers if self._plan.seed is None else np.random.default_rng([self._plan.seed, epoch]).permutation(numbers)
        )

    def _read(self, order: np.ndarray, first: int) -> Iterator[tuple[int, Examples]]:
        """Batches from one on, with their numbers."""
        ahead, size = self._plan.ahead, self._size()
        together = max(ahead // 2, 1)  # two groups of batches are in work: fewer, larger tasks for the threads
        groups = [(begin, min(together, len(self) - begin)) for begin in range(first, len(self), together)]
        for begin, group in self._groups(order, groups):
            for number in range(len(group) // size):
                yield begin + number, group.take(slice(number * size, (number + 1) * size))

    def _groups(self, order: np.ndarray, groups: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Examples]]:
        """Several batches as one, with the number of the first of them."""
        if not self._plan.ahead:
            for begin, count in groups:
                yield begin, self._group(order, begin, count)
            return
        waiting: deque[Future[Examples]] = deque()
        coming = iter(groups)
        with ThreadPoolExecutor(_AT_ONCE, "rudel-batches") as threads:
            try:
                for begin, _ in groups:
                    for group in itertools.islice(coming, _AT_ONCE - len(waiting)):
                        waiting.append(threads.submit(self._group, order, *group))
                    yield begin, waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _group(self, order: np.ndarray, begin: int, count: int) -> Examples:
        """So many batches from one on."""
        plan, size = self._plan, self._size()
        together = size * plan.replicas
        chosen = order[begin * together + plan.replica : (begin + count) * together : plan.replicas]
        if plan.drop_last:
            return self.stream.take(chosen)
        # Whatever fills the batch up has to be examples that the model can compute with: others of the stream.
        filling = np.resize(order, count * size - len(chosen))
        examples = self.stream.take(np.concatenate([chosen, filling]))
        weight = examples.sample_weight
        weight = np.ones(count * size, np.float32) if weight is None else weight.copy()
        weight[len(chosen) :] = 0
        return Examples(examples.x, examples.y, weight)


def _check(name: str, value: int, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise OptionError(f"`{name}` must be a whole number of at least {least}, not {value!r}.")
