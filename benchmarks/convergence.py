"""What a schedule of rounds learns: all workers in this process, without a network and without a clock.

    python benchmarks/convergence.py --data FOLDER "workers=1,round=8192" "round=32,delay=16" "round=64,up=int8"
    python benchmarks/convergence.py "recipe=digits,samples=40960,target=0.97,round=16"

Each setting is trained on as many samples with the codecs, the outer optimizers and the compiled loop that a cluster
uses. A line says how accurate it became (mean over seeds), and how many bytes would have travelled. Settings, with
their defaults:

    workers=4           each has a share of the examples, batches of 32, and an optimizer state of its own
    round=64            local steps between two exchanges
    delay=0             so many steps into the next round, what was exchanged is taken in; meanwhile all go on
    up=top8             codec of a worker's delta
    down=top8           codec of the movement of the weights, which is sent to each worker
    outer=nesterov:1.25:0.5  outer optimizer
    factor=2            of the recipe's learning rate
    recent=1            what is evaluated is the mean of the weights over the last steps; with 0, the weights themselves
    final=1             share of that factor which is left at the end, along a cosine
    recipe=quickdraw    a recipe; other settings are its options, as net=cnn
    samples=262144      over all workers
    target=0.8          accuracy (or mean absolute error, where that is the metric) for which the steps of a worker are
                        reported; evaluated 64 times, after rounds
    speeds=             of the workers, as 1:1:1:0.1: nobody waits for anybody (the strategy `async`), and the outer
                        optimizer is one of arrivals; `round` is then the visit of the fastest, and `delay` in its steps
    hold=0              steps of the fastest that go by before a worker is answered, so that it hears of those who come
                        soon
    jitter=0            standard deviation of the time that a visit takes, as a share of it
    steer=0             1 lets workers take some steps more or fewer, so that all come at about the same time
    least=0             steps of a visit of slow workers, which otherwise have as many as they take in the same time

For one worker that trains as `rudel train` does:
workers=1,round=8192,up=float32,down=float32,outer=nesterov:1:0,factor=1.
"""

import argparse
import heapq
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rudel.backend import keras_on_jax, set_seed

keras = keras_on_jax(light=True)

import jax  # noqa: E402  # after Keras, which says where JAX keeps its programs
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from rudel.errors import RudelError  # noqa: E402
from rudel.loop import compiled_loop as loop  # noqa: E402
from rudel.loop import model_state as state  # noqa: E402
from rudel.loop.blocks import as_batch  # noqa: E402
from rudel.loop.evaluation import make_evaluator  # noqa: E402
from rudel.recipes.load import find_recipe  # noqa: E402
from rudel.replicas.asynchronous.delayed import freshness, make_delayed  # noqa: E402
from rudel.replicas.asynchronous.visits import in_step  # noqa: E402
from rudel.replicas.averages import Averages  # noqa: E402
from rudel.replicas.codec.delta_codec import make_codec  # noqa: E402
from rudel.replicas.codec.weight_vector import Layout  # noqa: E402
from rudel.replicas.moving_statistics import quickened  # noqa: E402
from rudel.replicas.outer_optimizer import make_outer  # noqa: E402

CLASSES = "airplane,alarm clock,apple,banana,bicycle,bird,book,cat,dog,fish,flower,house,rainbow"
ONE_WORKER = "workers=1,round=8192,up=float32,down=float32,outer=nesterov:1:0,factor=1"
BATCH_SIZE, LOOKS = 32, 64
AVERAGES = Averages(recent=True)
LARGE = Path(__file__).with_name("evaluate_recipe.py")


