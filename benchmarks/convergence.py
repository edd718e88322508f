"""What a schedule of rounds learns: all workers in this process, without a network and without a clock.

    python benchmarks/convergence.py --data FOLDER "workers=1" "round=128,up=topk:0.05:4,down=topk:0.1:4,delay=32"

Each setting is trained on the same samples with the codecs, the outer optimizers and the compiled loop that a cluster
uses. A line says how accurate it became (mean over seeds), and how many bytes travelled. Settings, with their defaults:

    workers=4           each has a share of the examples, batches of 32, and an optimizer state of its own
    round=128           local steps between two exchanges
    delay=0             so many steps into the next round, what was exchanged is taken in; meanwhile all go on
    up=float32          codec of a worker's delta
    down=float32        codec of the mean delta, sent to each worker
    outer=average       outer optimizer
    factor=1            of the recipe's learning rate
    final=1             share of it that is left at the end, along a cosine of the samples seen
    net=mlp             or cnn
    samples=262144      over all workers
"""

import argparse
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
import numpy as np  # noqa: E402
from contestants.job import Job, drawings, recipe_model  # noqa: E402

from rudel.data.dataset import Dataset  # noqa: E402
from rudel.errors import RudelError  # noqa: E402
from rudel.train import loop, state  # noqa: E402
from rudel.train.diloco.codec import make_codec  # noqa: E402
from rudel.train.diloco.outer import make_outer  # noqa: E402
from rudel.train.evaluation import Evaluator, as_batch  # noqa: E402

CLASSES = "airplane,alarm clock,apple,banana,bicycle,bird,book,cat,dog,fish,flower,house,rainbow"
BATCH_SIZE = 32

Weights = list[np.ndarray]


@dataclass(frozen=True)
class Setting:
    """A schedule to try; see the top of this file."""

    workers: int = 4
    round: int = 128
    delay: int = 0
    up: str = "float32"
    down: str = "float32"
    outer: str = "average"
    factor: float = 1.0
    final: float = 1.0
    net: str = "mlp"
    samples: int = 262_144

    @property
    def steps(self) -> int:
        """Local steps of each worker."""
        return self.samples // (self.workers * BATCH_SIZE)

    @property
    def rounds(self) -> list[int]:
        """The lengths of all rounds; the last may be shorter."""
        return [min(self.round, self.steps - start) for start in range(0, self.steps, self.round)]


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Args:
        accuracy: share of the held-out drawings that are recognised.
        loss: of them.
        up: bytes by round that a worker sends, on average.
        down: bytes by round that a worker gets.
    """

    accuracy: float
    loss: float
    up: Sequence[float]
    down: Sequence[float]


def setting_of(text: str) -> Setting:
    """A setting from a text such as `round=64,up=int8`.

    Raises:
        ValueError: it holds something else.
    """
    kinds = {known.name: type(known.default) for known in fields(Setting)}
    given: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in kinds:
            raise ValueError(f"There is no setting {name!r}: it can be {', '.join(kinds)}.")
        given[name] = kinds[name](value)
    return Setting(**given)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A recipe's learning rate, indexed by the steps of all workers together, times a factor that falls along a cosine."""

    def __init__(self, recipe: Any, setting: Setting) -> None:
        self.recipe, self.setting = recipe, setting

    def __call__(self, step: Any) -> Any:
        setting = self.setting
        done = jax.numpy.minimum(step / setting.steps, 1.0)
        factor = setting.factor * (setting.final + (1 - setting.final) * (1 + jax.numpy.cos(math.pi * done)) / 2)
        return factor * (self.recipe(step * setting.workers) if callable(self.recipe) else self.recipe)


@dataclass
class Worker:
    """One of the workers.

    Args:
        number: from 0.
        progress: its model and optimizer.
        examples: indices of its share.
        start: weights from which what it adds is measured.
        residuals: what it has not sent yet.
    """

    number: int
    progress: loop.Progress
    examples: np.ndarray
    random: np.random.Generator
    start: Weights
    residuals: Weights
    stream: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def weights(self) -> Weights:
        return [np.asarray(w) for w in self.progress.state.trainable]

    def order(self, steps: int) -> np.ndarray:
        """The examples of the next steps."""
        while len(self.stream) < steps * BATCH_SIZE:
            self.stream = np.concatenate([self.stream, self.random.permutation(self.examples)])
        taken, self.stream = np.split(self.stream, [steps * BATCH_SIZE])
        return taken.reshape(steps, BATCH_SIZE).astype(np.int32)

    def move(self, shift: Weights) -> None:
        """Adds something that is not its own doing."""
        weights = [w + s for w, s in zip(self.weights, shift, strict=True)]
        self.progress = with_weights(self.progress, weights)
        self.start = [w + s for w, s in zip(self.start, shift, strict=True)]


def with_weights(progress: loop.Progress, weights: Weights) -> loop.Progress:
    return progress._replace(state=progress.state._replace(trainable=[jax.device_put(w) for w in weights]))


