"""The messages between a coordinator and its replicas."""

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgpack

from rudel.errors import RudelError


@dataclass(frozen=True)
class Setup:
    """Program, layout and settings of a replica, the same for a whole training.

    Args:
        code: exported program, from `export_rounds`, or from `pack_steps` for another backend than JAX.
        examples, leaves: the whole data set's length, and (shape of an example, dtype) of its arrays.
        batch_size: examples a step.
        seed, shuffle: of the order of examples.
        number: of this replica.
        delta_codec, merge_codec: names, as `make_codec` takes them; a snapshot may name other codecs.
        seeds: which non-trainable variables are states of random generators.
        statistics: which non-trainable variables the replicas agree on.
        state: packed non-trainable, optimizer and metrics variables and logs to begin with.
        counts: how many there are of each of these four.
        on_disk: whether examples are to be in files; see `rudel.shipping.host_examples`.
        backend: of Keras, by which steps are taken.
    """

    code: bytes
    examples: int
    leaves: Sequence[tuple[Sequence[int], str]]
    batch_size: int
    seed: int
    shuffle: bool
    number: int
    delta_codec: str
    merge_codec: str
    seeds: Sequence[int]
    statistics: Sequence[int]
    state: bytes
    counts: Sequence[int]
    on_disk: bool = False
    backend: str = "jax"


@dataclass(frozen=True)
class Snapshot:
    """A point of the training at which a replica can begin.

    Args:
        weights: the packed vector G.
        statistics: packed averaged statistics.
        slots: packed optimizer variables of another replica; None to keep those that the replica has.
        codecs: names of the codecs of deltas and merges; None for those of the setup.
    """

    weights: bytes
    statistics: bytes
    slots: bytes | None = None
    codecs: tuple[str, str] | None = None

    @property
    def nbytes(self) -> int:
        """Its payload bytes."""
        return len(self.weights) + len(self.statistics) + len(self.slots or b"")


@dataclass(frozen=True)
class Plan:
    """The work of a replica in a round.

    Args:
        steps: local steps.
        rates: packed float32 learning rates, one for each step or one for all.
        pieces: ranges of examples to take from now on; None for no change.
        slots: bytes of the optimizer's slots that this answer and those after it shall hold, until all are sent; 0 for
            none but those that are under way.
    """

    steps: int
    rates: bytes
    pieces: Sequence[tuple[int, int]] | None = None
    slots: int = 0


@dataclass(frozen=True)
class Merge:
    """The merge of all deltas of a round.

    Args:
        delta: how G moves, encoded with the merge codec.
        statistics: packed means of the averaged variables.
    """

    delta: bytes
    statistics: bytes

    @property
    def nbytes(self) -> int:
        """Its payload bytes."""
        return len(self.delta) + len(self.statistics)


@dataclass(frozen=True)
class Answer:
    """The report of a replica on a round.

    Args:
        delta: encoded with the delta codec.
        statistics, metrics: packed averaged variables, and metrics variables.
        logs: packed values of the last step's logs.
        steps: local steps taken.
        seconds: from the round's beginning to its end.
        waited: seconds of these in which the replica waited for a merge.
        merged_at: steps taken before the last round's merge was applied.
        bad_step: number of the first step with a loss that is not finite, or -1.
        memory: bytes that the process has held at most.
        cpu: seconds of processor time that the process took.
        slots: a piece of the packed optimizer variables, floats as bfloat16, that were requested.
        slots_first, slots_size: bytes before this piece, and of all.
        computed: seconds in which steps were taken; what is left of `seconds` is for encoding and merging.
        network: seconds of processor time that the thread which talks to the coordinator took, part of `cpu`.
    """

    delta: bytes
    statistics: bytes
    metrics: bytes
    logs: bytes
    steps: int
    seconds: float
    waited: float
    merged_at: int
    bad_step: int
    memory: int
    cpu: float
    slots: bytes = b""
    slots_first: int = 0
    slots_size: int = 0
    computed: float = 0.0
    network: float = 0.0

    @property
    def nbytes(self) -> int:
        """Its payload bytes."""
        return sum(map(len, (self.delta, self.statistics, self.metrics, self.logs, self.slots)))

    @property
    def exchange_seconds(self) -> float:
        """Seconds of the round beside its steps and waiting: encoding, merging, and talking to the coordinator, which
        takes the processor from the steps as far as the process has no more of it than it uses.
        """
        talking = self.network * (self.seconds - self.waited) / self.cpu if self.cpu > 0 else 0.0
        return max(0.0, self.seconds - self.waited - self.computed) + talking


def packed_request(number: int, plans: Iterable[tuple[int, Plan]], merges: Iterable[tuple[int, Merge]]) -> bytes:
    """Plans and merges by the number of their round, for a replica that is to answer for one round, as bytes."""
    return _packed((number, [(n, vars(plan)) for n, plan in plans], [(n, vars(merge)) for n, merge in merges]))


def unpacked_request(message: bytes) -> tuple[int, dict[int, Plan], dict[int, Merge]]:
    """Unpacks the message of `packed_request`."""
    number, plans, merges = msgpack.unpackb(message)
    return number, {n: Plan(**plan) for n, plan in plans}, {n: Merge(**merge) for n, merge in merges}


def packed_answer(number: int, answer: Answer | Exception) -> bytes:
    """The answer of a round, or why there is none, as bytes."""
    if not isinstance(answer, Exception):
        return _packed((number, vars(answer)))
    error = {"error": type(answer).__name__, "text": str(answer)}
    if not isinstance(answer, RudelError):
        error["traceback"] = "".join(traceback.format_exception(answer))
    return _packed((number, error))


def unpacked_answer(message: bytes) -> tuple[int, dict[str, Any]]:
    """The round, and fields of an `Answer` or, of an error, what `rudel.cluster.fleet.error_of` takes."""
    number, fields = msgpack.unpackb(message)
    return number, fields


def _packed(value: object) -> bytes:
    return cast(bytes, msgpack.packb(value))