@dataclass(frozen=True)
class Setting:
    """A schedule to try; see the top of this file."""

    workers: int = 4
    round: int = 64
    delay: int = 0
    up: str = "top8"
    down: str = "top8"
    outer: str = "nesterov:1.25:0.5"
    factor: float = 2.0
    final: float = 1.0
    recent: int = 1
    recipe: str = "quickdraw"
    options: tuple[tuple[str, str], ...] = ()
    samples: int = 262_144
    target: float = 0.8
    speeds: str = ""
    least: int = 0
    hold: int = 0
    jitter: float = 0.0
    steer: int = 0

    @property
    def steps(self) -> int:
        """Local steps of each worker."""
        return self.samples // (self.workers * BATCH_SIZE)

    @property
    def longest(self) -> int:
        """Steps that a worker takes at most at a time."""
        return 3 * self.round // 2 if self.speeds else self.round

    @property
    def rounds(self) -> list[int]:
        """The lengths of all rounds; the last may be cut short.

        >>> Setting(round=128, samples=4 * 32 * 500).rounds
        [128, 128, 128, 116]
        """
        whole, rest = divmod(self.steps, self.round)
        return [self.round] * whole + [rest] * (rest > 0)


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Args:
        reached: steps of a worker to the target; infinite if it was not reached.
        accuracy: the model's first metric, on held-out examples.
        loss: of them.
        up: bytes that a worker sends, by round, mean over workers.
        down: bytes that each worker gets, by round.
    """

    reached: float
    accuracy: float
    loss: float
    up: Sequence[float]
    down: Sequence[float]


def setting_of(text: str) -> Setting:
    """A setting from a text; what is no setting is an option of the recipe.

    >>> setting = setting_of("round=64,up=int8,net=cnn")
    >>> setting.up, setting.options
    ('int8', (('net', 'cnn'),))
    """
    kinds = {known.name: type(known.default) for known in fields(Setting) if known.name != "options"}
    given: dict[str, Any] = {}
    options: list[tuple[str, str]] = []
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name in kinds:
            given[name] = kinds[name](value)
        else:
            options.append((name, value))
    return Setting(**given, options=tuple(options))


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A recipe's learning rate, by the steps of all workers together, times a factor that falls along a cosine."""

    def __init__(self, recipe: Any, setting: Setting) -> None:
        self.recipe, self.setting = recipe, setting

    def __call__(self, step: Any) -> Any:
        setting = self.setting
        done = jnp.minimum(step / setting.steps, 1.0)
        rate: Any = self.recipe(step * setting.workers) if callable(self.recipe) else self.recipe
        return setting.factor * (setting.final + (1 - setting.final) * (1 + jnp.cos(math.pi * done)) / 2) * rate


@dataclass
class Worker:
    """One of the workers.

    Args:
        progress: its model and its optimizer.
        examples: indices of its share.
        random: of its order of examples, and of augmentation.
        layout: of its weights.
        stream: examples of an epoch that it has not trained on yet.
    """

    progress: loop.Progress
    examples: np.ndarray
    random: np.random.Generator
    layout: Layout
    stream: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def order(self, steps: int) -> np.ndarray:
        """The examples of the next steps: int32 (steps, batch size)."""
        while len(self.stream) < steps * BATCH_SIZE:
            self.stream = np.concatenate([self.stream, self.random.permutation(self.examples)])
        taken, self.stream = np.split(self.stream, [steps * BATCH_SIZE])
        return taken.reshape(steps, BATCH_SIZE).astype(np.int32)

    def moved(self, weights: np.ndarray) -> np.ndarray:
        """By how much its weights are not the ones given."""
        return self.layout.vector(self.progress.state.trainable) - weights

    def shift(self, by: np.ndarray) -> None:
        """Moves the weights by what is not its own doing."""
        values, moved = self.progress.state, self.layout.arrays(by)
        trainable = [jax.device_put(np.asarray(w) + s) for w, s in zip(values.trainable, moved, strict=True)]
        self.progress = self.progress._replace(state=values._replace(trainable=trainable))


