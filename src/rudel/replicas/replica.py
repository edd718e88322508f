"""A replica: trains rounds of local steps in a thread of its own, and exchanges deltas through two slots.

What the replica holds can be rebuilt from what the coordinator has: the global weights G, and its examples. Its own
are the inner optimizer's slots, and what its local weights L differ from G by.

A round: from L as it was at the end of the last one, `steps` local steps are taken. The merged delta of the round
before may arrive at any time during them: then G moves by it, and so does L, less what this replica had sent, so that
this is replaced by everyone's; the steps taken since are kept, and so is what was not sent. At the
end, L - G is encoded, and the next round begins at once if its plan is known, while this delta is under way (overlap
as in Streaming DiLoCo, 2501.18512). A replica is never more than one merge behind.
"""

import hashlib
import math
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import ml_dtypes
import numpy as np

from rudel.array_types import UInt32
from rudel.freed_memory import release_freed_memory
from rudel.limits import cpu_quota
from rudel.replicas.codec.delta_codec import Codec, make_codec
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.exchange import Exchange
from rudel.replicas.replica_messages import Answer, Merge, Plan, Setup, Snapshot
from rudel.replicas.replica_program import ROWS, CompiledSteps, Steps, fold_seeds
from rudel.replicas.shared_variables import agreed, as_shared
from rudel.replicas.slots_by_pieces import SlotsSender
from rudel.shipping import array_bytes
from rudel.shipping.host_examples import Leaf, Shard

_TRY_OUT_SECONDS = 0.1
_TRIED_ROUNDS, _TRIED_STEPS = 6, 64
"""Rounds in which exchanges are tried out, and how many steps they have at most."""

_TALKING, _TALKING_A_BYTE = 1.4e-3, 12e-9
"""Seconds of processor time that an exchange takes in a training beside what can be tried out: for messages, and what
these take from the steps. In a lab of nodes with 0.2, 0.4 and 1.0 of a core, rounds of 16 and of 64 steps differed by 3
ms of processor time, where an exchange tried out took 0.9, with 52 kB; with 1.2 MB, rounds of 4 to 12 steps by 28 ms
for 11. With rounds that are longer for it, the drawings of `benchmarks/evaluate.py` take four hosts 1.9 s for 2.4 s,
two 2.7 s for 4.0 s, and with the CNN four 11.4 s for 13.3 s.
"""

_REHEARSED_BYTES, _LONG_SECONDS = 16_000_000, 0.5
"""Of examples, so that they do not fit into a cache, where steps are rehearsed for that long."""

_LEAST_BLOCKS, _BLOCK_SECONDS = 3, 0.1
"""Blocks of steps that are tried out at least, and how long they are at most."""

_SETTLE_SECONDS = 0.2
"""Of steps before those that are counted, where there is time: a process with a share of a core, as in a container, is
faster at first, by what it did not use before (Linux counts such shares in periods of 0.1 s).
"""

_LONG_STEP = 1.0
"""Seconds of a step that is measured once."""

_STALL = 3.0
"""A step that takes more than so many times the median has been held up."""

_LONGEST_BLOCK = 1.0
"""Seconds of steps, after which a replica that is to end does so."""

_LOOKS = 4
"""Looks for a merge in a round: each costs a call of the program, and a merge may come a third of a round later without
harm (`benchmarks/convergence.py`: with rounds of 24, 1,104 steps to the target with a delay of 8 and with one of 16).
"""


@dataclass
class _Inbox:
    """Messages from the network for the thread; guarded by one condition."""

    plans: dict[int, Plan] = field(default_factory=dict)
    merges: dict[int, Merge] = field(default_factory=dict)
    closed: bool = False


class ReplicaClosed(Exception):  # noqa: N818  # no error: it was closed on request
    """The replica is to end."""