class Simulation:
    """The drawings and one compiled program, for any number of trainings with one setting."""

    def __init__(self, data: str, classes: Sequence[str], setting: Setting) -> None:
        self.setting = setting
        self.job = Job(data, classes, setting.net, setting.samples // BATCH_SIZE, BATCH_SIZE, seed=0)
        self.dataset: Dataset = drawings(self.job)
        self.data = as_batch(self.dataset.train)
        self.model = self.built(0)
        values = state.read(self.model)
        order = np.zeros((setting.round, BATCH_SIZE), np.int32)
        self.program, self.logs = loop.compile_training(self.model, values, self.data, order, self.dataset.augment)
        assert self.dataset.validation
        self.evaluator = Evaluator(self.model, values, self.dataset.validation, 256)

    def built(self, seed: int) -> Any:
        set_seed(seed)
        model = recipe_model(self.job, self.dataset)
        optimizer = model.optimizer
        schedule = optimizer._learning_rate
        optimizer.learning_rate = Schedule(schedule if callable(schedule) else float(schedule), self.setting)
        first = self.dataset.train.take(slice(0, BATCH_SIZE))
        state.build(model, (first.x, first.y, None))
        return model

    def run(self, seed: int) -> Outcome:
        """Trains once."""
        setting = self.setting
        up, down, outer = make_codec(setting.up), make_codec(setting.down), make_outer(setting.outer)
        initial = state.to_host(state.read(self.built(seed)))
        weights: Weights = initial.trainable
        shapes = [w.shape for w in weights]
        memory, down_residuals = outer.init(weights), down.init(shapes)
        workers = [self.worker(number, seed, initial, up.init(shapes)) for number in range(setting.workers)]
        bytes_up, bytes_down = [], []
        arriving: tuple[Weights, list[Weights]] | None = None

        def take_in() -> None:
            nonlocal weights, memory
            assert arriving
            mean, moved = arriving
            new, memory = outer.update(mean, memory, weights)
            for worker, own in zip(workers, moved, strict=True):
                worker.move([n - w - o for n, w, o in zip(new, weights, own, strict=True)])
            weights = new

        for steps in setting.rounds:
            orders = [worker.order(steps) for worker in workers]
            first = min(setting.delay, steps) if arriving else 0
            if arriving:
                self.step(workers, orders, 0, first)
                take_in()
            self.step(workers, orders, first, steps)
            messages, moved = [], []
            for worker in workers:
                here = worker.weights
                own = [a - b for a, b in zip(here, worker.start, strict=True)]
                message, worker.residuals = up.encode(own, worker.residuals)
                messages.append(message)
                moved.append(own)
                worker.start = here
            decoded = [up.decode(message, shapes) for message in messages]
            mean = [sum(arrays[1:], arrays[0]) / np.float32(len(arrays)) for arrays in zip(*decoded, strict=True)]
            message, down_residuals = down.encode(mean, down_residuals)
            bytes_up.append(statistics.fmean(map(len, messages)))
            bytes_down.append(len(message))
            arriving = down.decode(message, shapes), moved
            if not setting.delay:
                take_in()
                arriving = None
            self.average_statistics(workers)
        if arriving:
            take_in()
        final = with_weights(workers[0].progress, weights).state
        metrics = self.evaluator.run(final)
        return Outcome(metrics["accuracy"], metrics["loss"], bytes_up, bytes_down)

    def worker(self, number: int, seed: int, initial: state.ModelState, residuals: Weights) -> Worker:
        own = [v + np.asarray(number * 7919, v.dtype) if v.dtype == np.uint32 else v for v in initial.non_trainable]
        progress = loop.Progress(initial._replace(non_trainable=own), self.logs, np.asarray(-1, np.int32))
        progress = jax.tree.map(lambda value: jax.numpy.array(value, copy=True), progress)
        examples = np.arange(number, len(self.dataset.train), self.setting.workers)
        random = np.random.default_rng([seed, number])
        return Worker(number, progress, examples, random, initial.trainable, residuals)

    def step(self, workers: list[Worker], orders: list[np.ndarray], first: int, last: int) -> None:
        for worker, order in zip(workers, orders, strict=True):
            padded = np.zeros((self.setting.round, BATCH_SIZE), np.int32)
            padded[: len(order)] = order
            key = jax.random.key(worker.random.integers(2**31))
            worker.progress = self.program.run(worker.progress, self.data, padded, key, np.int32(first), np.int32(last))

    def average_statistics(self, workers: list[Worker]) -> None:
        """Moving statistics become everyone's mean."""
        states = [worker.progress.state.non_trainable for worker in workers]
        means = [
            sum(np.asarray(v) for v in values) / np.float32(len(values)) if values[0].dtype == np.float32 else None
            for values in zip(*states, strict=True)
        ]
        for worker in workers:
            old = worker.progress.state
            new = [v if m is None else jax.device_put(m) for v, m in zip(old.non_trainable, means, strict=True)]
            worker.progress = worker.progress._replace(state=old._replace(non_trainable=new))


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=["workers=1,round=8192", ""], metavar="SETTING")
    parser.add_argument("--data", required=True, help="a folder of drawings, laid out as Quick, Draw!'s bucket")
    parser.add_argument("--classes", default=CLASSES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="a file for all numbers")
    given = parser.parse_args()
    results = []
    try:
        for text in given.settings:
            simulation = Simulation(given.data, given.classes.split(","), setting_of(text))
            outcomes = [simulation.run(seed) for seed in range(given.seeds)]
            results.append({"setting": text, "outcomes": [vars(outcome) for outcome in outcomes]})
            print(line(text, simulation.setting, outcomes), flush=True)
    except (RudelError, ValueError) as error:
        sys.exit(str(error))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


def line(text: str, setting: Setting, outcomes: Sequence[Outcome]) -> str:
    """One line for a setting."""
    accuracies = [outcome.accuracy for outcome in outcomes]
    up, down = (statistics.fmean(statistics.fmean(getattr(o, way)) for o in outcomes) for way in ("up", "down"))
    total = setting.workers * len(setting.rounds) * (up + down)
    return (
        f"{statistics.fmean(accuracies):.4f} ({min(accuracies):.4f} to {max(accuracies):.4f})  "
        f"loss {statistics.fmean(o.loss for o in outcomes):.4f}  {len(setting.rounds):3} rounds  "
        f"{up / 1e3:6.1f} kB up  {down / 1e3:6.1f} kB down  {total / 1e6:6.2f} MB  {text}"
    )


if __name__ == "__main__":
    main()