class Bench:
    """The examples, a model and the compiled loop for one setting."""

    def __init__(self, source: str | None, setting: Setting) -> None:
        self.setting, self.recipe = setting, find_recipe(setting.recipe)
        drawings = {"classes": CLASSES} if setting.recipe in ("quickdraw", str(LARGE)) else {}
        self.options = self.recipe.settings(drawings | dict(setting.options))
        self.dataset = self.recipe.data(self.options, source=source)
        self.data = as_batch(self.dataset.train)
        model = self.model(seed=0)
        values = state.read(model)
        order = np.zeros((setting.longest, BATCH_SIZE), np.int32)
        with quickened(model, setting.workers):
            self.program, self.logs = loop.compile_training(model, values, self.data, order, self.dataset.augment)
        assert self.dataset.validation
        self.evaluator = make_evaluator(model, values, self.dataset.validation, 256)
        self.metric = next(name for name in model.get_metrics_result() if name != "loss")

    def model(self, seed: int) -> Any:
        """The recipe's model with all its variables."""
        set_seed(seed)
        model = self.recipe.model(self.options, dataset=self.dataset, steps=self.setting.samples // BATCH_SIZE)
        rate = model.optimizer._learning_rate
        model.optimizer.learning_rate = Schedule(rate if callable(rate) else float(rate), self.setting)
        first = self.dataset.train.take(slice(0, BATCH_SIZE))
        state.build(model, (first.x, first.y, None))
        return model

    def worker(self, number: int, seed: int, initial: state.ModelState) -> Worker:
        """A worker with its share of the examples and random numbers of its own."""
        own = [v + v.dtype.type(7919 * number) if v.dtype == np.uint32 else v for v in initial.non_trainable]
        progress = loop.Progress(initial._replace(non_trainable=own), self.logs, np.asarray(-1, np.int32))
        return Worker(
            progress=jax.tree.map(lambda value: jnp.array(value, copy=True), progress),
            examples=np.arange(number, len(self.dataset.train), self.setting.workers),
            random=np.random.default_rng([seed, number]),
            layout=Layout.of(initial.trainable),
        )

    def metrics(self, worker: Worker, weights: np.ndarray) -> dict[str, float]:
        """Of these weights, with all else as a worker has it."""
        arrays = jax.device_put(worker.layout.arrays(weights))
        return self.evaluator.run(worker.progress.state._replace(trainable=arrays))

    def outcome(self, worker: Worker, weights: np.ndarray, reached: float, *ways: Sequence[float]) -> Outcome:
        """What came of a training that ended with these weights."""
        metrics = self.metrics(worker, weights)
        return Outcome(reached, metrics[self.metric], metrics["loss"], *ways)

    def reaches(self, worker: Worker, weights: np.ndarray) -> bool:
        """Whether these weights reach the target."""
        value = self.metrics(worker, weights)[self.metric]
        return value >= self.setting.target if self.metric == "accuracy" else value <= self.setting.target

    def step(self, worker: Worker, steps: int) -> None:
        """Trains a worker for some steps."""
        order = np.zeros((self.setting.longest, BATCH_SIZE), np.int32)
        order[:steps] = worker.order(steps)
        key = jax.random.key(worker.random.integers(2**31))
        block = np.int32(0), np.int32(steps), np.int32(0)
        worker.progress, _ = self.program.run(worker.progress, self.data, order, key, *block)


class Training:
    """A training from its first round to its last."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, setting = bench, bench.setting
        initial = state.to_host(state.read(bench.model(seed)))
        self.up, self.down, self.outer = make_codec(setting.up), make_codec(setting.down), make_outer(setting.outer)
        self.workers = [bench.worker(number, seed, initial) for number in range(setting.workers)]
        self.layout = self.workers[0].layout
        self.weights, self.recent = self.layout.vector(initial.trainable), np.empty(0, np.float32)
        self.averaged, self.done = setting.recent and setting.workers > 1, 0
        self.memory, self.left = self.outer.init(self.layout.size), np.zeros(self.layout.size, np.float32)
        self.bytes_up: list[float] = []
        self.bytes_down: list[float] = []

    def run(self) -> Outcome:
        """Trains, and evaluates what everyone agrees upon at the end."""
        setting, delay, looked, reached = self.bench.setting, self.bench.setting.delay, 0, math.inf
        merged: np.ndarray | None = None
        sent: list[np.ndarray] = []
        for steps in self.bench.setting.rounds:
            early = min(delay, steps) if merged is not None else 0
            if merged is not None:
                self.step(early)
                self.take_in(merged, sent)
            self.step(steps - early)
            merged, sent = self.exchange()
            self.average_statistics()
            before, self.done = self.done, self.done + steps
            now = self.weights + merged
            self.recent = AVERAGES.recently(self.recent, now, before, self.done) if self.averaged else now
            if not delay:
                self.take_in(merged, sent)
                merged = None
            if reached == math.inf and self.done - looked >= setting.steps / LOOKS:
                looked = self.done
                if self.bench.reaches(self.workers[0], self.recent):
                    reached = self.done
        return self.bench.outcome(self.workers[0], self.recent, reached, self.bytes_up, self.bytes_down)

    def step(self, steps: int) -> None:
        for worker in self.workers:
            self.bench.step(worker, steps)

    def exchange(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Sends all deltas up and what becomes of them down; what all decode, and what each has sent."""
        deltas = [worker.moved(self.weights) for worker in self.workers]
        messages, sent = zip(*(self.up.encode(delta, self.layout) for delta in deltas), strict=True)
        self.left += self.outer.step(np.mean(sent, axis=0), self.memory)
        message, merged = self.down.encode(self.left, self.layout)
        self.left -= merged
        self.bytes_up.append(statistics.fmean(map(len, messages)))
        self.bytes_down.append(len(message))
        return merged, list(sent)

    def take_in(self, merged: np.ndarray, sent: Sequence[np.ndarray]) -> None:
        """Moves the weights; every worker puts that in the place of what it has sent itself."""
        self.weights += merged
        for worker, own in zip(self.workers, sent, strict=True):
            worker.shift(merged - own)

    def average_statistics(self) -> None:
        """Makes moving statistics everyone's mean."""
        states = [worker.progress.state for worker in self.workers]
        for place, value in enumerate(states[0].non_trainable):
            if value.dtype == np.float32:
                mean = np.mean([np.asarray(values.non_trainable[place]) for values in states], axis=0)
                for values in states:
                    values.non_trainable[place] = jax.device_put(mean)


@dataclass
class Visitor:
    """A worker that waits for nobody.

    Args:
        worker: what it does.
        speed: steps in a unit of time.
        held: the global weights as it has them.
        own: what it has sent last.
        seen: steps of all when it was told of them.
        ends: when it is expected.
    """

    worker: Worker
    speed: float
    held: np.ndarray
    own: np.ndarray
    seen: int = 0
    ends: float = 0.0


class Arriving:
    """A training without rounds: what a worker brings is applied as soon as it comes."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.setting = bench, bench.setting
        speeds = [float(speed) for speed in self.setting.speeds.split(":")]
        if len(speeds) != self.setting.workers:
            raise ValueError(f"There are {self.setting.workers} workers, and {len(speeds)} speeds.")
        initial = state.to_host(state.read(bench.model(seed)))
        self.up, self.down = make_codec(self.setting.up), make_codec(self.setting.down)
        self.outer = make_delayed(self.setting.outer)
        workers = [bench.worker(number, seed, initial) for number in range(len(speeds))]
        self.layout = workers[0].layout
        self.weights, self.memory = self.layout.vector(initial.trainable), self.outer.init(self.layout.size)
        self.visitors = [
            Visitor(worker, speed, self.weights.copy(), np.zeros_like(self.weights))
            for worker, speed in zip(workers, speeds, strict=True)
        ]
        self.recent = np.empty(0, np.float32)
        self.done = self.arrivals = self.given = 0
        self.ways: tuple[list[float], list[float]] = ([], [])

    def run(self) -> Outcome:
        """Trains, and evaluates the weights at the end."""
        total, coming, looked, reached = self.setting.samples // BATCH_SIZE, [], 0, math.inf
        for number, visitor in enumerate(self.visitors):
            if steps := self.plan(visitor):
                self.bench.step(visitor.worker, steps)
                heapq.heappush(coming, (self.begin(visitor, 0.0, steps), number, True, steps))
        while coming and self.done < total:
            now, number, arrives, steps = heapq.heappop(coming)
            visitor = self.visitors[number]
            if arrives:
                self.arrive(visitor, round(steps))
                wait = min(self.setting.hold / self.fastest, 0.9 * self.length(visitor) / visitor.speed)
                heapq.heappush(coming, (now + wait, number, False, now))
                continue
            if reached == math.inf and self.done - looked >= total / LOOKS:
                looked = self.done
                if self.bench.reaches(self.visitors[0].worker, self.recent):
                    reached = self.done / len(self.visitors)
            came, by = steps, self.answer(visitor)
            steps = self.plan(visitor, came)
            early = min(round((now - came + self.setting.delay / self.fastest) * visitor.speed), steps)
            self.bench.step(visitor.worker, early)
            visitor.worker.shift(by)
            self.bench.step(visitor.worker, steps - early)
            if steps:
                heapq.heappush(coming, (self.begin(visitor, came, steps), number, True, steps))
        return self.bench.outcome(self.visitors[0].worker, self.recent, reached, *self.ways)

    def begin(self, visitor: Visitor, now: float, steps: int) -> float:
        """Begins a visit, and returns when it will be over."""
        visitor.ends = now + steps / visitor.speed  # as far as one knows
        return now + steps / visitor.speed * max(0.5, visitor.worker.random.normal(1.0, self.setting.jitter))

    @property
    def fastest(self) -> float:
        """Speed of the fastest worker."""
        return max(visitor.speed for visitor in self.visitors)

    def length(self, visitor: Visitor) -> int:
        """Steps of a visit."""
        setting = self.setting
        return max(round(setting.round * visitor.speed / self.fastest), min(setting.round, setting.least), 1)

    @property
    def cycle(self) -> float:
        """Steps of a cycle, in which everybody comes once."""
        return float(sum(map(self.length, self.visitors)))

    def in_step(self, visitor: Visitor, length: int, now: float) -> int:
        """Steps with which a worker comes when the first one does."""
        leader = self.visitors[0]
        if visitor is leader or not self.setting.steer:
            return length
        return in_step(length, visitor.speed, now, leader.ends, self.length(leader) / leader.speed)

    def plan(self, visitor: Visitor, now: float = 0.0) -> int:
        """Steps of a worker's next visit."""
        left = self.setting.samples // BATCH_SIZE - self.given
        fair = left * visitor.speed / sum(other.speed for other in self.visitors)
        length = self.length(visitor)
        steps = min(left, self.in_step(visitor, length, now) if fair > 1.5 * length else math.ceil(fair))
        self.given += steps
        return steps

    def arrive(self, visitor: Visitor, steps: int) -> None:
        """Takes a worker's delta in."""
        message, visitor.own = self.up.encode(visitor.worker.moved(visitor.held), self.layout)
        self.ways[0].append(len(message))
        fresh = freshness((self.done - visitor.seen) / self.cycle)
        self.outer.step(visitor.own, self.length(visitor) / self.cycle, fresh, self.memory, self.weights)
        before, self.done, self.arrivals = self.done, self.done + steps, self.arrivals + 1
        now = self.weights.copy()  # which the next arrival moves
        self.recent = AVERAGES.recently(self.recent, now, before, self.done) if self.setting.recent else now

    def answer(self, visitor: Visitor) -> np.ndarray:
        """By how much a worker's weights are to be shifted."""
        visitor.seen = self.done
        answer, sent = self.down.encode(self.weights - visitor.held, self.layout)
        visitor.held += sent
        self.ways[1].append(len(answer))
        return sent - visitor.own


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=[ONE_WORKER, ""], metavar="SETTING")
    parser.add_argument("--data", help="as of `rudel train`: for quickdraw, a folder laid out as Quick, Draw!'s bucket")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="a file for all numbers")
    given = parser.parse_args()
    results = []
    try:
        for text in given.settings:
            setting = setting_of(text)
            bench = Bench(given.data, setting)
            kind = Arriving if setting.speeds else Training
            outcomes = [kind(bench, seed).run() for seed in range(given.seeds)]
            results.append({"setting": vars(setting), "outcomes": [vars(outcome) for outcome in outcomes]})
            print(line(text, setting, outcomes), flush=True)
    except (RudelError, ValueError) as error:
        sys.exit(str(error))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


def line(text: str, setting: Setting, outcomes: Sequence[Outcome]) -> str:
    """One line for a setting."""
    accuracies = [outcome.accuracy for outcome in outcomes]
    up, down = (statistics.fmean(statistics.fmean(way) for way in ways) for ways in _ways(outcomes))
    rounds = len(outcomes[0].up) / (setting.workers if setting.speeds else 1)
    total = setting.workers * rounds * (up + down)
    return (
        f"{statistics.median(outcome.reached for outcome in outcomes):6.0f} steps  "
        f"{statistics.fmean(accuracies):.4f} ({min(accuracies):.4f} to {max(accuracies):.4f})  "
        f"loss {statistics.fmean(outcome.loss for outcome in outcomes):.4f}  {rounds:3.0f} rounds  "
        f"{up / 1e3:6.1f} kB up  {down / 1e3:6.1f} kB down  {total / 1e6:6.2f} MB in all  {text or 'the defaults'}"
    )


def _ways(outcomes: Sequence[Outcome]) -> tuple[list[Sequence[float]], list[Sequence[float]]]:
    return [outcome.up for outcome in outcomes], [outcome.down for outcome in outcomes]


if __name__ == "__main__":
    main()