class Replica:
    """See the module.

    Args:
        setup: what it is made of.
        publish: called in the replica's thread with (round, `Answer`), or (round, exception) if it failed.
        network: number of the thread that talks to the coordinator, if there is one.

    Attributes:
        step_seconds: of a step, as tried out before the training; what rounds take says how it is later.
    """

    def __init__(self, setup: Setup, publish: Callable[[int, Any], None], network: int | None = None) -> None:
        self._setup, self._publish, self._network = setup, publish, network
        began = time.perf_counter()
        self._run = _steps_of(setup)
        self._layout = Layout.of(self._run.weights)
        self._use_codecs(make_codec(setup.delta_codec), make_codec(setup.merge_codec))
        self.compile_seconds = time.perf_counter() - began
        release_freed_memory()
        leaves = [Leaf(tuple(shape), dtype) for shape, dtype in setup.leaves]
        self.shard = Shard(
            setup.examples, leaves, setup.batch_size, setup.seed, setup.number, setup.shuffle, setup.on_disk
        )
        carried, arrays = [], array_bytes.unpack(setup.state)
        for count in setup.counts:
            carried.append(arrays[:count])
            arrays = arrays[count:]
        non_trainable, optimizer, self._fresh_metrics, logs = carried
        non_trainable = fold_seeds(non_trainable, setup.seeds, setup.number)
        self._carried: list[list[Any]] = [[], non_trainable, optimizer, self._fresh_metrics, logs]
        self._inbox, self._changed = _Inbox(), threading.Condition()
        self._thread: threading.Thread | None = None
        self._loaded = False
        self.step_seconds = self._latest_seconds = self.rehearse(_TRY_OUT_SECONDS)
        self.exchange_seconds, self.exchange_bytes = self._try_rounds()

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a snapshot; ends what it did before."""
        self.close()
        if snapshot.codecs and (codecs := tuple(map(make_codec, snapshot.codecs))) != self._codecs:
            self._use_codecs(*codecs)
        (self._snapshot,) = array_bytes.unpack(snapshot.weights)
        self._set_statistics(array_bytes.unpack(snapshot.statistics))
        self._slots = SlotsSender(b"", 0)
        if snapshot.slots is not None:
            slots = array_bytes.unpack(snapshot.slots)
            self._carried[2] = [new.astype(old.dtype) for new, old in zip(slots, self._carried[2], strict=True)]

    def _use_codecs(self, deltas: Codec, merges: Codec) -> None:
        self._codecs, self._exchange = (deltas, merges), Exchange(self._run.weights, deltas, merges)

    def join(self, number: int, merges: Sequence[Merge]) -> None:
        """Begins with round `number`, in a thread of its own, after merges of rounds between the snapshot and that one.

        Args:
            number: of the round.
            merges: of the rounds before it.
        """
        self._get_ready(number, merges)
        self._thread = threading.Thread(target=self._work, args=(self._inbox,), name="replica", daemon=True)
        self._thread.start()

    def _get_ready(self, number: int, merges: Sequence[Merge]) -> None:
        _, codec = self._codecs
        for merge in merges:
            self._snapshot += codec.decode(merge.delta, self._layout)
            self._set_statistics(array_bytes.unpack(merge.statistics))
        self._round, self._awaited, self._merged_at = number, None, 0
        self._carried[1] = fold_seeds(self._carried[1], self._setup.seeds, 0, number)
        weights = self._layout.arrays(self._snapshot)
        like = zip(weights, self._run.weights, strict=True)
        self._carried[0] = [value.astype(weight.dtype, copy=True) for value, weight in like]
        self._carried, self._shared = self._run.put(self._carried), jax.device_put([value.copy() for value in weights])
        self._inbox = _Inbox()

    def give(self, plans: dict[int, Plan], merges: dict[int, Merge]) -> None:
        """Hands over plans and merges by the number of their round."""
        with self._changed:
            self._inbox.plans.update(plans)
            self._inbox.merges.update(merges)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the training thread, after the block of steps that it is in."""
        with self._changed:
            self._inbox.closed = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join()
            self._thread = None

    def _work(self, inbox: _Inbox) -> None:
        try:
            while True:
                plan = self._taken(inbox.plans, self._round, inbox)
                self._publish(self._round, self._one_round(plan, inbox))
                self._round += 1
        except ReplicaClosed:
            return
        except Exception as error:
            self._publish(self._round, error)

    def rehearse(self, seconds: float) -> float:
        """Takes steps on weights of zeros before the first snapshot, so that all is loaded.

        Args:
            seconds: to go on for.

        Returns:
            The seconds of a step.
        """
        zeros = [np.zeros(w.shape, w.dtype) for w in self._run.weights]
        carried = [zeros, *([np.array(v) for v in part] for part in self._carried[1:])]
        long = seconds >= _LONG_SECONDS
        rows, settled = self.shard.blank(_REHEARSED_BYTES if long else 1), _SETTLE_SECONDS if long else 0.0
        order = np.random.default_rng(0).integers(0, rows, (ROWS, self._setup.batch_size), np.int32)
        fixed = self._run.put(self.shard.arrays), order, np.zeros(ROWS, np.float32), np.zeros(2, np.uint32)

        def taken_by(count: int) -> float:
            nonlocal carried
            began = time.perf_counter()
            carried, bad = self._run(carried, *fixed, np.int32(0), np.int32(count))
            int(bad)  # waits for the steps
            return time.perf_counter() - began

        if not self._loaded:
            taken_by(1)  # loads what the others need
        self._loaded = True
        count, passed, counted, each, blocks = 1, 0.0, 0.0, 0.0, []
        while each < _LONG_STEP and counted < seconds:
            block = taken_by(count)
            each = block / count
            if max(passed, block) >= settled:
                blocks.append((block, count))
                counted += min(block, seconds / _LEAST_BLOCKS)  # one that was held up is not all there is
            passed += block
            count = min(ROWS, 4 * count, max(1, int(min(seconds - counted, _BLOCK_SECONDS) / each)))
        return _usual_seconds(blocks)

    def rehearse_rounds(self, seconds: float, steps: int, step: float) -> tuple[float, float]:
        """Takes rounds of zeros before the first snapshot, each with a delta to encode and another's to merge.

        Args:
            seconds: to go on for.
            steps: of a round.
            step: seconds of one.

        Returns:
            The seconds that a round takes beside its steps, and those that the first one takes longer.
        """
        taken: list[float] = []
        rounds = self._rounds_of_zeros(steps)
        while sum(taken) < seconds or len(taken) < (3 if taken[0] < seconds else 2):
            began = time.perf_counter()
            next(rounds)
            taken.append(time.perf_counter() - began)
        rounds.close()
        first, *others = taken
        usual = _usual_seconds([(seconds, 1) for seconds in others])
        return max(0.0, usual - steps * step), max(0.0, first - usual)

    def _try_rounds(self) -> tuple[float, int]:
        """Seconds that a round takes beside its steps, and bytes that it sends and gets.

        Steps come between two exchanges, as in the training, where they take the cache for themselves. Of long ones,
        few are taken: what an exchange takes hardly matters to them. The mean has the pauses of a limited processor in
        it, or, where it was not paused in so few, those that will come for what was used of it; not the longest
        exchange, which something else may have held up.
        """
        steps = max(1, min(_TRIED_STEPS, int(_TRY_OUT_SECONDS / _TRIED_ROUNDS / self.step_seconds)))
        rounds, count = self._rounds_of_zeros(steps), _TRIED_ROUNDS if self.step_seconds < _TRY_OUT_SECONDS else 2
        quota, taken = cpu_quota() or math.inf, []
        _, size = next(rounds)
        for _ in range(count - 1):
            answer, _ = next(rounds)
            taken.append(max(answer.exchange_seconds, (answer.cpu - self._computed_cpu) / quota))
        rounds.close()
        taken, talking = sorted(taken), _TALKING + _TALKING_A_BYTE * size
        return statistics.fmean(taken[:-1] or taken) + talking / min(1.0, quota), size

    def _rounds_of_zeros(self, steps: int) -> Generator[tuple[Answer, int]]:
        """Takes rounds on weights of zeros, whose merges are noise, and puts all as it was at the end.

        Yields:
            The answer of each, and how many bytes its delta and its merge have.
        """
        begun = [[np.array(v) for v in part] for part in self._carried[1:]]
        noise = np.random.default_rng(0).standard_normal(self._layout.size, np.float32)
        means = array_bytes.pack([np.asarray(self._carried[1][index], np.float32) for index in self._setup.statistics])
        self.restore(Snapshot(array_bytes.pack([np.zeros_like(noise)]), means))
        self.shard.blank(_REHEARSED_BYTES)
        self._get_ready(0, [])
        deltas, merges = self._codecs
        if merges == deltas:  # what writes changes is compiled already
            changes = zip(self._layout.arrays(noise), self._run.weights, strict=True)
            _, message = self._exchange.take([v.astype(w.dtype) for v, w in changes], self._layout.arrays(0 * noise))
        else:
            message, _ = merges.encode(noise, self._layout)
        inbox, merge = _Inbox(), Merge(message, means)
        rates, share = array_bytes.pack([np.zeros(1, np.float32)]), [(0, max(1, self._setup.examples // 4))]
        try:
            while True:
                answer = self._one_round(Plan(steps, rates, None if self._round else share), inbox)
                # Of zeros, a model may make no numbers.
                delta = answer.delta or deltas.encode(noise, self._layout)[0]
                inbox.merges[self._round] = merge
                self._round += 1
                yield answer, len(delta) + len(message)
        finally:
            self._carried = [[], *begun]

    def _taken(self, where: dict[int, Any], number: int, inbox: _Inbox) -> Any:
        """The plan or merge of this number, as soon as it is there."""
        with self._changed:
            self._changed.wait_for(lambda: inbox.closed or number in where)
            if inbox.closed:
                raise ReplicaClosed
            return where.pop(number)

    def _one_round(self, plan: Plan, inbox: _Inbox) -> Answer:
        began, cpu, network = time.perf_counter(), time.process_time(), _cpu_of(self._network)
        waited, done, bad_step, self._computed, self._computed_cpu = 0.0, 0, -1, 0.0, 0.0
        if plan.pieces is not None:
            self.shard.own([(int(first), int(last)) for first, last in plan.pieces], self._round)
            self._data = self._run.put(self.shard.arrays)
        self._carried[3] = [np.array(value) for value in self._fresh_metrics]
        (rates,) = array_bytes.unpack(plan.rates)
        while done < plan.steps:
            first, rows = done, min(ROWS, plan.steps - done)
            order = np.zeros((ROWS, self._setup.batch_size), np.int32)
            order[:rows] = self.shard.batches(rows)
            of_chunk = np.zeros(ROWS, np.float32)
            of_chunk[:rows] = rates if len(rates) == 1 else rates[first : first + rows]
            key = _key(self._setup.seed, self._setup.number, self._round, first)
            fixed = order, of_chunk, key
            while done < first + rows:
                if self._awaited is not None and self._awaited in inbox.merges:
                    self._merge(inbox.merges.pop(self._awaited))
                    self._merged_at = done
                count = min(rows - (done - first), max(1, int(_LONGEST_BLOCK / self._latest_seconds)))
                if self._awaited is not None:
                    count = min(count, max(7 * self._merged_at // 8 - done, plan.steps // _LOOKS, 1))
                bad = self._steps(fixed, done - first, count)
                bad_step = first + bad if bad >= 0 and bad_step < 0 else bad_step
                done += count
                if inbox.closed:
                    raise ReplicaClosed
        if self._awaited is not None:
            waits = time.perf_counter()
            self._merge(self._taken(inbox.merges, self._awaited, inbox))
            self._merged_at, waited = done, time.perf_counter() - waits
        statistics = self._taken_statistics()
        self._sent, message = self._exchange.take(self._carried[0], self._shared)
        if bad_step < 0 and not message:
            bad_step = plan.steps - 1
        self._awaited = self._round
        metrics, logs = ([np.asarray(value) for value in part] for part in self._carried[3:])
        if plan.slots:
            self._slots = SlotsSender(self._packed_slots(), plan.slots)
        slots, slots_first, slots_size = self._slots.next()
        return Answer(
            delta=message if bad_step < 0 else b"",
            statistics=array_bytes.pack(statistics),
            metrics=array_bytes.pack(metrics),
            logs=array_bytes.pack(logs),
            steps=plan.steps,
            seconds=time.perf_counter() - began,
            waited=waited,
            merged_at=self._merged_at,
            bad_step=bad_step,
            memory=_largest_resident_bytes(),
            cpu=time.process_time() - cpu,
            slots=slots,
            slots_first=slots_first,
            slots_size=slots_size,
            computed=self._computed,
            network=_cpu_of(self._network) - network,
        )

    def _steps(self, fixed: tuple[Any, Any, Any], first: int, count: int) -> int:
        began, cpu = time.perf_counter(), time.process_time()
        self._carried, bad = self._run(self._carried, self._data, *fixed, np.int32(first), np.int32(first + count))
        bad = int(np.asarray(bad))  # waits for the steps
        seconds = time.perf_counter() - began
        self._latest_seconds, self._computed = seconds / count, self._computed + seconds
        self._computed_cpu += time.process_time() - cpu
        return bad

    def _merge(self, merge: Merge) -> None:
        """Applies what became of the last round's deltas; see the module."""
        moved = self._exchange.merge(self._carried[0], self._shared, self._sent, merge.delta)
        self._carried[0], self._shared = moved
        means = array_bytes.unpack(merge.statistics)
        for index, start, mean in zip(self._setup.statistics, self._statistics_at_start, means, strict=True):
            value = self._carried[1][index]
            self._carried[1][index] = agreed(as_shared(value), start, mean).astype(value.dtype)
        self._awaited = None

    def _set_statistics(self, values: Sequence[np.ndarray]) -> None:
        for index, value in zip(self._setup.statistics, values, strict=True):
            self._carried[1][index] = value.astype(self._carried[1][index].dtype)

    def _taken_statistics(self) -> list[np.ndarray]:
        """The averaged variables as they are; remembers them for the merge."""
        self._statistics_at_start = [as_shared(self._carried[1][i]) for i in self._setup.statistics]
        return self._statistics_at_start

    def _packed_slots(self) -> bytes:
        slots = [np.asarray(value) for value in self._carried[2]]
        return array_bytes.pack([slot.astype(ml_dtypes.bfloat16) if slot.dtype.kind == "f" else slot for slot in slots])


def _steps_of(setup: Setup) -> Steps:
    if setup.backend == "jax":
        return CompiledSteps(setup.code)
    from rudel.replicas.keras_steps import OwnSteps

    rows = [np.zeros((setup.batch_size, *shape), dtype) for shape, dtype in setup.leaves]
    return OwnSteps(setup.backend, setup.code, rows)


def _usual_seconds(blocks: Sequence[tuple[float, int]]) -> float:
    """Seconds of one of many, their mean without what was held up, from blocks of them: (seconds, how many).

    >>> _usual_seconds([(0.1, 1), (0.004, 4), (0.016, 16)]), _usual_seconds([(1.0, 1), (2.0, 1), (3.0, 1)])
    (0.001, 2.0)
    """
    seconds, counts = np.array(blocks, float).T
    each = seconds / counts
    order = np.argsort(each)
    median = each[order][np.searchsorted(2 * np.cumsum(counts[order]), counts.sum())]
    there = each <= _STALL * median
    return float(seconds[there].sum() / counts[there].sum())


def _key(*numbers: int) -> UInt32[np.ndarray, "2"]:
    """Data of a random key that depends on some numbers, uint32 (2,)."""
    return np.frombuffer(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), np.uint32)


def _cpu_of(thread: int | None) -> float:
    """Seconds of processor time of a thread, 0.0 where the system does not say."""
    if thread is None or sys.platform in ("darwin", "win32"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


def _largest_resident_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
